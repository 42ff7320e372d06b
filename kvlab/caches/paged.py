"""Keys and values in pages: sequences of any length side by side in one memory, block by block.

(PagedAttention, Kwon et al. 2023, section 4.)
"""

from collections import Counter

import torch

from kvlab import ledger
from kvlab.caches.base import Cache, CacheOverflow, present
from kvlab.kernels import Batch
from kvlab.paging import BlockPool, BlockTable, OutOfBlocks

BLOCK_SIZE = 16


class Pages:
    """The memory of all layers, [num_blocks, block_size, Hkv, D] each for keys and values, and its pool.

    Made once; every sequence of an engine, or a cache and its forks, take their blocks from it. The memory
    itself is reserved when the first token comes, whose dtype and device it gets.
    """

    def __init__(self, config, num_blocks, block_size=BLOCK_SIZE):
        self.config, self.pool = config, BlockPool(num_blocks, block_size)
        self.layers = [None] * config.num_layers  # (keys,) or (keys, values)

    @property
    def nbytes(self):
        """Bytes of the blocks that are in use, by however many sequences; free ones are nobody's."""
        in_use = self.pool.num_blocks - self.pool.num_free
        return in_use * self.block_bytes

    @property
    def block_bytes(self):
        """Bytes of one block in all layers -> int; 0 before the first token."""
        return sum(pages[0].nbytes for layer in filter(None, self.layers) for pages in layer)

    def write(self, layer, slots, k, v):
        """Store k [N, Hkv, Dk] and v [N, Hkv, Dv] or None at slots [N] -> the layer's pages."""
        arrived = present(k, v)
        if self.layers[layer] is None or self.layers[layer][0].dtype != k.dtype:
            shape = self.pool.num_blocks, self.pool.block_size
            self.layers[layer] = tuple(x.new_empty(*shape, *x.shape[1:]) for x in arrived)
        for pages, new in zip(self.layers[layer], arrived, strict=True):
            pages.flatten(0, 1)[slots] = new
        return self.layers[layer]

    def copy(self, copies):
        """Whole blocks, in all layers: a list of (from, to)."""
        for old, new in copies:
            for pages in (pages for layer in filter(None, self.layers) for pages in layer):
                pages[new] = pages[old]
                ledger.copied(pages[old].nbytes)


class PagedStep(Cache):
    """One step of several sequences: query_lens[b] new tokens for tables[b], packed one after the other.

    Room is reserved here, for all of them or, with OutOfBlocks, for none. The model runs on this view as on
    any cache.
    """

    def __init__(self, pages, tables, query_lens):
        super().__init__(pages.config)
        self.pages, self.tables, self.query_lens = pages, list(tables), list(query_lens)
        self.length = sum(table.length for table in self.tables)
        self.capacity = None
        self._dtype = next((layer[0].dtype for layer in filter(None, pages.layers)), None)
        steps = list(zip(self.tables, self.query_lens, strict=True))
        needed = blocks_needed(pages.pool, steps)
        if needed > pages.pool.num_free:
            raise OutOfBlocks(pages.pool.shortage(needed))
        for table, n in steps:
            pages.copy(table.reserve(n))
        self._slots = torch.tensor([slot for table, n in steps for slot in table.slots(n)])  # [N]
        self._positions = torch.cat([torch.arange(t.length, t.length + n) for t, n in steps])  # [N]
        width = max(len(table.blocks) for table in self.tables)
        rows = [table.blocks + [0] * (width - len(table.blocks)) for table in self.tables]
        contexts = torch.tensor([table.length + n for table, n in steps])
        shape = pages.pool.num_blocks, pages.pool.block_size
        self._batch = Batch(torch.tensor(rows), contexts, torch.tensor(self.query_lens), *shape)

    @property
    def nbytes(self):
        return self.pages.nbytes

    def positions(self, n):
        if n != len(self._positions):
            raise ValueError(f"{n} tokens came; this step was made for {self.query_lens}")
        return self._positions

    def attend(self, layer, q, k, v):
        spec = self.config.layer_kv(layer)
        self._check(spec, q, k, v)
        pages = self.pages.write(layer, self._slots, k, v)
        ledger.written(sum(x.nbytes for x in present(k, v)))
        ledger.used(self.pages)
        values = None if spec.values_in_keys else pages[1]
        options = {"scale": spec.scale, "v_dim": spec.value_dim, "window": spec.window}
        return self._batch.attend(q, pages[0], values, **options)

    def advance(self, n):
        self.positions(n)
        for table, new in zip(self.tables, self.query_lens, strict=True):
            table.advance(new)
        self.length += n


def blocks_needed(pool, steps):
    """Free blocks that a step takes: steps are (table, new tokens) pairs -> int.

    When all owners of a block write, the last one needs no copy of it.
    """
    copied = Counter(table.shared_block() for table, n in steps if n)
    del copied[None]
    last = sum(pool.count(block) == writers and not pool.cached(block) for block, writers in copied.items())
    return sum(table.needed(n) for table, n in steps) - last


class PagedCache(Cache):
    """One sequence in pages. Lossless; ``fork`` shares all blocks and copies the last one when it is written.

    block_size: slots of a block. num_blocks: of the pool; by default enough for two sequences of all the
    model's positions. pages: in place of both, the memory to take blocks from.
    """

    def __init__(self, config, block_size=BLOCK_SIZE, num_blocks=None, pages=None):
        super().__init__(config)
        if pages is None:
            if num_blocks is None:
                num_blocks = 2 * -(-config.max_positions // block_size)
            pages = Pages(config, num_blocks, block_size)
        elif pages.config != config:
            raise ValueError("these pages were made for a model of another shape: make them from its config")
        self.pages, self.table = pages, BlockTable(pages.pool)
        self._step = None

    @property
    def nbytes(self):
        """Bytes of its own blocks, those that it shares among them."""
        return len(self.table.blocks) * self.pages.block_bytes

    def attend(self, layer, q, k, v):
        self._check(self.config.layer_kv(layer), q, k, v)
        if self._step is None or self._step.query_lens != [len(k)]:
            try:
                self._step = PagedStep(self.pages, [self.table], [len(k)])
            except OutOfBlocks as error:
                raise CacheOverflow(str(error)) from None
        self._dtype = k.dtype
        return self._step.attend(layer, q, k, v)

    def advance(self, n):
        if self._step is None:
            raise ValueError(f"cannot advance by {n}: no new tokens were stored")
        self._step.advance(n)
        self._step, self.length = None, self.table.length

    def truncate(self, n):
        super().truncate(n)
        self.table.truncate(n)
        self._step = None

    def fork(self):
        other = PagedCache(self.config, pages=self.pages)
        other.table.release()
        other.table = self.table.fork()
        other.length, other._dtype = self.length, self._dtype
        self._step = None  # it may have been about to write into a block that is shared now
        return other

    def release(self):
        """Give all blocks back to the pool; nothing can be done with the cache afterwards."""
        self.table.release()
        self._step, self.length = None, 0
