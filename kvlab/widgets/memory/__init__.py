"""Three widgets over ``kvlab.memory``: the calculator, models side by side, and the roofline."""

from kvlab.widgets.memory.calculator import MemoryCalculator
from kvlab.widgets.memory.comparison import ArchitectureComparison
from kvlab.widgets.memory.explorer import RooflineExplorer

__all__ = ["ArchitectureComparison", "MemoryCalculator", "RooflineExplorer"]
