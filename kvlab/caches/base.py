"""What every cache has in common: the protocol, the checks, and the reading of one sequence."""

from operator import index

import torch

from kvlab import ledger
from kvlab.model.attention import attention
from kvlab.model.config import Config


class CacheOverflow(ValueError):
    """More tokens than the cache has room for. Nothing was stored."""


def present(k, v):
    """What there is to store: keys and values, or keys that contain the values -> tuple of tensors."""
    return (k,) if v is None else (k, v)


def keys_and_values(stored):
    """The way back -> (keys, values or None)."""
    return stored if len(stored) == 2 else (stored[0], None)


class Cache:
    """Keys and values of one sequence, kept between calls of the model.

    A subclass says how tokens are stored: ``store(layer, k, v)`` keeps the new keys and values behind the
    first ``length`` ones and returns all of them. The base class checks, positions, masks and attends.

    ``length``    tokens stored in every layer
    ``capacity``  tokens that fit, or ``None`` when there is no end
    ``nbytes``    bytes occupied, unused room included
    """

    def __init__(self, config):
        if not isinstance(config, Config):
            raise TypeError(f"a cache is built from a model's config, and not from {type(config).__name__}")
        self.config = config
        self.length = 0
        self.capacity = config.max_positions
        self._dtype = None  # that of the tokens stored
        self._stored = None  # tokens stored, counted or not, in caches that keep track of it

    @property
    def nbytes(self):
        raise NotImplementedError

    def positions(self, n):
        """Positions at which the model rotates the next ``n`` queries and keys -> int64 [n]."""
        return torch.arange(self.length, self.length + n)

    def attend(self, layer, q, k, v):
        """Store the new tokens' k and v, and attend with q over all that each may see -> [N, Hq, Dv].

        q [N, Hq, Dk], k [N, Hkv, Dk], v [N, Hkv, Dv], or None where the layer's values are the first entries
        of its keys. ``length`` stays; see :meth:`advance`.
        Raises ValueError for a wrong shape, TypeError for a wrong dtype, CacheOverflow where room ends.
        """
        spec = self.config.layer_kv(layer)
        self._check(spec, q, k, v)
        self._dtype = k.dtype
        keys, values = self.store(layer, k, v)  # [length + N, Hkv, Dk], [length + N, Hkv, Dv] or None
        ledger.written(k.nbytes + (0 if v is None else v.nbytes))
        ledger.used(self)
        first = 0 if spec.window is None else max(0, self.length + 1 - spec.window)  # oldest key seen
        key_positions = torch.arange(first, self.length + len(k), device=k.device)
        query_positions = key_positions[-len(q) :]
        values = None if values is None else values[first:]
        positions = query_positions, key_positions
        return attention(q, keys[first:], values, *positions, spec.scale, spec.window, spec.value_dim)

    def store(self, layer, k, v):
        """Keep k and v of the new tokens -> (keys, values) of all ``length + N`` tokens of this layer.

        ``v`` is None where there are no values beside the keys; so are the values then.
        """
        raise NotImplementedError

    def advance(self, n):
        """Count the ``n`` tokens that every layer has stored; the model calls it after its last layer."""
        if self._stored not in (None, self.length + n):
            new = self._stored - self.length
            raise ValueError(f"cannot advance by {n}: {new} new tokens were stored")
        self.length += n

    def truncate(self, n):
        """Keep the first ``n`` tokens and forget the rest."""
        if not 0 <= index(n) <= self.length:
            raise ValueError(f"cannot keep {n} tokens of a cache that holds {self.length}")
        self.length = index(n)
        self._stored = None if self._stored is None else self.length

    def fork(self):
        """An independent continuation: what either one stores from here on, the other never sees."""
        raise NotImplementedError

    def release(self):
        """Let go of everything: blocks of a shared memory go back to it. The cache is not used afterwards."""
        self.truncate(0)

    def _check(self, spec, q, k, v):
        if spec.values_in_keys and v is not None:
            raise ValueError(
                "v is given, but this layer's values are the first entries of its keys: pass None"
            )
        given = {"q": q, "k": k} | ({} if spec.values_in_keys else {"v": v})
        for name, tensor in given.items():
            if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
                kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise TypeError(f"{name} is {kind}; it must be a tensor of floating-point numbers")
            if tensor.dim() != 3:
                raise ValueError(f"{name} has shape {list(tensor.shape)}; it must be [tokens, heads, size]")
        n = len(k)
        heads = {"q": self.config.num_heads, "k": spec.num_kv_heads, "v": spec.num_kv_heads}
        sizes = {"q": spec.key_dim, "k": spec.key_dim, "v": spec.value_dim}
        for name, tensor in given.items():
            shape = [n, heads[name], sizes[name]]
            if list(tensor.shape) != shape:
                raise ValueError(f"{name} has shape {list(tensor.shape)}; this layer's is {shape}")
            if tensor.dtype != k.dtype:
                raise TypeError(f"{name} is {tensor.dtype} and k is {k.dtype}: one dtype for all three")
            if tensor.device != k.device:
                raise ValueError(
                    f"{name} is on {tensor.device} and k on {k.device}: one device for all three"
                )
        if self.length and self._dtype not in (None, k.dtype):  # None: filled by store alone
            raise TypeError(f"this cache holds {self._dtype} and the new keys are {k.dtype}: use a new cache")
        if n == 0:
            raise ValueError("no new tokens: attend needs at least one")
        if self.capacity is not None and self.length + n > self.capacity:
            at_most = self.config.max_positions
            larger = ", or make the cache larger" if self.capacity < at_most else ""
            raise CacheOverflow(
                f"{self.length} tokens stored and {n} new ones make {self.length + n}, but this cache has "
                f"room for {self.capacity}: shorten the text or truncate the cache{larger} "
                f"(the model takes {at_most} tokens)"
            )
