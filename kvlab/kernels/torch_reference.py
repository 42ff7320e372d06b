"""Paged attention in PyTorch: the oracle of every kernel, and what runs where there is no GPU.

Pages are gathered a tile at a time, so that what was copied is still in the processor's cache when it is
multiplied: many short sequences together, or a part of one long sequence. A tile is gathered head by head,
because products over rows that lie together are the quick ones.
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

    def __init__(self, tables, contexts, queries, block_size, num_kv_heads, token_bytes, window):
        self.groups, start, row = [], 0, 0
        neighbours = groupby(zip(queries, contexts, strict=True), lambda pair: (pair[0], not pair[1]))
        for (n, empty), same in neighbours:
            lengths = [length for _, length in same]
            while lengths:
                b = _fitting(lengths, token_bytes)
                if n and not empty:
                    slots = _slots(tables[start : start + b], lengths[:b], block_size)
                    tile_tokens = max(1, TILE_BYTES // (b * token_bytes))
                    sizes = n, num_kv_heads, tile_tokens, window
                    self.groups.append(Group(slots, lengths[:b], slice(row, row + n * b), *sizes))
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


def _slots(tables, contexts, block_size):
    """Where the tokens of some sequences lie -> [b, longest context]; slot 0 beyond a shorter one's end."""
    t = torch.arange(max(contexts), device=tables.device)
    inside = t < torch.tensor(contexts, device=tables.device)[:, None]  # [b, T]
    blocks = tables.long()[:, t // block_size] * inside  # whatever the table says beyond a context
    return (blocks * block_size + t % block_size) * inside


class Group:
    """Neighbouring sequences with ``n`` new tokens each, padded to the longest context.

    slots [b, T], rows: those of the batch that are this group's queries.
    """

    def __init__(self, slots, contexts, rows, n, num_kv_heads, tile_tokens, window):
        self.contexts, self.rows, self.n, self.window = contexts, rows, n, window
        first = 0 if window is None else max(0, min(contexts) - n + 1 - window)
        slots = slots[:, first:]
        positions = torch.arange(first, max(contexts), device=slots.device)  # [T]
        ends = torch.tensor(contexts, device=slots.device)[:, None]  # [b, 1]
        seen = visible(ends + torch.arange(-n, 0, device=slots.device), positions, window)  # [b, n, T]
        self.hidden = None if seen.all() else ~seen[:, None, None]  # [b, 1, 1, n, T]
        self.tiles = [Tile(part, num_kv_heads) for part in slots.split(tile_tokens, dim=1)]
        for tile, part in zip(self.tiles, positions.split(tile_tokens), strict=True):
            beyond = part >= ends  # [b, t]
            tile.beyond = beyond.repeat_interleave(num_kv_heads, 0)[..., None] if beyond.any() else None

    def attend(self, q, pages, scale, sink_logits):
        """q [b * n, Hq, Dk] -> [b * n, Hq, Dv]."""
        b, n, num_heads, key_dim = len(self.contexts), self.n, *q.shape[1:]
        sizes = b, pages.num_kv_heads, num_heads // pages.num_kv_heads, n  # b, Hkv, G, n
        rows = q.view(b, n, *sizes[1:3], key_dim).permute(0, 2, 3, 1, 4) * scale  # [b, Hkv, G, n, Dk]
        rows = rows.reshape(b * sizes[1], -1, key_dim)  # [b * Hkv, G * n, Dk]
        parts = [torch.bmm(rows, pages.keys(tile).mT) for tile in self.tiles]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)  # [b * Hkv, G * n, T]
        weights = self._weights(scores.view(*sizes, -1), sink_logits).flatten(2, 3).flatten(0, 1)
        out = rows.new_zeros(*rows.shape[:2], pages.value_dim)  # [b * Hkv, G * n, Dv]
        start = 0
        for tile in self.tiles:
            values = pages.values(tile)
            if tile.beyond is not None:  # whatever lies there, even NaN, is no value
                values.masked_fill_(tile.beyond, 0)  # several sequences are always gathered: our own memory
            out = torch.baddbmm(out, weights[..., start : start + values.shape[1]], values)
            start += values.shape[1]
        self._bill(pages, num_heads)
        return out.view(*sizes, -1).permute(0, 3, 1, 2, 4).reshape(b * n, num_heads, -1)

    def _weights(self, scores, sink_logits):
        """Scores [b, Hkv, G, n, T] -> weights."""
        if self.hidden is not None:
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
    """Some tokens: slots [b, t]. Those of one sequence that lie in a row are found without copying.

    ``beyond`` [b * Hkv, t, 1] says which lie beyond their sequence's end, or is None where none does.
    """

    def __init__(self, slots, num_kv_heads):
        first, count = int(slots[0, 0]), slots.shape[1]
        in_a_row = len(slots) == 1 and slots[0].tolist() == list(range(first, first + count))
        self.run = slice(first, first + count) if in_a_row else None
        heads = torch.arange(num_kv_heads, device=slots.device)[:, None]
        self.rows = (slots[:, None] * num_kv_heads + heads).flatten()  # [b * Hkv * t], of pages seen as rows
        self.shape = len(slots) * num_kv_heads, count
        self.beyond = None


class Pages:
    """Keys and values of a layer's pages, a tile at a time, as numbers of the queries' dtype."""

    def __init__(self, k_pages, v_pages, v_dim, k_scale, v_scale, dtype):
        self.k, self.v, self.k_scale, self.v_scale, self.dtype = k_pages, v_pages, k_scale, v_scale, dtype
        self.num_kv_heads, self.key_dim = k_pages.shape[2:]
        self.value_dim = v_dim if v_pages is None else v_pages.shape[3]
        width = self.key_dim + (0 if v_pages is None else self.value_dim)
        self.token_bytes = self.num_kv_heads * width * k_pages.element_size()  # read for each visible token
        self.rooms = {}  # tiles of a kind are gathered one over the other, so that it stays in the cache

    def keys(self, tile):
        return self._numbers(self.k, self.k_scale, tile)  # [b * Hkv, t, Dk]

    def values(self, tile):
        if self.v is None:
            return self.keys(tile)[..., : self.value_dim]
        return self._numbers(self.v, self.v_scale, tile)  # [b * Hkv, t, Dv]

    def _numbers(self, pages, scale, tile):
        numbers = self._gather(pages, tile)
        if scale is None:
            return numbers
        scale = torch.as_tensor(scale, dtype=self.dtype, device=numbers.device)
        if scale.dim() == 3:
            scale = self._gather(scale[..., None], tile)  # [b * Hkv, t, 1]
        elif scale.dim() == 1:
            scale = scale.repeat(len(numbers) // len(scale))[:, None, None]  # [b * Hkv, 1, 1]
        return numbers.to(self.dtype) * scale

    def _gather(self, pages, tile):
        """Pages [num_blocks, block_size, Hkv, D] -> [b * Hkv, t, D]."""
        if tile.run is not None:
            return pages.flatten(0, 1)[tile.run].transpose(0, 1)
        kind = tile.shape, pages.shape[3], pages.dtype
        if kind not in self.rooms:
            room = pages.new_empty(len(tile.rows), pages.shape[3])
            self.rooms[kind] = room, room.view(*tile.shape, -1)
        room, shaped = self.rooms[kind]
        torch.index_select(pages.reshape(-1, pages.shape[3]), 0, tile.rows, out=room)
        ledger.copied(room.nbytes)
        return shaped
