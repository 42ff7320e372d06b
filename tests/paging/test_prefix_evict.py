"""What goes when a prefix cache has to give blocks back, and what stays."""

import numpy as np
import pytest

from kvlab.paging import BlockTable
from tests.paging.prefix_cases import BOTH, a_cache, everything_is_right, locked, refuses, store, text


@BOTH
def test_evict_gives_what_there_is(make):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2, 3, 4, 5))
    store(cache, text(6))
    prefix = locked(cache, text(1, 2))
    assert [cache.evict(n) for n in (0, 1, 2, 99, 1)] == [0, 1, 2, 1, 0]
    assert (cache.num_blocks, cache.blocks_evicted, cache.pool.num_free) == (2, 4, 10)
    assert cache.match(text(1, 2)).blocks == blocks[:2]
    everything_is_right(cache)
    cache.unlock(prefix)
    assert cache.evict(10**30) == 2
    refuses(cache, ValueError, "-1 blocks cannot be evicted: give 0 or more", cache.evict, -1)


@BOTH
@pytest.mark.parametrize("n", [1.0, "1", None, float("nan")])
def test_evict_takes_a_whole_number(make, n):
    cache = a_cache(make)
    store(cache, text(1, 2))
    refuses(cache, TypeError, None, cache.evict, n)
    assert cache.evict(np.int64(1)) == 1


@BOTH
@pytest.mark.parametrize(("n", "left"), [(1, 4), (2, 3), (4, 1), (5, 0)])
def test_a_text_loses_its_end_and_keeps_its_beginning(make, n, left):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2, 3, 4, 5))
    assert cache.evict(n) == n
    assert cache.match(text(1, 2, 3, 4, 5)).blocks == blocks[:left]
    assert sorted(cache.pool._free[-n:]) == sorted(blocks[left:])
    everything_is_right(cache)


@BOTH
def test_who_owns_an_evicted_block_keeps_it_and_eviction_goes_on(make):
    cache = a_cache(make)
    table = BlockTable(cache.pool)
    table.reserve(12)
    table.advance(12)
    cache.insert(text(1, 2, 3), table.blocks)
    table.truncate(8)
    assert (cache.evict(2), cache.num_blocks, cache.blocks_evicted) == (1, 0, 3)
    assert [cache.pool.writable(block) for block in table.blocks] == [True, True]
    everything_is_right(cache, table)
    table.release()
    assert cache.pool.num_free == 12


@BOTH
def test_a_parent_goes_after_its_last_child(make):
    cache = a_cache(make)
    store(cache, text(1, 2))
    store(cache, text(1, 3))
    for stored in (2, 1, 0):
        assert cache.evict(1) == 1
        assert cache.peek(text(1)) == (4 if stored else 0)
        assert (cache.peek(text(1, 2)) == 8) + (cache.peek(text(1, 3)) == 8) == max(stored - 1, 0)
        everything_is_right(cache)


@BOTH
def test_what_got_a_child_does_not_go_before_it(make):
    cache = a_cache(make)
    store(cache, text(1))
    store(cache, text(1, 2))
    assert (cache.evict(1), cache.peek(text(1, 2))) == (1, 4)
    everything_is_right(cache)


@BOTH
def test_a_block_given_to_somebody_else_is_never_found_as_what_it_was(make):
    cache = a_cache(make, num_blocks=2)
    old = store(cache, text(1, 2))
    cache.evict(2)
    new = store(cache, text(3, 4))
    assert sorted(new) == sorted(old)
    assert [cache.peek(tokens) for tokens in (text(1, 2), text(1, 4), text(3, 2), text(3, 4))] == [0, 0, 4, 8]
    cache.evict(1)
    store(cache, text(1))
    assert [cache.peek(tokens) for tokens in (text(1, 4), text(3, 4), text(1, 2))] == [4, 4, 4]


@BOTH
def test_counters(make):
    cache = a_cache(make)
    store(cache, text(1, 2))
    for tokens in (text(1, 2, 3), text(1), [], text(4)):
        cache.match(tokens)
        cache.peek(tokens)
    cache.match(text(1, 2), most=7)
    assert (cache.tokens_asked, cache.tokens_found) == (12 + 4 + 0 + 4 + 8, 8 + 4 + 0 + 0 + 4)
    cache.evict(1)
    cache.evict(1)
    assert cache.blocks_evicted == 2
