"""Widgets: sliders over the pure functions of ``viz``, and no arithmetic of their own."""

from kvlab.widgets.attention import AttentionBrowser
from kvlab.widgets.blocks import BlockStepper
from kvlab.widgets.heads import HeadsOverRanks

__all__ = ["AttentionBrowser", "BlockStepper", "HeadsOverRanks"]
