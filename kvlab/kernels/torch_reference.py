"""Paged attention in PyTorch: the oracle of every kernel, and what runs where there is no GPU.

Pages are gathered a tile at a time, so that what was copied is still in the processor's cache when it is
multiplied: several short sequences together, or a part of a long one. A tile is gathered head by head,
because products over rows that lie together are the quick ones.
"""

from itertools import accumulate, groupby

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
        self.groups, ends = [], list(accumulate(queries))
        busy = (b for b, n in enumerate(queries) if n and contexts[b])
        order = sorted(busy, key=lambda b: (queries[b], contexts[b]))  # the less is padded
        for n, alike in groupby(order, key=queries.__getitem__):
            for members in _fitting(list(alike), contexts, token_bytes):
                rows = [row for b in members for row in range(ends[b] - n, ends[b])]
                lengths, sizes = [contexts[b] for b in members], (block_size, num_kv_heads, token_bytes)
                self.groups.append(Group(tables[members], lengths, rows, n, *sizes, window))

    def attend(self, q, pages, scale, sink_logits):
        """q [N, Hq, Dk] -> [N, Hq, Dv]; zeros where there is nothing to attend to."""
        out = q.new_zeros(*q.shape[:2], pages.value_dim)
        for group in self.groups:
            out[group.rows] = group.attend(q[group.rows], pages, scale, sink_logits)
        return out


def _fitting(members, contexts, token_bytes):
    """Cut sequences, the shortest first, into runs that make a tile, each padded to its longest."""
    start = 0
    for end, b in enumerate(members):
        if end > start and (end + 1 - start) * contexts[b] * token_bytes > TILE_BYTES:
            yield members[start:end]
            start = end
    yield members[start:]


def _slots(tables, positions, block_size):
    """Where the tokens at these positions [b, T] of their sequences lie -> [b, T]."""
    return tables.long().gather(1, positions // block_size) * block_size + positions % block_size


class Group:
    """Sequences with ``n`` new tokens each. Shorter ones are padded in front, with their own first token over
    and over: sound numbers, which the mask hides.

    tables [b, blocks], rows: those of the batch that are this group's queries.
    """

    def __init__(self, tables, contexts, rows, n, block_size, num_kv_heads, token_bytes, window):
        self.contexts, self.n, self.window, device = contexts, n, window, tables.device
        self.rows = torch.tensor(rows, device=device)
        longest = max(contexts) if window is None else min(max(contexts), window + n - 1)
        ends = torch.tensor(contexts, device=device)[:, None]  # [b, 1]
        positions = ends + torch.arange(-longest, 0, device=device)  # [b, T], below 0 in the padding
        seen = visible(ends + torch.arange(-n, 0, device=device), positions, window)  # [b, n, T]
        seen &= (positions >= 0)[:, None]
        self.hidden = None if seen.all() else ~seen[:, None, None]  # [b, 1, 1, n, T]
        slots = _slots(tables, positions.clamp(min=0), block_size)
        self.tile_tokens = max(1, TILE_BYTES // (len(contexts) * token_bytes))
        self.tiles = [Tile(part, num_kv_heads) for part in slots.split(self.tile_tokens, dim=1)]

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
        for part, tile in zip(weights.split(self.tile_tokens, dim=-1), self.tiles, strict=True):
            out = torch.baddbmm(out, part, pages.values(tile))
        return out.view(*sizes, -1).permute(0, 3, 1, 2, 4).reshape(b * n, num_heads, -1)

    def _weights(self, scores, sink_logits):
        """Scores [b, Hkv, G, n, T] -> weights."""
        if self.hidden is not None:
            scores.masked_fill_(self.hidden, -torch.inf)
        if sink_logits is None:
            return scores.softmax(dim=-1)
        sinks = sink_logits.to(scores.dtype).unflatten(0, scores.shape[1:3])[
            ..., None, None
        ]  # [Hkv, G, 1, 1]
        sinks = sinks.expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]


class Tile:
    """Some tokens: slots [b, t]. Those of one sequence that lie in a row are found without copying."""

    def __init__(self, slots, num_kv_heads):
        first, count = int(slots[0, 0]), slots.shape[1]
        in_a_row = len(slots) == 1 and slots[0].tolist() == list(range(first, first + count))
        self.run = slice(first, first + count) if in_a_row else None
        heads = torch.arange(num_kv_heads, device=slots.device)[:, None]
        self.rows = (slots[:, None] * num_kv_heads + heads).flatten()  # [b * Hkv * t], of pages seen as rows
        self.shape = len(slots) * num_kv_heads, count


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
            scale = self._gather(scale[..., None], tile, "scale")  # [b * Hkv, t, 1]
        elif scale.dim() == 1:
            scale = scale.repeat(len(numbers) // len(scale))[:, None, None]  # [b * Hkv, 1, 1]
        return numbers.to(self.dtype) * scale

    def _gather(self, pages, tile, what="numbers"):
        """Pages [num_blocks, block_size, Hkv, D] -> [b * Hkv, t, D]."""
        if tile.run is not None:
            return pages.flatten(0, 1)[tile.run].transpose(0, 1)
        kind = what, tile.shape, pages.shape[3], pages.dtype
        if kind not in self.rooms:
            room = pages.new_empty(len(tile.rows), pages.shape[3])
            self.rooms[kind] = room, room.view(*tile.shape, -1)
        room, shaped = self.rooms[kind]
        torch.index_select(pages.reshape(-1, pages.shape[3]), 0, tile.rows, out=room)
        ledger.copied(room.nbytes)
        return shaped
