"""Attention over pages: one function, and what can compute it."""

from kvlab.kernels.paged import paged_attention

__all__ = ["paged_attention"]
