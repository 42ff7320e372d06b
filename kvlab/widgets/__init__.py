"""Widgets: sliders over the pure functions of ``viz``, and no arithmetic of their own."""

from kvlab.widgets.attention import AttentionBrowser
from kvlab.widgets.heads import HeadsOverRanks

__all__ = ["AttentionBrowser", "HeadsOverRanks"]
