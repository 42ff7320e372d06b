"""Random operations on a prefix cache, beside a model without a tree: a dict of all beginnings of all texts.

The memory of the blocks is there too. In a slot stands what keys and values depend on, the namespace and all
tokens up to there: whoever finds a block can say whether it holds what was asked for.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvlab.paging import BlockPool, BlockTable
from kvlab.paging.radix import RadixTree
from tests.paging.prefix_cases import everything, refuses

NUM_BLOCKS = 14
NAMESPACES = [*[None] * 6, "x", ("adapter", "x"), 1, True, 1.0]

which, priorities = st.integers(0, 99), st.integers(-1, 2)
namespaces = st.sampled_from(NAMESPACES)
bits = st.lists(st.integers(0, 1), max_size=5)


@dataclass
class Entry:
    """A full block that is stored. ``used``: when a text with it was last matched or inserted."""

    block: int
    used: int = 0
    priority: int = -99
    rested: tuple = ()  # for hashes: when it was last let go of, later for the beginning than for the end


@dataclass
class Text:
    """A sequence. ``locks``: the prefixes it has locked, the last of them the one it is stored behind."""

    home: tuple
    tokens: list
    table: BlockTable
    locks: list = field(default_factory=list)


class PrefixMachine(RuleBasedStateMachine):
    make, size = RadixTree, 4
    steps = 0  # of all runs together

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS, self.size)
        self.cache = self.make(self.pool)
        self.entries = {}  # (namespace with its type, first tokens) -> Entry
        self.memory = [None] * (NUM_BLOCKS * self.size)
        self.texts, self.seen = [], []  # seen: (prefix, home, entries) found and not locked
        self.now = self.asked = self.found = self.evicted = 0
        self.grown = []  # (home, tokens): behind these something was inserted by who had them locked

    # ---- the model

    def spelled(self, bits, start=0, n=None):
        """Tokens from a place in a text on: nothing but the last one of a block is ever other than 0."""
        n = len(bits) * self.size if n is None else n
        ends = iter([*bits, *[0] * NUM_BLOCKS * self.size])
        return [next(ends) if t % self.size == self.size - 1 else 0 for t in range(start, start + n)]

    def keys(self, home, tokens):
        size = self.size
        return [(home, bytes(tokens[:end])) for end in range(size, len(tokens) + 1, size)]

    def longest(self, home, tokens):
        """The entries of a text, one by one as long as there are any."""
        found = []
        for key in self.keys(home, tokens):
            if key not in self.entries:
                break
            found.append(self.entries[key])
        return found

    def locked(self):
        """Keys of the entries that somebody uses."""
        return {
            key for text in self.texts for _, tokens in text.locks for key in self.keys(text.home, tokens)
        }

    def tables(self):
        return [text.table for text in self.texts]

    def use(self, entries, priority=0):
        self.now += 1
        for entry in entries:
            entry.used, entry.priority = self.now, max(entry.priority, priority)

    def rest(self, home, tokens):
        """Of this text nothing that is locked moves to the end of the queue (hashes only)."""
        self.now += 1
        locked = self.locked()
        for key in self.keys(home, tokens):
            if key in self.entries and key not in locked:
                self.entries[key].rested = self.now, -len(key[1])

    def to_evict(self, n):
        """The entries that have to go for n blocks, in this order."""
        left, locked, gone = dict(self.entries), self.locked(), []
        while n > 0 and left.keys() - locked:
            parents = {(home, tokens[: -self.size]) for home, tokens in left}
            if self.make is RadixTree:
                idle = left.keys() - locked - parents
                key = min(idle, key=lambda key: (left[key].priority, left[key].used))
            else:
                key = min(left.keys() - locked, key=lambda key: left[key].rested)
                assert key not in parents, "a beginning goes before its end"
            gone.append(key)
            n -= not self.pool.count(left.pop(key).block)
        return gone

    # ---- what a sequence does

    def match(self, home, tokens, most=None):
        """-> prefix, its entries."""
        before, found = everything(self.cache), self.longest(home, tokens)
        assert self.cache.peek(tokens, home[1]) == len(found) * self.size
        assert everything(self.cache) == before
        prefix = self.cache.match(tokens, home[1], most)
        found = found if most is None else found[: max(most, 0) // self.size]
        assert (prefix.tokens, prefix.blocks) == (len(found) * self.size, [each.block for each in found])
        self.use(found)
        self.asked += len(tokens)
        self.found += prefix.tokens
        return prefix, found

    def write(self, text, new):
        """Compute more tokens, where there is room, or something to evict -> whether there was."""
        table, n = text.table, len(new)
        if (short := table.needed(n) - self.pool.num_free) > 0:
            self.evict(short)
        if table.needed(n) > self.pool.num_free:
            return False
        for old, copy in table.reserve(n):
            for at in range(self.size):
                self.memory[copy * self.size + at] = self.memory[old * self.size + at]
        for slot, token in zip(table.slots(n), new, strict=True):
            assert self.pool.writable(slot // self.size)
            text.tokens.append(token)
            self.memory[slot] = text.home, bytes(text.tokens)
        table.advance(n)
        return True

    @precondition(lambda self: len(self.seen) < 4)
    @rule(namespace=namespaces, bits=bits, tail=which, most=st.none() | st.integers(-1, 40))
    def look(self, namespace, bits, tail, most):
        """And lock it later, or never."""
        home, tokens = (type(namespace), namespace), self.spelled([*bits, 0])
        tokens = tokens[: len(bits) * self.size + tail % self.size]
        prefix, found = self.match(home, tokens, most)
        self.grown = [] if not self.seen else self.grown
        self.seen.append((prefix, home, tokens[: prefix.tokens], found))

    @precondition(lambda self: self.seen and len(self.texts) < 7)
    @rule(i=which)
    def lock_what_was_seen(self, i):
        prefix, home, tokens, found = self.seen.pop(i % len(self.seen))
        users = [tuple(end) for text in self.texts if text.home == home for _, end in text.locks]
        if tokens and tuple(tokens) not in users:
            refuses(self.cache, ValueError, None, self.cache.unlock, prefix)
        now = self.longest(home, tokens)
        same = len(now) == len(found) and all(a is b for a, b in zip(now, found, strict=True))
        text = Text(home, list(tokens), BlockTable(self.pool), [(prefix, tokens)])
        before = everything(self.cache)
        try:
            self.cache.lock(prefix)
        except ValueError:
            assert not same or (self.make is RadixTree and (home, tokens) in self.grown)
            assert everything(self.cache) == before
            return
        assert same
        text.table.borrow(prefix.blocks)
        self.texts.append(text)

    @precondition(lambda self: len(self.texts) < 7)
    @rule(namespace=namespaces, bits=bits, tail=which, at_once=st.booleans())
    def begin(self, namespace, bits, tail, at_once):
        """A prompt of which the last token is always computed; it waits where there is no room."""
        home, tokens = (type(namespace), namespace), self.spelled([*bits, 0])
        tokens = tokens[: len(bits) * self.size + tail % self.size]
        prefix, _ = self.match(home, tokens, len(tokens) - 1)
        self.cache.lock(prefix)
        text = Text(home, tokens[: prefix.tokens], BlockTable(self.pool), [(prefix, tokens[: prefix.tokens])])
        text.table.borrow(prefix.blocks)
        self.texts.append(text)
        if self.write(text, tokens[prefix.tokens :]) and at_once:
            self.hand_in(len(self.texts) - 1, 0)

    @precondition(lambda self: len(self.texts) < 7)
    @rule(namespace=namespaces, bits=bits)
    def begin_alone(self, namespace, bits):
        """A sequence that computes everything itself, and locks nothing."""
        text = Text((type(namespace), namespace), [], BlockTable(self.pool))
        self.texts.append(text)
        self.write(text, self.spelled(bits))

    @precondition(lambda self: self.texts)
    @rule(i=which, n=which, bits=bits, at_once=st.booleans())
    def go_on(self, i, n, bits, at_once):
        text = self.texts[i % len(self.texts)]
        new = self.spelled(bits, len(text.tokens), 1 + n % (2 * self.size))
        if self.write(text, new) and at_once:
            self.hand_in(i, n % 3)

    @precondition(lambda self: self.texts)
    @rule(i=which, priority=priorities)
    def hand_in(self, i, priority):
        """Its full blocks go to the cache."""
        text = self.texts[i % len(self.texts)]
        home, full = text.home, len(text.tokens) // self.size
        tokens, blocks = text.tokens[: full * self.size], text.table.blocks[:full]
        after, old = text.locks[-1] if text.locks else (None, [])
        known = len(old) // self.size
        self.grown.append((home, old))
        prefix = self.cache.insert(text.tokens[len(old) :], blocks[known:], home[1], after, priority)
        for key, block in zip(self.keys(home, tokens), blocks, strict=True):
            self.entries.setdefault(key, Entry(block))
        entries = self.longest(home, tokens)
        assert (prefix.tokens, prefix.blocks) == (len(tokens), [each.block for each in entries[known:]])
        self.use(entries, priority)
        if text.locks:
            text.locks[-1] = prefix, tokens
            text.table.borrow(prefix.blocks)
        else:
            self.rest(home, tokens)

    @precondition(lambda self: 0 < len(self.texts) < 7)
    @rule(i=which)
    def fork(self, i):
        text = self.texts[i % len(self.texts)]
        free = self.pool.num_free
        self.texts.append(Text(text.home, list(text.tokens), text.table.fork(), list(text.locks)))
        for prefix, _ in text.locks:
            self.cache.lock(prefix)
        assert self.pool.num_free == free

    @precondition(lambda self: self.texts)
    @rule(i=which, n=which)
    def truncate(self, i, n):
        """Where it cuts into what is stored, the shorter prefix is locked, too."""
        text = self.texts[i % len(self.texts)]
        n %= len(text.tokens) + 1
        text.table.truncate(n)
        del text.tokens[n:]
        if text.locks and n < len(text.locks[-1][1]):
            prefix, _ = self.match(text.home, text.tokens)
            self.cache.lock(prefix)
            text.locks.append((prefix, text.tokens[: prefix.tokens]))

    @precondition(lambda self: len(self.texts) > 2)
    @rule(i=which, unlock_first=st.booleans())
    def release(self, i, unlock_first):
        text = self.texts[i % len(self.texts)]
        if not unlock_first:
            text.table.release()
        while text.locks:
            prefix, tokens = text.locks.pop()
            self.cache.unlock(prefix)
            self.rest(text.home, tokens)
        if unlock_first:
            text.table.release()
        self.texts.remove(text)

    @precondition(lambda self: len(self.entries) > 3)
    @rule(n=st.integers(0, 6))
    def evict(self, n):
        locked, gone = self.locked(), self.to_evict(n)
        could = sum(not self.pool.count(self.entries[key].block) for key in self.entries.keys() - locked)
        free = self.pool.num_free
        freed = self.cache.evict(n)
        assert freed == self.pool.num_free - free == min(n, could)
        assert not locked & set(gone)
        for key in gone:
            del self.entries[key]
        self.evicted += len(gone)

    @precondition(lambda self: self.entries)
    @rule(i=which)
    def contradict(self, i):
        """Whatever cannot be stored changes nothing."""
        home, tokens = sorted(self.entries, key=repr)[i % len(self.entries)]
        blocks, other, insert = (
            [each.block for each in self.longest(home, tokens)],
            [9] * self.size,
            self.cache.insert,
        )
        refuses(self.cache, ValueError, None, insert, other, blocks[-1:], "elsewhere")
        refuses(self.cache, ValueError, None, insert, [*tokens, *other], [*blocks, blocks[0]], home[1])
        refuses(self.cache, ValueError, "do not fill", insert, tokens[1:], blocks, home[1])
        refuses(self.cache, ValueError, None, insert, [*tokens[:-1], 2**31], blocks, home[1])
        for block in range(NUM_BLOCKS):
            if not self.pool.count(block) and not self.pool.cached(block):
                refuses(self.cache, ValueError, "has no owner", insert, other, [block])
            elif not self.pool.cached(block):
                refuses(self.cache, ValueError, "twice", insert, other * 2, [block] * 2)

    # ---- after every operation

    @invariant()
    def the_books_are_right(self):
        type(self).steps += 1
        pool, cache = self.pool, self.cache
        cache.check()
        pool.check([cache, *self.tables()])
        assert pool.num_free + pool.num_held + pool.num_kept == NUM_BLOCKS
        blocks = {entry.block for entry in self.entries.values()}
        assert {block for block in range(NUM_BLOCKS) if pool.cached(block)} == blocks
        assert cache.num_blocks == len(self.entries) == len(blocks)
        assert sorted(cache.owned) == sorted(self.entries[key].block for key in self.locked())
        counted = cache.tokens_asked, cache.tokens_found, cache.blocks_evicted
        assert counted == (self.asked, self.found, self.evicted)
        if self.make is RadixTree:
            homes = {home for home, _ in self.entries} | {text.home for text in self.texts if text.locks}
            assert cache.roots.keys() == homes

    @invariant()
    def what_is_stored_is_found(self):
        for home, tokens in self.entries:
            assert self.cache.peek(tokens, home[1]) == len(tokens)
            longer = [*tokens, *self.spelled([1])]
            assert self.cache.peek(longer, home[1]) == len(self.longest(home, longer)) * self.size

    @invariant()
    def every_block_holds_what_it_should(self):
        texts = [(text.home, bytes(text.tokens), text.table.blocks) for text in self.texts]
        texts += [
            (home, tokens, [each.block for each in self.longest(home, tokens)])
            for home, tokens in self.entries
        ]
        for home, tokens, blocks in texts:
            for t in range(len(tokens)):
                slot = blocks[t // self.size] * self.size + t % self.size
                assert self.memory[slot] == (home, tokens[: t + 1])
        assert [text.table.length for text in self.texts] == [len(text.tokens) for text in self.texts]

    def teardown(self):
        """In the end nobody has a block, and nothing is left of any namespace."""
        while self.texts:
            self.release(0, True)
        self.the_books_are_right()
        self.evict(NUM_BLOCKS)
        self.the_books_are_right()
        assert (self.pool.num_free, self.cache.num_blocks, self.entries) == (NUM_BLOCKS, 0, {})
