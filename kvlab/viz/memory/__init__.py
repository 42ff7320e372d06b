"""Pictures of what a cache costs: a device's memory, a strip of layers, lines against tokens, a roofline.

They take numbers and words that are ready to be shown; what a cache costs is computed elsewhere. Each is a
:class:`~kvlab.viz.sheet.Sheet`, which gives an SVG string for a widget and a PNG for the page.
"""

from kvlab.viz.memory.absorption import FormBars, flop_words, form_bars
from kvlab.viz.memory.device import device_bar, layer_strip
from kvlab.viz.memory.lines import Line, lines_chart, plain
from kvlab.viz.memory.looks import KINDS, PARTS
from kvlab.viz.memory.notes import notes
from kvlab.viz.memory.pages import (
    Fact,
    answer_page,
    duration,
    grouped,
    per_second,
    refusal,
    side_by_side,
    times,
)
from kvlab.viz.memory.roofline import Bar, Point, roofline, step_bars
from kvlab.viz.sheet import heading, together

__all__ = [
    "KINDS",
    "PARTS",
    "Bar",
    "Fact",
    "FormBars",
    "Line",
    "Point",
    "answer_page",
    "device_bar",
    "duration",
    "flop_words",
    "form_bars",
    "grouped",
    "heading",
    "layer_strip",
    "lines_chart",
    "notes",
    "per_second",
    "plain",
    "refusal",
    "roofline",
    "side_by_side",
    "step_bars",
    "times",
    "together",
]
