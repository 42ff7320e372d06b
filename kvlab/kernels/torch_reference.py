"""Paged attention in PyTorch: the oracle of every kernel, and what runs where there is no GPU.

Pages are gathered a tile at a time, so that what was copied is still in the processor's cache when it is
multiplied: many short sequences together, or a part of one long sequence.
"""

from itertools import groupby

import torch

from kvlab import ledger
from kvlab.model.attention import visible

TILE_BYTES = 2**20  # of gathered keys or values


def attend(
    q, k_pages, v_pages, tables, contexts, queries, *, scale, v_dim, window, sink_logits, k_scale, v_scale
):
    """As :func:`~kvlab.kernels.paged_attention`, whose arguments have been checked; lengths are lists."""
    out = q.new_zeros(*q.shape[:2], v_dim if v_pages is None else v_pages.shape[-1])
    start = 0
    pages = _Pages(k_pages, v_pages, v_dim, k_scale, v_scale, q.dtype)
    for rows in _groups(contexts, queries, pages.token_bytes):
        n = queries[rows.start]
        end = start + n * len(rows)
        if n and contexts[rows.start]:
            group = _Group(tables[rows.start : rows.stop], contexts[rows.start : rows.stop], n, window, pages)
            part = q[start:end].unflatten(0, (len(rows), n))  # [b, n, Hq, Dk]
            out[start:end] = group.attend(part, scale, sink_logits).flatten(0, 1)
        start = end
    return out


def _groups(contexts, queries, token_bytes):
    """Neighbours with equally many queries whose padded keys make one tile -> ranges."""
    start = 0
    for _, same in groupby(zip(queries, contexts, strict=True), lambda pair: (pair[0], not pair[1])):
        lengths = [length for _, length in same]
        while lengths:
            size, longest = 0, 0
            for length in lengths:
                longest = max(longest, length)
                if size and (size + 1) * longest * token_bytes > TILE_BYTES:
                    break
                size += 1
            yield range(start, start + size)
            start, lengths = start + size, lengths[size:]


class _Pages:
    """Keys and values of the pages, a tile of them at a time, as numbers of the queries' dtype."""

    def __init__(self, k_pages, v_pages, v_dim, k_scale, v_scale, dtype):
        self.k, self.v, self.v_dim, self.dtype = k_pages, v_pages, v_dim, dtype
        self.k_scale, self.v_scale = k_scale, v_scale
        self.block_size = k_pages.shape[1]
        self.token_bytes = k_pages[0, 0].numel() * k_pages.element_size()
        self.room = {}

    def keys(self, tile):
        return self._numbers("k", self.k, self.k_scale, tile)  # [b, t, Hkv, Dk]

    def values(self, tile):
        if self.v is None:
            return self.keys(tile)[..., : self.v_dim]
        return self._numbers("v", self.v, self.v_scale, tile)  # [b, t, Hkv, Dv]

    def _numbers(self, name, pages, scale, tile):
        numbers = self._gather(name, pages, tile)
        if scale is None:
            return numbers
        if isinstance(scale, torch.Tensor) and scale.dim() == 3:
            scale = self._gather(name + "_scale", scale, tile)  # [b, t, Hkv]
        scale = torch.as_tensor(scale, dtype=self.dtype, device=numbers.device)
        return numbers.to(self.dtype) * scale[..., None]

    def _gather(self, name, pages, tile):
        """Pages [num_blocks, block_size, ...] of a tile [b, blocks] -> [b, blocks * block_size, ...].

        Where the blocks of one sequence lie in a row, that is a view, and nothing moves.
        """
        if len(tile) == 1:
            first = int(tile[0, 0])
            if tile[0].tolist() == list(range(first, first + tile.shape[1])):
                return pages[first : first + tile.shape[1]].flatten(0, 1)[None]
        if name not in self.room or len(self.room[name]) < tile.numel():
            self.room[name] = pages.new_empty(tile.numel(), *pages.shape[1:])
        found = torch.index_select(pages, 0, tile.flatten(), out=self.room[name][: tile.numel()])
        ledger.copied(found.nbytes)
        return found.unflatten(0, tile.shape).flatten(1, 2)


