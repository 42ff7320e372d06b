"""Pictures of a block pool and its tables, and of memory that is given out in one piece.

They take a moment of a pool's log, or the log; what happens to blocks is decided elsewhere.
"""

from kvlab.viz.blocks.lanes import lanes, memory_lanes
from kvlab.viz.blocks.sheets import blocks_sheet, film, filmstrip, stops

__all__ = ["blocks_sheet", "film", "filmstrip", "lanes", "memory_lanes", "stops"]
