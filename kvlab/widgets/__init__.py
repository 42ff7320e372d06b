"""Widgets: sliders over the pure functions of ``viz``, and no arithmetic of their own."""

from kvlab.widgets.attention import AttentionBrowser

__all__ = ["AttentionBrowser"]
