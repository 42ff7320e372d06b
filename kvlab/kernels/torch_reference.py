"""Paged attention in PyTorch: the oracle of every kernel, and what runs where there is no GPU.

Pages are gathered a tile at a time, so that what was copied is still in the processor's cache when it is
multiplied: many short sequences together, or a part of one long sequence.
"""

from itertools import groupby

import torch

from kvlab import ledger
from kvlab.model.attention import visible

TILE_BYTES = 2**20  # of gathered keys


class Plan:
    """How to go through the pages of a batch: the same for all layers whose keys are alike.

    tables [B, blocks] and the lists contexts and queries are those of ``paged_attention``, checked.
    token_bytes: of one token's keys in one layer.
    """

    def __init__(self, tables, contexts, queries, block_size, token_bytes, window):
        self.groups, start, row = [], 0, 0
        neighbours = groupby(zip(queries, contexts, strict=True), lambda pair: (pair[0], not pair[1]))
        for (n, empty), same in neighbours:
            lengths = [length for _, length in same]
            while lengths:
                b = _fitting(lengths, token_bytes)
                if n and not empty:
                    rows = slice(row, row + n * b)
                    part = tables[start : start + b]
                    self.groups.append(Group(part, lengths[:b], n, rows, block_size, token_bytes, window))
                start, row, lengths = start + b, row + n * b, lengths[b:]

    def attend(self, q, pages, scale, sink_logits):
        """q [N, Hq, Dk] -> [N, Hq, Dv]; zeros where there is nothing to attend to."""
        out = q.new_zeros(*q.shape[:2], pages.value_dim)
        for group in self.groups:
            out[group.rows] = group.attend(q[group.rows], pages, scale, sink_logits)
        return out


def _fitting(lengths, token_bytes):
    """How many of these sequences, padded to the longest of them, make a tile -> int, at least 1."""
    longest = 0
    for b, length in enumerate(lengths):
        longest = max(longest, length)
        if b and (b + 1) * longest * token_bytes > TILE_BYTES:
            return b
    return len(lengths)


class Group:
    """Neighbouring sequences with ``n`` new tokens each, padded to the longest context."""

    def __init__(self, tables, contexts, n, rows, block_size, token_bytes, window):
        self.contexts, self.n, self.rows, self.window = contexts, n, rows, window
        first = 0 if window is None else max(0, min(contexts) - n + 1 - window) // block_size
        last = -(-max(contexts) // block_size)
        ends = torch.tensor(contexts, device=tables.device)[:, None]  # [b, 1]
        used = torch.arange(first, last, device=tables.device) * block_size < ends  # [b, blocks]
        tables = tables[:, first:last].long() * used  # what lies beyond a context becomes page 0
        positions = torch.arange(first * block_size, last * block_size, device=tables.device)  # [T]
        new = torch.arange(-n, 0, device=tables.device)
        self.hidden = ~visible(ends + new, positions, window)[:, None, None]  # [b, 1, 1, n, T]
        beyond = positions >= ends  # [b, T]
        self.num_positions, self.tiles = len(positions), []
        step = max(1, TILE_BYTES // (len(contexts) * block_size * token_bytes))
        for i in range(0, last - first, step):
            blocks = tables[:, i : i + step]
            tokens = slice(i * block_size, i * block_size + blocks.shape[1] * block_size)
            outside = beyond[:, tokens, None, None]  # [b, t, 1, 1]
            self.tiles.append((Tile(blocks), tokens, outside if outside.any() else None))

    def attend(self, q, pages, scale, sink_logits):
        """q [b * n, Hq, Dk] -> [b * n, Hq, Dv]."""
        b, n, num_heads = len(self.contexts), self.n, q.shape[1]
        heads = pages.num_kv_heads, num_heads // pages.num_kv_heads  # Hkv, G
        rows = q.view(b, n, *heads, q.shape[2]).permute(0, 2, 3, 1, 4)  # [b, Hkv, G, n, Dk]
        rows = (rows * scale).flatten(2, 3)  # [b, Hkv, G * n, Dk]
        parts = [rows @ pages.keys(tile).permute(0, 2, 3, 1) for tile, _, _ in self.tiles]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)  # [b, Hkv, G * n, T]
        weights = self._weights(scores.unflatten(2, (heads[1], n)), sink_logits).flatten(2, 3)
        out = 0
        for tile, tokens, outside in self.tiles:
            values = pages.values(tile)
            if outside is not None:  # whatever lies there, even NaN, is no value
                values = values.masked_fill(outside, 0)
            out = out + weights[..., tokens] @ values.transpose(1, 2)  # [b, Hkv, G * n, Dv]
        self._bill(pages, num_heads)
        return out.unflatten(2, (heads[1], n)).permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)

    def _weights(self, scores, sink_logits):
        """Scores [b, Hkv, G, n, T] -> weights."""
        scores = scores.masked_fill(self.hidden, -torch.inf)
        if sink_logits is None:
            return scores.softmax(dim=-1)
        sinks = sink_logits.to(scores.dtype).unflatten(0, scores.shape[1:3])[
            ..., None, None
        ]  # [Hkv, G, 1, 1]
        sinks = sinks.expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]

    def _bill(self, pages, num_heads):
        """What the visible tokens take, whatever was padded."""
        for context in self.contexts:
            seen = context if self.window is None else min(context, self.window + self.n - 1)
            ledger.read(seen * pages.token_bytes)
            ledger.matmul(num_heads * self.n, pages.key_dim, seen)
            ledger.matmul(num_heads * self.n, seen, pages.value_dim)


class Tile:
    """Some pages: blocks [b, n]. Those of one sequence that lie in a row are found without copying."""

    def __init__(self, blocks):
        self.blocks, self.shape = blocks.flatten(), blocks.shape
        first, count = int(blocks[0, 0]), blocks.shape[1]
        in_a_row = len(blocks) == 1 and blocks[0].tolist() == list(range(first, first + count))
        self.run = slice(first, first + count) if in_a_row else None


class Pages:
    """Keys and values of a layer's pages, a tile at a time, as numbers of the queries' dtype."""

    def __init__(self, k_pages, v_pages, v_dim, k_scale, v_scale, dtype):
        self.k, self.v, self.k_scale, self.v_scale, self.dtype = k_pages, v_pages, k_scale, v_scale, dtype
        self.num_kv_heads, self.key_dim = k_pages.shape[2:]
        self.value_dim = v_dim if v_pages is None else v_pages.shape[3]
        width = self.key_dim + (0 if v_pages is None else self.value_dim)
        self.token_bytes = self.num_kv_heads * width * k_pages.element_size()  # read for each visible token
        self.room = {}  # where tiles are gathered, one after the other: new memory each time is slow

    def keys(self, tile):
        return self._numbers("k", self.k, self.k_scale, tile)  # [b, t, Hkv, Dk]

    def values(self, tile):
        if self.v is None:
            return self.keys(tile)[..., : self.value_dim]
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
        """Pages [num_blocks, block_size, ...] -> [b, t, ...]."""
        if tile.run is not None:
            return pages[tile.run].flatten(0, 1)[None]
        count = len(tile.blocks)
        if name not in self.room or len(self.room[name]) < count:
            self.room[name] = pages.new_empty(count, *pages.shape[1:])
        found = torch.index_select(pages, 0, tile.blocks, out=self.room[name][:count])
        ledger.copied(found.nbytes)
        return found.unflatten(0, tile.shape).flatten(1, 2)
