"""Attention over pages: one function, and what can compute it."""

from kvlab.kernels.backend import mode
from kvlab.kernels.paged import Batch, paged_attention
from kvlab.kernels.write import write_pages

__all__ = ["Batch", "mode", "paged_attention", "write_pages"]
