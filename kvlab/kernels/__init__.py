"""Attention over pages: one function, and what can compute it."""

from kvlab.kernels.paged import Batch, paged_attention

__all__ = ["Batch", "paged_attention"]
