"""Random operations on tables that begin with what a prefix cache has, and the memory of their blocks.

In a slot stands what keys and values depend on, the namespace and all tokens up to there: whoever reads a
block can say whether it holds what it should.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvlab.paging import BlockPool, PrefixTable
from kvlab.paging.radix import RadixTree
from tests.paging.prefix_cases import everything_is_right
from tests.paging.prefix_machine import NUM_BLOCKS, PrefixMachine, bits, namespaces, which


class TableMachine(RuleBasedStateMachine):
    make, size = RadixTree, 4
    spelled = PrefixMachine.spelled

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS, self.size)
        self.cache = self.make(self.pool)
        self.memory = [None] * (NUM_BLOCKS * self.size)
        self.texts = []  # (table, namespace with its type, tokens)

    def stored(self, home, tokens):
        """How many tokens at the beginning of a text are in blocks that the cache keeps."""
        kept = {self.memory[(b + 1) * self.size - 1] for b in range(NUM_BLOCKS) if self.pool.cached(b)}
        n = 0
        while n + self.size <= len(tokens) and (home, bytes(tokens[: n + self.size])) in kept:
            n += self.size
        return n

    @precondition(lambda self: len(self.texts) < 5)
    @rule(namespace=namespaces, bits=bits, tail=which, whole=st.booleans())
    def open(self, namespace, bits, tail, whole):
        home = type(namespace), namespace
        tokens = self.spelled([*bits, 0])[: len(bits) * self.size + tail % self.size]
        most = None if whole else len(tokens) - 1
        table = PrefixTable(self.cache, tokens, namespace, most)
        found = self.stored(home, tokens if whole else tokens[:-1])
        assert (table.found, table.length) == (found, found)
        self.texts.append((table, home, tokens[:found]))
        self.grow(-1, bits[found // self.size :], len(tokens) - found - 1)

    @precondition(lambda self: self.texts)
    @rule(i=which, bits=bits, n=which)
    def grow(self, i, bits, n):
        table, home, tokens = self.texts[i % len(self.texts)]
        new = self.spelled(bits, len(tokens), 1 + n % (3 * self.size))
        self.cache.evict(max(0, table.needed(len(new)) - self.pool.num_free))
        if table.needed(len(new)) > self.pool.num_free:
            return
        for old, copy in table.reserve(len(new)):
            for at in range(self.size):
                self.memory[copy * self.size + at] = self.memory[old * self.size + at]
        for slot, token in zip(table.slots(len(new)), new, strict=True):
            assert self.pool.writable(slot // self.size)
            tokens.append(token)
            self.memory[slot] = home, bytes(tokens)
        table.advance(len(new))

    @precondition(lambda self: self.texts)
    @rule(i=which, priority=st.integers(0, 2))
    def store(self, i, priority):
        table, home, tokens = self.texts[i % len(self.texts)]
        table.store(tokens, priority)
        full = len(tokens) // self.size * self.size
        assert table.prefix.tokens == full == table.borrowed * self.size
        assert self.stored(home, tokens) == full

    @precondition(lambda self: 0 < len(self.texts) < 5)
    @rule(i=which)
    def fork(self, i):
        table, home, tokens = self.texts[i % len(self.texts)]
        self.texts.append((table.fork(), home, list(tokens)))

    @precondition(lambda self: self.texts)
    @rule(i=which, n=which)
    def truncate(self, i, n):
        table, _, tokens = self.texts[i % len(self.texts)]
        n %= len(tokens) + 1
        if n < table.prefix.tokens:
            with pytest.raises(ValueError, match="in a prefix cache"):
                table.truncate(n)
        else:
            table.truncate(n)
            del tokens[n:]

    @precondition(lambda self: self.texts)
    @rule(i=which)
    def release(self, i):
        table, *_ = self.texts.pop(i % len(self.texts))
        table.release()
        with pytest.raises(RuntimeError, match="was released"):
            table.release()

    @rule(n=st.integers(0, 6))
    def evict(self, n):
        free, kept = self.pool.num_free, self.pool.num_kept
        assert self.cache.evict(n) == self.pool.num_free - free == min(n, kept)

    @invariant()
    def the_books_are_right(self):
        tables = [table for table, *_ in self.texts]
        everything_is_right(self.cache, *tables)

    @invariant()
    def every_table_reads_its_own_tokens(self):
        for table, home, tokens in self.texts:
            assert table.length == len(tokens)
            for t in range(len(tokens)):
                slot = table.blocks[t // self.size] * self.size + t % self.size
                assert self.memory[slot] == (home, bytes(tokens[: t + 1]))

    def teardown(self):
        """In the end nobody has a block, and nothing is left of any text."""
        while self.texts:
            self.release(0)
            self.the_books_are_right()
        self.evict(NUM_BLOCKS)
        assert (self.pool.num_free, self.cache.num_blocks) == (NUM_BLOCKS, 0)
