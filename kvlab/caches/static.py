"""A preallocated cache: room for every token from the start, so that storing one moves no other."""

from operator import index

import torch

from kvlab import ledger
from kvlab.caches.base import Cache, keys_and_values, present


class StaticCache(Cache):
    """Keys and values of all layers in memory reserved once, at the first token. Lossless.

    capacity: tokens to make room for; by default all the model's positions.
    """

    def __init__(self, config, capacity=None):
        super().__init__(config)
        if capacity is not None:
            if not 1 <= index(capacity) <= config.max_positions:
                raise ValueError(
                    f"capacity is {capacity}; a cache has room for at least one token and at most for the "
                    f"model's {config.max_positions}"
                )
            self.capacity = index(capacity)
        self._stored = 0  # tokens, counted or not
        self._kv = [None] * config.num_layers

    @property
    def nbytes(self):
        return sum(x.nbytes for kv in filter(None, self._kv) for x in kv)

    def store(self, layer, k, v):
        end, arrived = self.length + len(k), present(k, v)
        self._stored = end
        if self._kv[layer] is None or self._kv[layer][0].dtype != k.dtype:
            self._kv[layer] = tuple(x.new_empty(self.capacity, *x.shape[1:]) for x in arrived)
        for room, new in zip(self._kv[layer], arrived, strict=True):
            room[self.length : end] = new
        return keys_and_values(tuple(room[:end] for room in self._kv[layer]))

    def fork(self):
        """Copies what is stored: two owners of one reserved room would write over each other."""
        other = StaticCache(self.config, self.capacity)
        other.length, other._stored, other._dtype = self.length, self.length, self._dtype
        for layer, kv in enumerate(self._kv):
            if kv is not None:
                other._kv[layer] = tuple(torch.empty_like(room) for room in kv)
                for new, room in zip(other._kv[layer], kv, strict=True):
                    new[: self.length] = room[: self.length]
                    ledger.copied(room[: self.length].nbytes)
        ledger.used(other)
        return other
