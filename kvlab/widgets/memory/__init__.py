"""Widgets over ``kvlab.memory``: the calculator, models side by side, the roofline, and latent attention."""

from kvlab.widgets.memory.absorption import AbsorbOrExpand
from kvlab.widgets.memory.calculator import MemoryCalculator
from kvlab.widgets.memory.comparison import ArchitectureComparison
from kvlab.widgets.memory.explorer import RooflineExplorer

__all__ = ["AbsorbOrExpand", "ArchitectureComparison", "MemoryCalculator", "RooflineExplorer"]
