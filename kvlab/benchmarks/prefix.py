"""Prefix caches: what finding, storing, letting go and evicting takes a request, without any tensor.

Requests begin with one of eight system prompts, or go on with an earlier conversation. What each of them
finds is first compared with a search that knows nothing of trees.
"""

import time
from itertools import accumulate
from random import Random

from kvlab.paging import BlockHashes, BlockPool, RadixTree, Replay

REQUESTS, RUNNING, SLOTS, REPEATS = 10_000, 64, 2**18, 3
SYSTEMS, SHORTEST, LONGEST = 8, 150, 1500  # system prompts, and their tokens
FOLLOW_UPS, REMEMBERED = 0.3, 500  # part of the requests, and the conversations that may go on
TURN, ANSWER, SPREAD = 161, 338, 0.8  # mean tokens, and the spread of their logarithms
VOCABULARY = 32_000


def prefix():
    """Rows of the benchmark: microseconds of processor time a request, and the parts of it."""
    texts, rows = _texts(), []
    for name, kind, size in (
        ("radix tree, blocks of 16", RadixTree, 16),
        ("radix tree, blocks of 1", RadixTree, 1),
        ("block hashes, blocks of 16", BlockHashes, 16),
    ):
        checked = _replayed(Checked, kind, size, texts)
        timed = [_replayed(Timed, kind, size, texts).seconds for _ in range(REPEATS)]
        seconds = min(timed, key=lambda parts: sum(parts.values()))
        parts = ", ".join(f"{what} {1e6 * part / len(texts):.0f}" for what, part in seconds.items())
        share = sum(checked.found) / checked.asked
        conditions = f"{parts}; {share:.1%} of the prompts' tokens found"
        rows.append((name, f"{1e6 * sum(seconds.values()) / len(texts):.0f}", "µs a request", conditions))
    return rows


def _texts():
    """[(prompt, answer)] of token ids."""
    random = Random(0)

    def tokens(n):
        return [random.randrange(VOCABULARY) for _ in range(n)]

    def length(mean):
        return max(1, round(mean * random.lognormvariate(-(SPREAD**2) / 2, SPREAD)))

    steps = SYSTEMS - 1
    systems = [tokens(SHORTEST + (LONGEST - SHORTEST) * step // steps) for step in range(SYSTEMS)]
    random.shuffle(systems)
    weights = [1 / rank for rank in range(1, SYSTEMS + 1)]
    texts, conversations = [], []
    for _ in range(REQUESTS):
        if conversations and random.random() < FOLLOW_UPS:
            start = conversations.pop(random.randrange(len(conversations)))
        else:
            start = random.choices(systems, weights)[0]
        prompt, answer = start + tokens(length(TURN)), tokens(length(ANSWER))
        texts.append((prompt, answer))
        conversations = [*conversations, prompt + answer][-REMEMBERED:]
    return texts


def _replayed(replay, kind, block_size, texts):
    done = replay(BlockPool(SLOTS // block_size, block_size), kind, RUNNING)
    done.run(texts)
    done.cache.check()
    done.pool.check([done.cache])
    return done


class Timed(Replay):
    """Measures the cache's work, and the tables' that belongs to it."""

    def __init__(self, *given):
        super().__init__(*given)
        self.seconds = dict.fromkeys(("find", "store", "release", "evict"), 0.0)

    def find(self, prompt):
        return self._timed("find", super().find, prompt)

    def store(self, *given):
        self._timed("store", super().store, *given)

    def release(self, table):
        self._timed("release", super().release, table)

    def evict(self, n):
        return self._timed("evict", super().evict, n)

    def _timed(self, part, do, *given):
        start = time.thread_time()
        result = do(*given)
        self.seconds[part] += time.thread_time() - start
        return result


class Checked(Replay):
    """Knows of each block which beginning of a text was last stored in it, and looks for every beginning."""

    def __init__(self, *given):
        super().__init__(*given)
        self.blocks, self.contents = {}, {}  # beginning -> block, and back
        self.beginnings = {}  # table -> those of its text

    def find(self, prompt):
        beginnings, expected = self._beginnings(prompt), 0
        for beginning in beginnings[1 : 1 + (len(prompt) - 1) // self.pool.block_size]:
            block = self.blocks.get(beginning)
            if block is None or not self.pool.cached(block):
                break
            expected += self.pool.block_size
        table = super().find(prompt)
        if table.length != expected:
            raise AssertionError(f"{table.length} tokens were found, and {expected} are stored")
        self.beginnings[table] = beginnings
        return table

    def store(self, table, tokens, priority):
        known = table.prefix.tokens // self.pool.block_size
        super().store(table, tokens, priority)
        beginnings = self.beginnings[table] = self._beginnings(tokens, self.beginnings[table])
        for block, beginning in list(zip(table.blocks, beginnings[1:], strict=False))[known:]:
            old = self.contents.get(block)
            if self.blocks.get(old) == block:
                del self.blocks[old]
            self.blocks[beginning], self.contents[block] = block, beginning

    def release(self, table):
        del self.beginnings[table]
        super().release(table)

    def _beginnings(self, tokens, known=(0,)):
        """Of each beginning of whole blocks, from the empty one on, a number: the hash of the one before it
        and of its last block. known: the first of them.
        """
        size = self.pool.block_size
        rest = iter(tokens[size * (len(known) - 1) :])
        blocks = zip(*[rest] * size, strict=False)
        return [*known[:-1], *accumulate(blocks, lambda *pair: hash(pair), initial=known[-1])]
