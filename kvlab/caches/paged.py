"""Keys and values in pages: sequences of any length side by side in one memory, block by block.

(PagedAttention, Kwon et al. 2023, section 4.)
"""

from collections import Counter
from copy import copy
from operator import index

import torch

from kvlab import ledger
from kvlab.caches.base import Cache, CacheOverflow, present
from kvlab.kernels import Batch, write_pages
from kvlab.kernels.backend import moved
from kvlab.paging import BlockPool, BlockTable, OutOfBlocks

BLOCK_SIZE = 16


class Pages:
    """The memory of all layers, [num_blocks, block_size, Hkv, D] each for keys and values, and its pool.

    Made once; every sequence of an engine, or a cache and its forks, take their blocks from it. The memory
    itself is reserved when the first token comes, whose dtype and device it gets; those of another dtype are
    taken only when nobody else holds a block.
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

    def accept(self, dtype, tables):
        """These tables will store numbers of this dtype. Raises TypeError where there are others already."""
        held = next((pages[0].dtype for pages in filter(None, self.layers)), dtype)
        if held == dtype:
            return
        in_use = self.pool.num_blocks - self.pool.num_free
        if any(table.length for table in tables) or sum(len(table.blocks) for table in tables) < in_use:
            raise TypeError(
                f"these pages hold {held} and the new keys are {dtype}: make new pages, or release all blocks"
            )
        self.layers = [None] * self.config.num_layers

    def write(self, layer, slots, k, v):
        """Store k [N, Hkv, Dk] and v [N, Hkv, Dv] or None at slots [N] -> the layer's pages."""
        if self.layers[layer] is None:
            shape = self.pool.num_blocks, self.pool.block_size
            self.layers[layer] = tuple(x.new_empty(*shape, *x.shape[1:]) for x in present(k, v))
        pages = self.layers[layer]
        write_pages(k, v, pages[0], None if v is None else pages[1], slots)
        return pages

    def copy(self, copies):
        """Whole blocks, in all layers: a list of (from, to)."""
        for old, new in copies:
            for pages in (pages for layer in filter(None, self.layers) for pages in layer):
                pages[new] = pages[old]
                ledger.copied(pages[old].nbytes)


class PagedStep(Cache):
    """One step of several sequences: query_lens[b] new tokens for tables[b], packed one after the other.

    Room is reserved here, for all of them or, with OutOfBlocks, for none. The model runs on this view, once,
    as on any cache; RuntimeError when one of the tables has changed since.
    """

    def __init__(self, pages, tables, query_lens):
        super().__init__(pages.config)
        self.pages, self.tables, self.query_lens = pages, list(tables), [index(n) for n in query_lens]
        self._check_tables()
        self.length = sum(table.length for table in self.tables)
        self.capacity = None
        steps = list(zip(self.tables, self.query_lens, strict=True))
        needed = blocks_needed(pages.pool, steps)
        if needed > pages.pool.num_free:
            raise OutOfBlocks(pages.pool.shortage(needed))
        for table, n in steps:
            pages.copy(table.reserve(n))
        self._before = self._state()
        self._slots = torch.tensor([slot for table, n in steps for slot in table.slots(n)])  # [N]
        self._positions = torch.tensor([at for t, n in steps for at in range(t.length, t.length + n)])  # [N]
        width = max(len(table.blocks) for table in self.tables)
        rows = [table.blocks + [0] * (width - len(table.blocks)) for table in self.tables]
        contexts = torch.tensor([table.length + n for table, n in steps])
        shape = pages.pool.num_blocks, pages.pool.block_size
        self._batch = Batch(torch.tensor(rows), contexts, torch.tensor(self.query_lens), *shape)

    @property
    def nbytes(self):
        return self.pages.nbytes

    @property
    def current(self):
        """Are the tables as they were when room was made?"""
        return self._state() == self._before

    def positions(self, n):
        if n != len(self._positions):
            raise ValueError(f"{n} tokens came; this step was made for {self.query_lens}")
        if not self.current:
            raise RuntimeError("its tables have changed since this step was made: make one for each step")
        return self._positions

    def attend(self, layer, q, k, v):
        spec = self.config.layer_kv(layer)
        self._check(spec, q, k, v)
        self.positions(len(k))
        self.pages.accept(k.dtype, self.tables)
        self._slots = moved(self._slots, k.device)  # once, for all layers
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

    def truncate(self, n):
        raise NotImplementedError("a step is of several sequences: truncate their tables")

    def _state(self):
        return [(table.length, list(table.blocks)) for table in self.tables]

    def _check_tables(self):
        if len(self.tables) != len(self.query_lens):
            raise ValueError(f"{len(self.tables)} tables and {len(self.query_lens)} query_lens: one each")
        if len({id(table) for table in self.tables}) < len(self.tables):
            raise ValueError("a table comes twice: a sequence has one run of new tokens in a step")
        if any(table.pool is not self.pages.pool for table in self.tables):
            raise ValueError("a table's blocks are of another pool than these pages'")
        if not any(self.query_lens):
            raise ValueError("no new tokens: a step needs at least one")


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

    def __init__(self, config, block_size=None, num_blocks=None, pages=None):
        super().__init__(config)
        if pages is None:
            block_size = BLOCK_SIZE if block_size is None else block_size
            if num_blocks is None:
                num_blocks = 2 * -(-config.max_positions // max(block_size, 1))
            pages = Pages(config, num_blocks, block_size)
        elif block_size is not None or num_blocks is not None:
            raise ValueError("pages have their sizes already: leave block_size and num_blocks out")
        elif pages.config != config:
            raise ValueError("these pages were made for a model of another shape: make them from its config")
        self.pages, self.table = pages, BlockTable(pages.pool)
        self.capacity = min(self.capacity, pages.pool.num_blocks * pages.pool.block_size)
        self._step = None

    @property
    def length(self):
        """Tokens of its table, whoever stored them: this cache, or a step of several sequences."""
        return self.table.length

    @length.setter
    def length(self, n):
        pass  # the base class starts from 0, and so does a new table

    @property
    def nbytes(self):
        """Bytes of its own blocks, those that it shares among them."""
        return len(self.table.blocks) * self.pages.block_bytes

    def attend(self, layer, q, k, v):
        self._check(self.config.layer_kv(layer), q, k, v)
        if not self._expects(len(k)):
            self.pages.accept(k.dtype, [self.table])
            try:
                self._step = PagedStep(self.pages, [self.table], [len(k)])
            except OutOfBlocks as error:
                raise CacheOverflow(str(error)) from None
        self._dtype = k.dtype
        return self._step.attend(layer, q, k, v)

    def advance(self, n):
        if not self._expects(n):
            stored = self._step.query_lens[0] if self._step is not None and self._step.current else 0
            raise ValueError(f"cannot advance by {n}: {stored} new tokens were stored")
        self._step.advance(n)
        self._step = None

    def truncate(self, n):
        self.table.truncate(n)
        self._step = None

    def fork(self):
        other = copy(self)
        other.table = self.table.fork()
        self._step = other._step = None  # it may have been about to write into a block that is shared now
        ledger.used(self.pages)
        return other

    def release(self):
        """Give all blocks back to the pool; nothing can be done with the cache afterwards."""
        self.table.release()
        self._step = None

    def _expects(self, n):
        """Is room made for ``n`` tokens, and nothing else has happened since?"""
        return self._step is not None and self._step.query_lens == [n] and self._step.current
