"""Pictures of a GPU and of the kernels on it: who works on what, what is read, and what waits for what.

They take numbers and words; which program does what is decided elsewhere. Each comes as a picture and, with
``_sheet`` after its name, as a :class:`~kvlab.viz.sheet.Sheet`.
"""

from kvlab.viz.kernels.gpu import gpu, gpu_sheet
from kvlab.viz.kernels.merging import merging, merging_sheet
from kvlab.viz.kernels.occupancy import occupancy, occupancy_sheet
from kvlab.viz.kernels.packing import packing, packing_sheet
from kvlab.viz.kernels.pipeline import pipeline, pipeline_sheet
from kvlab.viz.kernels.stages import stage_bars, stage_bars_sheet
from kvlab.viz.kernels.tiles import tiles, tiles_sheet
from kvlab.viz.kernels.touched import touched, touched_sheet

__all__ = [
    "gpu",
    "gpu_sheet",
    "merging",
    "merging_sheet",
    "occupancy",
    "occupancy_sheet",
    "packing",
    "packing_sheet",
    "pipeline",
    "pipeline_sheet",
    "stage_bars",
    "stage_bars_sheet",
    "tiles",
    "tiles_sheet",
    "touched",
    "touched_sheet",
]
