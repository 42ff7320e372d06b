"""Any order of operations on the second tier: it serves what was computed for a text, or nothing."""

import random
from collections import Counter

import pytest
import torch

from tests.caches.tiers import BLOCK, SIZE, Stepped, computed, flip, rows, scribble, some_pages, text

NUM_BLOCKS, HOST_BLOCKS = 12, 7
NAMES = [None, None, None, "x", ("salt", "x")]


class Machine:
    """There is no thread: blocks are carried between operations, none to many, so that all orders come up.

    faults: bits turn in the tier's memory, and its link breaks or alters what it carries. Without any, a load
    brings all that was promised.
    """

    def __init__(self, seed, faults, seen):
        self.draw, self.faults, self.seen = random.Random(seed), faults, seen
        self.pages = some_pages(NUM_BLOCKS)
        self.tier = Stepped(self.pages, HOST_BLOCKS, queue=self.draw.randint(1, 5))
        self.tier.spoil = self.spoil
        self.texts, self.offered, self.sent = [], set(), 0
        self.loads = []  # (load, tokens, namespace, start, blocks promised)

    def run(self, steps):
        for _ in range(steps):
            self.draw.choice([self.offer, self.offer, self.fetch, self.fetch, self.rot])()
            for _ in range(self.draw.choice([0, 0, 1, 2, 9])):
                if self.tier._jobs:
                    self.tier.step()
                    self.books()
            self.serve()
        self.tier.wait()
        self.serve()
        assert not self.loads and not self.tier.index.owned
        self.tier.close()

    def tokens(self):
        return text(*(self.draw.randrange(2) for _ in range(self.draw.randint(1, 4))))

    def offer(self):
        """What was computed; its blocks hold something else right after."""
        tokens, name = self.tokens(), self.draw.choice(NAMES)
        table = computed(self.pages, tokens, name)
        blocks = table.blocks[: self.draw.randint(1, 4)]
        homes = self.tier.index.match(tokens, name).blocks[: len(blocks)]
        here = sum(home in self.tier._sums or home in self.tier._outgoing for home in homes)
        skipped = self.tier.skipped
        sent = self.tier.offer(tokens, blocks, name)
        skipped = self.tier.skipped - skipped
        assert sent + skipped == len(blocks) - here
        scribble(self.pages, table)
        self.sent += sent
        self.texts.append((tokens, name))
        self.offered |= {(name, *tokens[: (place + 1) * SIZE]) for place in range(len(blocks))}
        self.seen.update(sent=sent, skipped=skipped)
        self.books()

    def fetch(self):
        """What was offered once, and how it might go on."""
        if not self.texts:
            return
        tokens, name = self.draw.choice(self.texts)
        tokens, start = tokens + self.tokens(), SIZE * self.draw.choice([0, 0, 1, 2])
        asked = tokens, name, start, self.draw.choice([None, None, 15, 8, 6])
        promised = self.tier.find(*asked)
        self.loads.append((self.tier.fetch(*asked), tokens, name, start, promised // SIZE))
        assert promised == 0 or (name, *tokens[: start + promised]) in self.offered
        self.books()

    def rot(self):
        if self.faults and self.tier.rows is not None:
            flip(self.tier.rows[self.draw.randrange(HOST_BLOCKS)], self.draw.randrange(8 * BLOCK))

    def spoil(self, source, target):
        fault = self.faults and self.draw.randrange(30)
        if fault == 1:
            raise OSError("broken")
        if fault == 2:
            flip(target, self.draw.randrange(8 * BLOCK))

    def serve(self):
        """What has arrived is right."""
        while self.loads and self.loads[0][0].done:
            load, tokens, name, start, promised = self.loads.pop(0)
            n = len(load.blocks)
            assert n == promised or (self.faults and n < promised)
            if n:
                wanted = rows(self.pages, tokens[: start + n * SIZE], name)[start // SIZE :]
                assert torch.equal(torch.stack(load.blocks), wanted)
            self.seen.update(served=n, lost=promised - n)

    def books(self):
        tier = self.tier
        tier.check()
        assert self.faults or (tier.failed, tier.corrupt) == (0, 0)
        out = tier.stored + len(tier._outgoing)
        assert out <= self.sent <= out + tier.failed
        assert self.pages.pool.num_free == NUM_BLOCKS


def run(seeds, steps, faults):
    seen = Counter()
    for seed in range(seeds):
        Machine(seed, faults, seen).run(steps)
    return seen


@pytest.mark.parametrize("faults", [False, True])
def test_some_hundred_operations(faults):
    seen = run(12, 60, faults)
    assert seen["served"] > 60 and seen["skipped"] > 30 and (seen["lost"] > 30 or not faults), seen


@pytest.mark.slow
@pytest.mark.parametrize("faults", [False, True])
def test_twenty_thousand_operations(faults):
    assert run(400, 50, faults)["served"] > 3000
