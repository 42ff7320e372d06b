"""The tensors of a case: random numbers in pages that lie in any order, and the calls that read them."""

from functools import cached_property

import torch

from kvlab.kernels import Batch
from kvlab.kernels.torch_reference import Pages
from kvlab.kernels.triton_launch import Plan

CHUNK = 2**26  # numbers made at a time, since they are made in float32


class Problem:
    """A case on a device."""

    def __init__(self, case, device):
        self.case, self.device, self.scale = case, device, case.key_dim**-0.5
        self.random = torch.Generator(device).manual_seed(0)
        slots = case.blocks, case.block_size, case.kv_heads
        self.q = self._numbers((case.batch, case.heads, case.key_dim), case.dtype)
        self.k = self._numbers((*slots, case.key_dim), case.stored)
        self.v = None if case.latent else self._numbers((*slots, case.value_dim), case.stored)
        order = torch.randperm(case.blocks, generator=self.random, device=device)
        self.tables = order.int().view(case.batch, -1)
        self.contexts = torch.full((case.batch,), case.context, dtype=torch.int32, device=device)
        self.batch = Batch(self.tables, self.contexts, torch.ones_like(self.contexts), *slots[:2])
        scale = None if case.stored == case.dtype else torch.full([case.kv_heads], 0.5, device=device)
        self.scales = {"k_scale": scale, "v_scale": None if case.latent else scale}

    def _numbers(self, shape, dtype):
        made = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
        for part in made.view(-1).split(CHUNK):
            part.copy_(torch.randn(part.shape, generator=self.random, device=self.device))
        return made

    def attend(self, backend, parts=None, tiling=None):
        """-> [B, Hq, Dv]. tiling: in place of the kernel's usual one."""
        v_dim = self.case.value_dim if self.case.latent else None
        if tiling is not None:
            pages = Pages(self.k, self.v, v_dim, *self.scales.values(), self.q.dtype)
            return self._plan.attend(self.q, pages, self.scale, None, None, parts, tiling)
        options = {"scale": self.scale, "v_dim": v_dim, "num_splits": parts, **self.scales}
        return self.batch.attend(self.q, self.k, self.v, **options, backend=backend)

    @cached_property
    def _plan(self):
        lengths = [self.case.context] * self.case.batch, [1] * self.case.batch
        return Plan(self.tables, *lengths, self.case.block_size, self.device)

    @cached_property
    def by_token(self):
        """Keys and values without pages -> two [B, T, Hkv, D]."""
        return [pages[self.tables.long()].flatten(1, 2) for pages in (self.k, self.v)]

    @cached_property
    def by_head(self):
        """The same, each head's in a row -> two [B, Hkv, T, D]."""
        return [x.transpose(1, 2).contiguous() for x in self.by_token]