class _Group:
    """Some sequences with ``n`` new tokens each, padded to the longest context."""

    def __init__(self, tables, contexts, n, window, pages):
        self.pages, self.contexts, self.n, self.window = pages, contexts, n, window
        size = pages.block_size
        first = 0 if window is None else max(0, min(contexts) - n + 1 - window) // size
        last = -(-max(contexts) // size)
        self.places = torch.tensor(contexts, device=tables.device)[:, None]  # [b, 1]
        used = torch.arange(first, last, device=tables.device) * size < self.places  # [b, blocks]
        self.tables = tables[:, first:last].long() * used  # what lies beyond a context becomes page 0
        self.positions = torch.arange(first * size, last * size, device=tables.device)  # [T]
        blocks = max(1, TILE_BYTES // (len(contexts) * size * pages.token_bytes))
        self.tiles = [range(i, min(i + blocks, last - first)) for i in range(0, last - first, blocks)]

    def attend(self, q, scale, sink_logits):
        """q [b, n, Hq, Dk] -> [b, n, Hq, Dv]."""
        b, n, num_heads, key_dim = q.shape
        num_kv_heads = self.pages.k.shape[2]
        group = num_heads // num_kv_heads
        rows = q.unflatten(2, (num_kv_heads, group)).movedim(1, 3) * scale  # [b, Hkv, G, n, Dk]
        rows = rows.reshape(b, num_kv_heads, group * n, key_dim)
        scores = q.new_empty(b, num_kv_heads, group * n, len(self.positions))
        for tile, tokens in self._each_tile():
            torch.matmul(rows, self.pages.keys(tile).permute(0, 2, 3, 1), out=scores[..., tokens])
        weights = self._weights(scores.unflatten(2, (group, n)), sink_logits).flatten(2, 3)
        out = 0
        for tile, tokens in self._each_tile():
            values = self.pages.values(tile)
            beyond = (
                self.positions[tokens] >= self.places
            )  # [b, t]; whatever lies there, even NaN, is no value
            if beyond.any():
                values = values.masked_fill(beyond[..., None, None], 0)
            out = out + weights[..., tokens] @ values.transpose(1, 2)  # [b, Hkv, G * n, Dv]
        self._bill(num_heads, num_kv_heads, key_dim, out.shape[-1])
        return out.unflatten(2, (group, n)).movedim(3, 1).flatten(2, 3)

    def _each_tile(self):
        size = self.pages.block_size
        for blocks in self.tiles:
            yield self.tables[:, blocks.start : blocks.stop], slice(blocks.start * size, blocks.stop * size)

    def _weights(self, scores, sink_logits):
        """Scores [b, Hkv, G, n, T] -> weights."""
        new = torch.arange(-self.n, 0, device=self.places.device)
        seen = visible(self.places + new, self.positions, self.window)  # [b, n, T]
        scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
        if sink_logits is None:
            return scores.softmax(dim=-1)
        sinks = sink_logits.to(scores.dtype).unflatten(0, scores.shape[1:3])[
            ..., None, None
        ]  # [Hkv, G, 1, 1]
        sinks = sinks.expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]

    def _bill(self, num_heads, num_kv_heads, key_dim, value_dim):
        """What the visible tokens take, whatever was padded."""
        number = self.pages.k.element_size()
        width = key_dim if self.pages.v is None else key_dim + value_dim
        for context in self.contexts:
            seen = context if self.window is None else min(context, self.window + self.n - 1)
            ledger.read(seen * num_kv_heads * width * number)
            ledger.matmul(num_heads * self.n, key_dim, seen)
            ledger.matmul(num_heads * self.n, seen, value_dim)
