"""Random operations on sequences that share twelve blocks, with a model whose answers must not change.

Everything is compared with plain token lists: logits and stored keys with those of a model that forgets
nothing, the need for blocks with a count by hand, the log's replay with the tables themselves.
"""

from functools import lru_cache

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvlab.caches import CacheOverflow, GrowingCache, NoCache, PagedCache, PagedStep, Pages
from kvlab.caches.paged import blocks_needed
from kvlab.model.config import Config
from kvlab.paging import Log, OutOfBlocks
from tests.models import random_model
from tests.paging.cases import state

NUM_BLOCKS, SIZE = 12, 4
TINY = Config(
    vocab_size=11,
    hidden_size=10,
    num_layers=2,
    num_heads=6,
    num_kv_heads=3,
    head_dim=4,
    mlp_size=7,
    max_positions=99,  # more than all blocks hold
)
MODEL = random_model(TINY)
TOLERANCE = 1e-10

which, few, seeds = st.integers(0, 99), st.integers(1, 9), st.integers(0, 10**6)
new_tokens = st.lists(st.integers(0, 5), min_size=8, max_size=8)  # of as many sequences as there can be


@lru_cache(maxsize=4096)
def logits_of(tokens):
    return MODEL(torch.tensor(tokens), NoCache(TINY))


@lru_cache(maxsize=4096)
def kept_of(tokens):
    """Keys and values of these tokens in every layer."""
    cache = GrowingCache(TINY)
    MODEL(torch.tensor(tokens), cache)
    return cache._kv


