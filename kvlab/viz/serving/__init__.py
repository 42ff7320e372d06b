"""Pictures of what an engine did: who ran and who waited, what each step's batch was made of, one step.

They take the engine's trace; who runs is decided elsewhere.
"""

from kvlab.viz.serving.batches import batches, batches_sheet
from kvlab.viz.serving.load import load_sheet
from kvlab.viz.serving.step import filmstrip, step_sheet
from kvlab.viz.serving.timeline import timeline, timeline_sheet
from kvlab.viz.serving.words import Names, events, happened, stops

__all__ = [
    "Names",
    "batches",
    "batches_sheet",
    "events",
    "filmstrip",
    "happened",
    "load_sheet",
    "step_sheet",
    "stops",
    "timeline",
    "timeline_sheet",
]
