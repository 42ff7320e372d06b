"""Attention weights for looking at: a cache that watches another one."""

import torch

from kvlab.model.attention import attention_weights


class AttentionMaps:
    """Wraps a lossless cache and recomputes the weights that each query gave to each key.

    ``maps[layer]`` is [Hq, T, T] after the model has read T tokens, in any chunks; what a query may not see
    is zero. The model's answers are those of the wrapped cache, untouched. Costs T**2 numbers a head: for
    looking at short texts.
    """

    def __init__(self, cache):
        self._cache = cache
        self._keys = [None] * cache.config.num_layers
        self.maps = [None] * cache.config.num_layers

    def __getattr__(self, name):
        return getattr(self._cache, name)

    def attend(self, layer, q, k, v):
        old_keys, old_map = self._keys[layer], self.maps[layer]
        keys = k if old_keys is None else torch.cat([old_keys, k])  # [T, Hkv, D]
        spec, t = self._cache.config.layer_kv(layer), len(keys)
        positions = torch.arange(t, device=k.device)
        weights = attention_weights(q, keys, positions[-len(q) :], positions, spec.scale, spec.window)
        rows = weights.flatten(0, 1)  # [Hq, N, T]
        if old_map is not None:
            before = torch.nn.functional.pad(old_map, (0, len(q)))  # old queries never see the new keys
            rows = torch.cat([before, rows], dim=1)
        self._keys[layer], self.maps[layer] = keys, rows
        return self._cache.attend(layer, q, k, v)