def true_need(pool, steps):
    """Free blocks that the steps take, one table after the other, counted on paper."""
    owners, need = [pool.count(block) for block in range(pool.num_blocks)], 0
    for table, n in steps:
        if n and table.length % SIZE:
            block = table.blocks[table.length // SIZE]
            if owners[block] > 1 or pool.cached(block):
                owners[block] -= 1
                need += 1
        need += max(0, -(-(table.length + n) // SIZE) - len(table.blocks))
    return need


class Sequences(RuleBasedStateMachine):
    """Any number of sequences, and prefixes whose blocks somebody keeps."""

    steps = 0  # of all runs together

    def __init__(self):
        super().__init__()
        self.pages = Pages(TINY, NUM_BLOCKS, SIZE)
        # The memory is there before the first token, and full of NaN: whoever reads a free slot is found out.
        shape = NUM_BLOCKS, SIZE, TINY.num_kv_heads, TINY.head_dim
        memory = torch.full((TINY.num_layers, 2, *shape), torch.nan, dtype=torch.float64)
        self.pages.layers = [tuple(layer) for layer in memory]
        self.pool, self.log = self.pages.pool, Log.of(self.pages.pool)
        self.caches, self.texts = [], []  # side by side: a cache and the tokens it should hold
        self.prefixes = []  # blocks that are kept, and the tokens in them

    def draw(self, n, seed):
        return torch.randint(TINY.vocab_size, (n,), generator=torch.Generator().manual_seed(seed)).tolist()

    def add(self, cache, tokens):
        self.caches.append(cache)
        self.texts.append(tokens)

    def everything(self):
        tables = [cache.table for cache in self.caches]
        stored = [x.nan_to_num(1e9) for layer in self.pages.layers for x in layer]
        return state(self.pool, tables), [cache.length for cache in self.caches], stored

    def same(self, before):
        now = self.everything()
        assert now[:2] == before[:2]
        assert all(torch.equal(x, y) for x, y in zip(before[2], now[2], strict=True))

    def right(self, i, got):
        expected = logits_of(tuple(self.texts[i]))[-len(got) :]
        assert (got - expected).abs().max() < TOLERANCE

    @initialize(n=st.integers(1, 20), seed=seeds, part=st.floats(0, 1))
    def the_first_two(self, n, seed, part):
        """And a prefix of both, as by chance it rarely happens."""
        self.begin()
        self.append(0, n, seed)
        self.fork(0)
        self.keep(0, part)

    @precondition(lambda self: len(self.caches) < 8)
    @rule()
    def begin(self):
        self.add(PagedCache(TINY, pages=self.pages), [])

    @precondition(lambda self: self.caches)
    @rule(i=which, n=few, seed=seeds)
    def append(self, i, n, seed):
        i %= len(self.caches)
        cache, new = self.caches[i], self.draw(n, seed)
        fits = true_need(self.pool, [(cache.table, n)]) <= self.pool.num_free
        fits &= cache.length + n <= NUM_BLOCKS * SIZE
        before = self.everything()
        try:
            got = MODEL(torch.tensor(new), cache)
        except CacheOverflow:
            assert not fits
            self.same(before)
            return
        assert fits
        self.texts[i] = self.texts[i] + new
        self.right(i, got)

    @precondition(lambda self: self.caches)
    @rule(
        lens=st.lists(st.integers(0, 5), min_size=8, max_size=8).filter(any), order=st.randoms(), seed=seeds
    )
    def step(self, lens, order, seed):
        """Some of the sequences in any order, some without a new token."""
        chosen = order.sample(range(len(self.caches)), order.randint(1, len(self.caches)))
        lens = lens[: len(chosen)]
        if not any(lens):
            lens[0] = 1
        tables = [self.caches[i].table for i in chosen]
        steps, before, free = list(zip(tables, lens, strict=True)), self.everything(), self.pool.num_free
        need = true_need(self.pool, steps)
        assert blocks_needed(self.pool, steps) == need
        try:
            view = PagedStep(self.pages, tables, lens)
        except OutOfBlocks:
            assert need > free
            self.same(before)
            return
        assert need <= free and need == free - self.pool.num_free
        new = torch.tensor(self.draw(sum(lens), seed))
        got = MODEL(new, view)
        for i, mine, logits in zip(chosen, new.split(lens), got.split(lens), strict=True):
            self.texts[i] = self.texts[i] + mine.tolist()
            if len(mine):
                self.right(i, logits)

    @precondition(lambda self: self.caches)
    @rule(i=which, n=few)
    def half_a_step(self, i, n):
        """The first layer stores nonsense, then the step ends in an error: nothing of it may count."""
        k = torch.full((n, TINY.num_kv_heads, TINY.head_dim), 7.0, dtype=torch.float64)
        try:
            self.caches[i % len(self.caches)].attend(0, k.repeat(1, 2, 1), k, k)
        except CacheOverflow:
            return

    @precondition(lambda self: 0 < len(self.caches) < 8)
    @rule(i=which)
    def fork(self, i):
        i %= len(self.caches)
        free = self.pool.num_free
        self.add(self.caches[i].fork(), list(self.texts[i]))
        assert self.pool.num_free == free

    @precondition(lambda self: self.caches)
    @rule(i=which, part=st.floats(0, 1))
    def truncate(self, i, part):
        i %= len(self.caches)
        n = round(part * self.caches[i].length)
        self.caches[i].truncate(n)
        self.texts[i] = self.texts[i][:n]

    @precondition(lambda self: self.caches)
    @rule(i=which)
    def release(self, i):
        i %= len(self.caches)
        self.caches.pop(i).release()
        del self.texts[i]

    @precondition(lambda self: any(self.texts))
    @rule(i=which, part=st.floats(0, 1))
    def keep(self, i, part):
        """The first blocks of a sequence, the last of them perhaps not full."""
        i %= len(self.caches)
        used = -(-self.caches[i].length // SIZE)
        blocks = self.caches[i].table.blocks[: round(part * used)]
        for block in blocks:
            self.pool.keep(block)
        self.prefixes.append((blocks, self.texts[i][: len(blocks) * SIZE]))

    @precondition(lambda self: self.prefixes and len(self.caches) < 8)
    @rule(i=which)
    def reuse(self, i):
        """A new sequence that begins with a kept prefix."""
        blocks, tokens = self.prefixes[i % len(self.prefixes)]
        cache = PagedCache(TINY, pages=self.pages)
        for block in blocks:
            self.pool.share(block)
            cache.table.blocks.append(block)
            self.log.note(cache.table, "shared", block)
        cache.table.length = len(tokens)
        self.log.note(cache.table, "length", len(tokens))
        self.add(cache, list(tokens))

    @precondition(lambda self: self.prefixes)
    @rule(i=which)
    def drop(self, i):
        blocks, _ = self.prefixes.pop(i % len(self.prefixes))
        for block in blocks:
            if not any(block in others for others, _ in self.prefixes):
                self.pool.drop(block)

    @invariant()
    def the_books_are_right(self):
        type(self).steps += 1
        self.pool.check([cache.table for cache in self.caches])
        moment = self.log.at(len(self.log.events))
        assert moment.tables == {cache.table.name: cache.table.blocks for cache in self.caches}
        assert moment.lengths == {cache.table.name: cache.length for cache in self.caches}
        assert moment.counts() == {b: self.pool.count(b) for b in range(NUM_BLOCKS) if self.pool.count(b)}
        assert self.pages.nbytes == len({*moment.counts(), *self.kept()}) * self.pages.block_bytes

    @invariant()
    def everybodys_tokens_are_where_they_were(self):
        texts = [(cache.table.blocks, text) for cache, text in zip(self.caches, self.texts, strict=True)]
        for blocks, tokens in (pair for pair in texts + self.prefixes if pair[1]):
            for layer, pages in enumerate(self.pages.layers):
                for stored, expected in zip(pages, kept_of(tuple(tokens))[layer], strict=True):
                    got = stored[blocks].flatten(0, 1)[: len(tokens)]
                    assert ((got - expected).abs() < TOLERANCE).all()
        assert [cache.length for cache in self.caches] == [len(text) for text in self.texts]

    def kept(self):
        return {block for blocks, _ in self.prefixes for block in blocks}

    def teardown(self):
        """Whoever has room goes on by one token; in the end every block is free."""
        while self.prefixes:
            self.drop(0)
        while self.caches:
            self.append(len(self.caches) - 1, 1, 0)
            self.the_books_are_right()
            self.release(len(self.caches) - 1)
        self.pool.check([])
        assert self.pool.num_free == NUM_BLOCKS
