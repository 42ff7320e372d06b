"""The simplest cache: append the new rows to a tensor, which means a larger tensor and a copy each time."""

import torch

from kvlab import ledger
from kvlab.caches.base import Cache, keys_and_values, present


class GrowingCache(Cache):
    """One tensor of keys and one of values a layer, concatenated at every step. Lossless.

    Exactly as large as its tokens, and every step copies all of them: t steps copy about t**2 / 2 tokens.
    """

    def __init__(self, config):
        super().__init__(config)
        self._stored = 0  # tokens, counted or not
        self._kv = [None] * config.num_layers  # of each layer: keys [T, Hkv, Dk] and, where kept, values

    @property
    def nbytes(self):
        return sum(x.nbytes for kv in filter(None, self._kv) for x in kv)

    def store(self, layer, k, v):
        self._stored, new = self.length + len(k), present(k, v)
        if self._kv[layer] is not None and self.length:
            # What lies behind `length` was never counted (a step that failed half-way): it goes.
            old = [x[: self.length] for x in self._kv[layer]]
            ledger.copied(sum(x.nbytes for x in old))
            self._kv[layer] = tuple(torch.cat(pair) for pair in zip(old, new, strict=True))
        else:
            self._kv[layer] = tuple(x.clone() for x in new)  # the caller may go on using its own
        return keys_and_values(self._kv[layer])

    def truncate(self, n):
        super().truncate(n)
        self._kv = [kv and tuple(x[:n].clone() for x in kv) for kv in self._kv]
        ledger.copied(self.nbytes)

    def fork(self):
        """Shares the tensors until either side appends: an append makes new ones and changes none."""
        other = GrowingCache(self.config)
        other.length, other._dtype, other._kv = self.length, self._dtype, list(self._kv)
        other._stored = self.length
        ledger.used(other)
        return other
