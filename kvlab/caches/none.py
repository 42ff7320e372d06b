"""No cache at all: the baseline that every other cache is measured against and proved equal to."""

from operator import index

import torch

from kvlab.caches.base import Cache
from kvlab.model.attention import attention


class NoCache(Cache):
    """Stores nothing; its length stays 0, so generation must feed the whole text again at every step.

    ``rows=B`` treats the packed tokens as B texts of equal length, one behind the other: the form in which
    models are trained.
    """

    nbytes = 0

    def __init__(self, config, rows=1):
        super().__init__(config)
        if index(rows) < 1:
            raise ValueError(f"rows is {rows}; there is at least one text")
        self.rows = index(rows)
        self.capacity = None

    def _row_length(self, n):
        if n % self.rows:
            raise ValueError(f"{n} tokens cannot be {self.rows} rows of equal length")
        return n // self.rows

    def positions(self, n):
        return torch.arange(self._row_length(n)).repeat(self.rows)

    def attend(self, layer, q, k, v):
        spec = self.config.layer_kv(layer)
        self._check(spec, q, k, v)
        positions = torch.arange(self._row_length(len(k)), device=k.device)
        q, k, v = (x if x is None else x.unflatten(0, (self.rows, -1)) for x in (q, k, v))  # [B, N/B, H, D]
        out = attention(q, k, v, positions, positions, spec.scale, spec.window, spec.value_dim)
        return out.flatten(0, 1)

    def advance(self, n):
        pass

    def fork(self):
        return NoCache(self.config, self.rows)
