"""The second tier's thread: how it ends, what it leaves, how fast its link is; and that all comes back."""

import random
import threading
import time

import pytest

from kvlab.caches.host import HostTier
from kvlab.paging import BlockTable
from tests.caches.tiers import (
    BLOCK,
    SIZE,
    Gated,
    arrived,
    brought,
    computed,
    flip,
    scribble,
    some_pages,
    stored,
    text,
)

ABC = text(1, 2, 3)


def test_its_thread_ends_with_it():
    with HostTier(some_pages(), 8) as tier:
        [thread] = [each for each in threading.enumerate() if "host tier" in each.name]
        assert thread.daemon, "or a tier that nobody closes would keep Python from ending"
        stored(tier, ABC)
    assert not thread.is_alive()
    tier.close()
    tier.check()


@pytest.mark.parametrize("stands_at", [0, 1])
def test_closed_in_the_middle_of_a_load(stands_at):
    """It is done, with what has arrived; others that waited, with nothing; nobody waits for ever."""
    with Gated(some_pages(), 8) as tier:
        tier.let.release(3 + stands_at)
        stored(tier, ABC)
        load, other = tier.fetch(ABC), tier.fetch(ABC)
        for _ in range(3 + stands_at + 1):
            tier.reached()
        assert not load.wait(0.001) and not load.done and not tier.wait(0.001)
    assert load.wait(0) and other.done and tier.wait(0)
    assert (len(load.blocks), other.blocks) == (stands_at + 1, []), "it ends the block it is at"
    assert arrived(load, ABC) == stands_at + 1


def test_closed_in_the_middle_of_a_store():
    with Gated(some_pages(), 8) as tier:
        table = computed(tier.pages, ABC)
        tier.offer(ABC, table.blocks)
        tier.reached()
    tier.check()
    assert (tier.stored, tier.failed, tier.find(ABC)) == (1, 0, 4)
    assert tier.offer(ABC, table.blocks) == 0 and tier.skipped == 2, "no block goes out any more"
    load = tier.fetch(ABC)
    assert load.done and load.blocks == [], "nor comes in"


class Bug(BaseException):
    """What no link should raise."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("way", ["out", "in"])
def test_a_thread_that_dies_leaves_nobody_waiting(way):
    class Buggy(Gated):
        broken = False

        def carry(self, source, target):
            super().carry(source, target)
            if self.broken:
                raise Bug

    with Buggy(some_pages(), 8) as tier:
        tier.let.release(3)
        stored(tier, ABC)
        table, loads = computed(tier.pages, text(1, 7)), []
        if way == "in":
            loads = [tier.fetch(ABC), tier.fetch(ABC)]
        tier.offer(text(1, 7), table.blocks)
        if way == "out":
            for _ in range(4):
                tier.reached()
            loads = [tier.fetch(ABC)]
        tier.broken = True
        tier.let.release(99)
        assert tier.wait(10) and all(load.wait(10) and load.blocks == [] for load in loads)
        assert tier.fetch(ABC).done and tier.offer(text(1, 7), table.blocks) == 0
        tier.check()


def test_a_slow_link_either_way(monkeypatch):
    """Seconds of each block on the link, as the thread waits for them."""
    with HostTier(some_pages(), 8, link_bytes_per_second=4 * BLOCK) as tier:
        waits = []
        monkeypatch.setattr(tier._closing, "wait", waits.append)
        stored(tier, ABC)
        assert waits == [0.25] * 3
        assert brought(tier, ABC) == 3 and waits == [0.25] * 6
    with HostTier(some_pages(), 8) as tier:
        monkeypatch.setattr(tier._closing, "wait", lambda seconds: pytest.fail("it does not wait"))
        assert stored(tier, ABC) == brought(tier, ABC) == 3


def test_a_slow_link_takes_its_time_and_is_interrupted():
    with HostTier(some_pages(), 8, link_bytes_per_second=BLOCK / 0.02) as tier:
        began = time.perf_counter()
        stored(tier, ABC)
        assert time.perf_counter() - began >= 3 * 0.02
    with HostTier(some_pages(), 8, link_bytes_per_second=1e-9) as tier:
        tier.offer(ABC, computed(tier.pages, ABC).blocks)
        tier.offer(text(7), computed(tier.pages, text(7)).blocks)
    assert tier.stored <= 1


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_back_is_what_was_offered(seed):
    """With the thread at work: texts that begin alike, blocks reused at once, room for half of it, and bits
    that turn at any time."""
    draw, loads, found = random.Random(seed), [], 0
    with HostTier(some_pages(16), 10, queue=6) as tier:
        for _ in range(60):
            tokens = text(*(draw.randrange(2) for _ in range(draw.randint(1, 4))))
            name = draw.choice([None, "x"])
            table = computed(tier.pages, tokens, name)
            tier.offer(tokens, table.blocks, name)
            scribble(tier.pages, table)
            start = draw.randrange(2) * SIZE
            loads.append((tier.fetch(tokens, name, start), tokens, name, start))
            if draw.random() < 0.1:
                flip(tier.rows[draw.randrange(10)], draw.randrange(8 * BLOCK))
            while loads and (loads[0][0].done or len(loads) > 5):
                load, *asked = loads.pop(0)
                assert load.wait(10)
                found += arrived(load, *asked)
            tier.check()
    for load, *asked in loads:
        found += arrived(load, *asked)
    assert found > 20
    assert BlockTable(tier.pages.pool).pool.num_held == 0
