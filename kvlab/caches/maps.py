"""Attention weights for looking at: a cache that watches another one."""

import torch

from kvlab import ledger
from kvlab.model.attention import attention_weights


class AttentionMaps:
    """Wraps an empty lossless cache and recomputes the weights that each query gave to each key.

    ``maps[layer]`` is [Hq, T, T] after the model has read T tokens, in any chunks; what a query may not see
    is zero. The model's answers are those of the wrapped cache, untouched, and so is its bill. Costs T**2
    numbers a head: for looking at short texts.
    """

    def __init__(self, cache):
        if cache.length:
            raise ValueError(f"the cache holds {cache.length} tokens already: watch it from its first one")
        self._cache = cache
        self._keys = [None] * cache.config.num_layers
        self.maps = [None] * cache.config.num_layers

    def __getattr__(self, name):
        if name.startswith("_"):  # while being copied or unpickled there is no wrapped cache yet
            raise AttributeError(name)
        return getattr(self._cache, name)

    def attend(self, layer, q, k, v):
        out = self._cache.attend(layer, q, k, v)  # first: what it refuses is not drawn
        with ledger.off():
            self._watch(layer, q, k)
        return out

    def _watch(self, layer, q, k):
        start = self._cache.length  # what lies behind was forgotten, or never counted
        keys = k if not start else torch.cat([self._keys[layer][:start], k])  # [T, Hkv, D]
        spec, positions = self._cache.config.layer_kv(layer), torch.arange(start + len(k), device=k.device)
        weights = attention_weights(q, keys, positions[start:], positions, spec.scale, spec.window)
        rows = weights.flatten(0, 1)  # [Hq, N, T]
        if start:
            before = self.maps[layer][:, :start, :start]
            rows = torch.cat([torch.nn.functional.pad(before, (0, len(k))), rows], dim=1)
        self._keys[layer], self.maps[layer] = keys, rows

    def truncate(self, n):
        self._cache.truncate(n)
        self._keys = [keys if keys is None else keys[:n] for keys in self._keys]
        self.maps = [rows if rows is None else rows[:, :n, :n] for rows in self.maps]

    def fork(self):
        other = object.__new__(AttentionMaps)
        other._cache = self._cache.fork()
        other._keys, other.maps = list(self._keys), list(self.maps)
        return other
