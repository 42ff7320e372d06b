"""Locks on what a prefix cache has: who holds one, how it moves on, and what a late one finds."""

import pytest

from tests.paging.prefix_cases import (
    BOTH,
    a_cache,
    begun,
    everything_is_right,
    handed_in,
    locked,
    refuses,
    store,
    text,
)


@BOTH
def test_a_lock_holds_for_both_parts_where_its_path_is_cut(make):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2, 3))
    prefix = locked(cache, text(1, 2, 3))
    assert cache.match(text(1, 9)).blocks == blocks[:1]
    store(cache, text(1, 2, 8))
    assert sorted(cache.owned) == sorted(blocks)
    assert cache.evict(99) == 1
    everything_is_right(cache)
    cache.unlock(prefix)
    assert cache.owned == []
    everything_is_right(cache)
    assert cache.evict(99) == 3


@BOTH
def test_matches_while_a_request_waits_take_nothing_and_the_last_one_counts(make):
    cache = a_cache(make)
    store(cache, text(1))
    held = cache.pool.num_held
    early = [cache.match(text(1, 2, 3), most=11) for _ in range(3)]
    assert [prefix.tokens for prefix in early] == [4, 4, 4]
    store(cache, text(1, 2))
    prefix = locked(cache, text(1, 2, 3), most=11)
    assert (prefix.tokens, cache.pool.num_held) == (8, held + 2)
    everything_is_right(cache)
    cache.unlock(prefix)
    assert cache.pool.num_held == held
    everything_is_right(cache)


def evicted(cache):
    cache.evict(99)


def its_end_evicted(cache):
    cache.evict(1)


def evicted_and_stored_again(cache):
    cache.evict(99)
    store(cache, text(9))
    store(cache, text(1, 2))


def its_end_replaced(cache):
    """In the place of the evicted end stands another, of the same length, by whoever had the beginning."""
    cache.evict(1)
    table, prefix = begun(cache, text(1, 3))
    cache.unlock(handed_in(cache, text(1, 3), table, prefix))
    table.release()


@BOTH
@pytest.mark.parametrize("change", [evicted, its_end_evicted, evicted_and_stored_again, its_end_replaced])
def test_what_was_found_cannot_be_locked_when_it_is_gone(make, change):
    cache = a_cache(make)
    store(cache, text(1, 2))
    prefix = cache.match(text(1, 2))
    change(cache)
    everything_is_right(cache)
    refuses(cache, ValueError, "match again", cache.lock, prefix)
    refuses(cache, ValueError, None, cache.unlock, prefix)
    refuses(cache, ValueError, None, cache.insert, [], [], after=prefix)


@BOTH
def test_a_single_block_that_went_and_came_back_is_another(make):
    cache = a_cache(make)
    store(cache, text(1))
    prefix = cache.match(text(1))
    cache.evict(1)
    store(cache, text(1))
    refuses(cache, ValueError, "match again", cache.lock, prefix)
    refuses(cache, ValueError, None, cache.unlock, prefix)


@BOTH
def test_what_is_locked_a_second_time_stays(make):
    cache = a_cache(make)
    table, prefix = begun(cache, text(1, 2))
    prefix = handed_in(cache, text(1, 2), table, prefix)
    table.release()
    cache.unlock(prefix)
    cache.lock(prefix)
    assert cache.evict(99) == 0
    cache.unlock(prefix)
    everything_is_right(cache)
    assert cache.evict(99) == 2


@BOTH
def test_finding_nothing_never_becomes_wrong(make):
    cache = a_cache(make)
    early = [cache.match(text(1), namespace) for namespace in (None, "x")]
    store(cache, text(1), namespace="x")
    for prefix in early:
        cache.lock(prefix)
        everything_is_right(cache)
    table, late = begun(cache, text(1, 2), namespace="x")
    late = handed_in(cache, text(1, 2), table, late)
    for prefix in (*early, late):
        cache.unlock(prefix)
    table.release()
    everything_is_right(cache)
    cache.evict(99)
    cache.lock(early[1])
    end = cache.insert([], [], after=early[1])
    cache.unlock(end)
    everything_is_right(cache)


@BOTH
def test_only_who_has_locked_may_unlock_or_go_on(make):
    cache = a_cache(make)
    store(cache, text(1, 2))
    prefix = cache.match(text(1, 2))
    says = "nobody has this prefix of 8 tokens locked: lock it first"
    for _ in range(2):
        refuses(cache, ValueError, says, cache.unlock, prefix)
        refuses(cache, ValueError, says, cache.insert, [], [], after=prefix)
        cache.lock(prefix)
        cache.lock(prefix)
        cache.unlock(prefix)
        cache.unlock(prefix)
    everything_is_right(cache)


@BOTH
def test_a_lock_on_something_longer_is_not_a_lock_on_its_beginning(make):
    cache = a_cache(make)
    store(cache, text(1, 2))
    short, long = cache.match(text(1)), locked(cache, text(1, 2))
    refuses(cache, ValueError, "of 4 tokens locked", cache.unlock, short)
    refuses(cache, ValueError, "of 4 tokens locked", cache.insert, [], [], after=short)
    cache.lock(short)
    cache.unlock(long)
    assert cache.evict(99) == 1
    cache.unlock(short)
    everything_is_right(cache)


@BOTH
def test_a_lock_that_moved_on_is_let_go_of_where_it_is(make):
    cache = a_cache(make)
    store(cache, text(1))
    table, prefix = begun(cache, text(1, 2))
    end = handed_in(cache, text(1, 2), table, prefix)
    refuses(cache, ValueError, None, cache.unlock, prefix, tables=[table])
    refuses(cache, ValueError, None, cache.insert, [], [], after=prefix, tables=[table])
    cache.unlock(end)
    refuses(cache, ValueError, None, cache.unlock, end, tables=[table])
    table.release()
    assert cache.evict(99) == 2


@BOTH
def test_every_user_has_a_lock_of_their_own(make):
    cache = a_cache(make)
    table, prefix = begun(cache, text(1, 2))
    prefix = handed_in(cache, text(1, 2), table, prefix)
    other = table.fork()
    cache.lock(prefix)
    everything_is_right(cache, table, other)
    assert [cache.pool.count(block) for block in table.blocks] == [1, 1]
    cache.unlock(prefix)
    table.release()
    assert cache.evict(99) == 0
    everything_is_right(cache, other)
    cache.unlock(prefix)
    other.release()
    assert cache.evict(99) == 2
