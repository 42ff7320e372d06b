"""Widgets: sliders over the pure functions of ``viz``, and no arithmetic of their own."""

from kvlab.widgets.attention import AttentionBrowser
from kvlab.widgets.blocks import BlockStepper
from kvlab.widgets.heads import HeadsOverRanks
from kvlab.widgets.kernels import OccupancyExplorer
from kvlab.widgets.prefix import HitRateExplorer, RadixStepper
from kvlab.widgets.serving import SchedulerTimeline
from kvlab.widgets.workload import ServingWorkload

__all__ = [
    "AttentionBrowser",
    "BlockStepper",
    "HeadsOverRanks",
    "HitRateExplorer",
    "OccupancyExplorer",
    "RadixStepper",
    "SchedulerTimeline",
    "ServingWorkload",
]
