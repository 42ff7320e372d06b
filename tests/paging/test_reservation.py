"""The buddy allocator, and the full server that compares reservations with pages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.paging.reservation import (
    POLICIES,
    BuddyAllocator,
    FirstFit,
    contiguous,
    conversations,
    lognormal,
    paged,
    power_of_two,
)

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 25)), min_size=40, max_size=60)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_runs_never_overlap_and_everything_comes_back(data):
    buddy, held = BuddyAllocator(64), {}
    for _ in range(data.draw(st.integers(1, 60))):
        if held and data.draw(st.booleans()):
            start = data.draw(st.sampled_from(sorted(held)))
            buddy.release(start)
            del held[start]
        else:
            n = data.draw(st.integers(1, 40))
            start = buddy.allocate(n)
            free = set(range(64)).difference(*(range(first, first + size) for first, size in held.items()))
            aligned = [first for first in range(0, 64, power_of_two(n))]
            fits = [first for first in aligned if set(range(first, first + power_of_two(n))) <= free]
            assert (start is None) == (not fits)
            if start is not None:
                assert start in fits
                held[start] = power_of_two(n)
        assert buddy.taken == held and buddy.num_free == 64 - sum(held.values())
    for start in held:
        buddy.release(start)
    assert buddy.allocate(64) == 0


def test_what_the_allocator_refuses():
    for slots in (0, 48, -8):
        with pytest.raises(ValueError, match=f"slots is {slots}"):
            BuddyAllocator(slots)
    buddy = BuddyAllocator(8)
    with pytest.raises(ValueError, match="at least one"):
        buddy.allocate(0)
    assert buddy.allocate(9) is None
    start = buddy.allocate(3)
    buddy.release(start)
    with pytest.raises(ValueError, match="no run starts at 0"):
        buddy.release(start)


def test_sizes():
    assert [power_of_two(n) for n in (1, 2, 3, 4, 5, 1000)] == [1, 2, 4, 4, 8, 1024]
    asked = {name: reserve(10, 5, 64) for name, reserve in POLICIES.items()}
    assert asked == {"maximum": 64, "power of two": 18, "oracle": 15}
    assert POLICIES["power of two"](10, 40, 64) == 64  # never more than there may be


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, policy=st.sampled_from([*POLICIES, "first fit", "blocks"]))
def test_a_full_server_is_all_accounted_for(lengths, policy):
    slots = 256
    if policy == "blocks":
        share = paged(lengths, slots, 64, 4)
    elif policy == "first fit":
        share = contiguous(lengths, slots, 64, "oracle", FirstFit)
        assert share.internal == 0
    else:
        share = contiguous(lengths, slots, 64, policy)
    parts = share.tokens, share.reserved, share.internal, share.external
    assert all(part >= 0 for part in parts) and sum(parts) == pytest.approx(1)
    assert 1 <= share.running <= slots
    alone = max(answer for _, answer in lengths)
    assert alone <= share.steps <= sum(answer for _, answer in lengths) + len(lengths) * 40
    if policy == "oracle":
        assert share.reserved <= 1 - share.tokens
    if policy == "blocks":
        assert share.internal * slots <= 3 * share.running + 1e-9  # less than a block each


def test_blocks_left_spare_are_not_given_to_newcomers():
    lengths = [(5, 20)] * 12
    greedy, careful = (paged(lengths, 64, 64, 4, spare=spare) for spare in (0, 6))
    assert greedy.preempted > careful.preempted == careful.recomputed == 0 < greedy.recomputed
    assert careful.running < greedy.running


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_first_fit_takes_the_first_gap(data):
    memory, free = FirstFit(40), set(range(40))
    for _ in range(data.draw(st.integers(1, 40))):
        if memory.taken and data.draw(st.booleans()):
            start = data.draw(st.sampled_from(sorted(memory.taken)))
            free |= set(range(start, start + memory.taken[start]))
            memory.release(start)
        else:
            n = data.draw(st.integers(1, 15))
            fits = [first for first in range(40 - n + 1) if set(range(first, first + n)) <= free]
            assert memory.allocate(n) == (fits[0] if fits else None)
            free -= set(range(fits[0], fits[0] + n)) if fits else set()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"a request of \(50, 10\) tokens does not fit into 32 slots"):
        contiguous([(50, 10)] * 3, 32, 64, "oracle")
    with pytest.raises(ValueError, match=r"a request of \(50, 10\) tokens does not fit into 32 slots"):
        paged([(50, 10)] * 3, 32, 64)
    with pytest.raises(ValueError, match="never full"):
        contiguous([(1, 1)], 1024, 64, "oracle")


def test_lengths_come_from_their_sources():
    real = conversations()
    assert len(real) == 257 and real[0] == (374, 44) and all(len(pair) == 2 for pair in real)
    drawn = lognormal(100, 300, 4000, seed=3)
    for column, mean in zip(zip(*drawn, strict=True), (100, 300), strict=True):
        assert sum(column) / len(column) == pytest.approx(mean, rel=0.1)
    assert drawn == lognormal(100, 300, 4000, seed=3) != lognormal(100, 300, 4000, seed=4)
