"""A table whose first blocks are a prefix cache's: who owns what, and what it does with the others."""

from collections import Counter

import pytest

from kvlab.paging import BlockPool, BlockTable, Log, OutOfBlocks
from kvlab.paging.radix import RadixTree
from tests.paging.cases import refused, state, stored
from tests.paging.prefix_cases import begun, everything_is_right, handed_in, locked, store, text


@pytest.fixture
def cache():
    return RadixTree(BlockPool(12, 4))


def borrowed(cache, *letters):
    """A table that has nothing but these blocks of the cache, which are stored and locked."""
    store(cache, text(*letters))
    table = BlockTable(cache.pool)
    table.borrow(locked(cache, text(*letters)).blocks)
    return table


def test_the_first_tokens_are_there_and_the_blocks_not_the_tables(cache):
    table = borrowed(cache, 1, 2)
    assert (table.length, len(table.blocks), table.borrowed, table.owned) == (8, 2, 2, [])
    assert [cache.pool.count(block) for block in table.blocks] == [1, 1]
    everything_is_right(cache, table)


def test_what_comes_next_goes_to_a_block_of_its_own(cache):
    table = borrowed(cache, 1, 2)
    assert (table.needed(1), table.shared_block(), table.reserve(1)) == (1, None, [])
    table.advance(1)
    assert (table.owned, table.needed(1), table.slots(1)) == ([2], 0, [9])
    everything_is_right(cache, table)


def test_release_leaves_what_was_borrowed_to_its_owner(cache):
    table = borrowed(cache, 1, 2)
    table.reserve(5)
    assert cache.pool.num_held == 4
    table.release()
    assert (cache.pool.num_held, table.blocks, table.borrowed) == (2, [], 0)
    everything_is_right(cache)


def test_others_in_their_places_are_let_go_of_and_the_same_ones_stay(cache):
    first = store(cache, text(1, 2))
    table = stored(cache.pool, 14)
    mine = list(table.blocks)
    blocks = [*locked(cache, text(1, 2)).blocks]
    table.borrow(blocks[:1])
    assert (table.blocks, table.length, table.owned) == ([first[0], *mine[1:]], 14, mine[1:])
    table.borrow(blocks[1:])
    assert (table.blocks, table.length, table.owned) == ([*first, *mine[2:]], 14, mine[2:])
    assert [cache.pool.count(block) for block in mine] == [0, 0, 1, 1]
    everything_is_right(cache, table)


def test_blocks_that_went_to_the_cache_are_only_borrowed_from_then_on(cache):
    table, prefix = begun(cache, text(1, 2, 3))
    blocks = list(table.blocks)
    handed_in(cache, text(1, 2, 3), table, prefix)
    assert (table.blocks, table.owned, table.borrowed) == (blocks, [], 3)
    everything_is_right(cache, table)


def test_more_than_the_table_had(cache):
    store(cache, text(1, 2, 3))
    table = stored(cache.pool, 5)
    table.borrow(locked(cache, text(1, 2, 3)).blocks)
    assert (table.length, table.owned, len(table.blocks), cache.pool.num_held) == (12, [], 3, 3)
    everything_is_right(cache, table)


def test_room_behind_stays(cache):
    store(cache, text(1))
    table = stored(cache.pool, 2)
    table.reserve(9)
    mine = list(table.blocks)
    table.borrow(locked(cache, text(1)).blocks)
    assert (table.length, table.owned, table.needed(8)) == (4, mine[1:], 0)
    everything_is_right(cache, table)


def test_a_fork_borrows_too(cache):
    table = borrowed(cache, 1, 2)
    table.reserve(3)
    table.advance(3)
    other = table.fork()
    assert (other.blocks, other.borrowed, other.length) == (table.blocks, 2, 11)
    assert [cache.pool.count(block) for block in table.blocks] == [1, 1, 2]
    assert other.reserve(1) == [(table.blocks[2], other.blocks[2])]
    table.release()
    everything_is_right(cache, other)
    other.release()
    everything_is_right(cache)


@pytest.mark.parametrize(("n", "blocks", "left"), [(11, 3, 2), (8, 2, 2), (4, 1, 1), (0, 0, 0)])
def test_truncating_never_lets_go_of_what_is_borrowed(cache, n, blocks, left):
    table = borrowed(cache, 1, 2)
    table.reserve(4)
    table.advance(4)
    table.truncate(n)
    assert (table.length, len(table.blocks), table.borrowed) == (n, blocks, left)
    assert cache.pool.num_held == 2 + (n > 8)
    everything_is_right(cache, table)


@pytest.mark.parametrize("n", [5, 7])
def test_truncated_into_a_borrowed_block_it_writes_into_a_copy(cache, n):
    table = borrowed(cache, 1, 2)
    first, second = table.blocks
    table.truncate(n)
    assert (table.borrowed, table.owned, table.shared_block(), table.needed(1)) == (2, [], second, 1)
    with pytest.raises(ValueError, match="others read block"):
        table.slots(1)
    other = table.fork()
    [copied] = table.reserve(1)
    assert copied == (second, table.blocks[1])
    assert (table.blocks[0], table.borrowed, table.owned) == (first, 1, [copied[1]])
    assert cache.pool.count(second) == 1
    everything_is_right(cache, table, other)
    table.advance(1)
    table.release()
    other.release()
    assert cache.pool.num_held == 2
    everything_is_right(cache)


def test_a_copy_of_a_borrowed_block_needs_a_free_one(cache):
    table = borrowed(cache, 1, 2)
    table.truncate(6)
    rest = stored(cache.pool, 40)
    refused(cache.pool, [table, rest], OutOfBlocks, "1 block is needed and 0 of 12", table.reserve, 1)


def test_borrowing_nothing_is_nothing(cache):
    table = borrowed(cache, 1, 2)
    for n in (8, 6):
        table.truncate(n)
        before = state(cache.pool, [table])
        table.borrow([])
        assert state(cache.pool, [table]) == before


def test_a_released_table_borrows_nothing(cache):
    table = borrowed(cache, 1)
    blocks = list(table.blocks)
    table.release()
    for given in (blocks, []):
        refused(cache.pool, [table], RuntimeError, "this table was released", table.borrow, given)


def test_what_cannot_be_let_go_of_is_not_replaced(cache):
    lent, table = store(cache, text(1, 2)), stored(cache.pool, 8)
    cache.pool.release(table.blocks[1])  # by mistake
    refused(cache.pool, [table], ValueError, "released already", table.borrow, lent)


def same_as_logged(log, *tables):
    moment = log.at(len(log.events))
    alive = [table for table in tables if not table.released]
    assert moment.tables == {table.name: table.blocks for table in alive}
    assert moment.lengths == {table.name: table.length for table in alive}
    assert moment.counts() == Counter(block for table in alive for block in table.blocks)
    assert Log.from_text(log.text()).events == log.events


def test_the_log_knows_what_was_borrowed():
    pool = BlockPool(12, 4)
    log, cache = Log.of(pool), RadixTree(pool)
    table, prefix = begun(cache, text(1, 2))
    same_as_logged(log, table)
    other, late = begun(cache, text(1, 2, 3))
    end = handed_in(cache, text(1, 2), table, prefix)
    same_as_logged(log, table, other)
    mine, number = list(other.blocks), len(log.events)
    late = handed_in(cache, text(1, 2, 3), other, late)
    assert log.events[number:] == [
        *(("copied", other.name, mine[place], table.blocks[place]) for place in (0, 1)),
        ("length", other.name, 12),
    ]
    same_as_logged(log, table, other)
    third = BlockTable(pool)
    number = len(log.events)
    third.borrow(locked(cache, text(1, 2)).blocks)
    assert log.events[number:] == [*(("shared", "C", block) for block in third.blocks), ("length", "C", 8)]
    fourth = other.fork()
    cache.lock(late)
    same_as_logged(log, table, other, third, fourth)
    fourth.truncate(7)
    same_as_logged(log, table, other, third, fourth)
    fourth.reserve(3)
    fourth.advance(3)
    assert ("copied", "D", mine[1], fourth.blocks[1]) not in log.events
    assert ("copied", "D", table.blocks[1], fourth.blocks[1]) in log.events
    same_as_logged(log, table, other, third, fourth)
    everything_is_right(cache, table, other, third, fourth)
    own = fourth.owned
    for each in (table, other, third, fourth):
        each.release()
        same_as_logged(log, table, other, third, fourth)
    assert [event[2] for event in log.events if event[0] == "freed"] == own[::-1]
    for prefix in (end, late, late):
        cache.unlock(prefix)
    everything_is_right(cache)


def test_with_a_log_the_same_blocks_go_back():
    """Truncating and releasing goes block by block where there is a log, and at once where there is none."""
    pools = BlockPool(12, 4), BlockPool(12, 4)
    Log.of(pools[0])
    for pool in pools:
        table = borrowed(RadixTree(pool), 1, 2)
        table.reserve(12)
        table.advance(10)
        table.truncate(13)
        table.truncate(6)
        table.reserve(7)
        table.release()
    assert pools[0]._free == pools[1]._free and pools[0]._counts == pools[1]._counts


def test_a_borrowed_block_that_was_given_away_is_found_out(cache):
    """As it happens where a lock does not reach the end of what is read."""
    store(cache, text(1, 2))
    table = BlockTable(cache.pool)
    table.borrow(cache.match(text(1, 2)).blocks)  # and nobody has locked them
    cache.pool.check([cache, table])
    cache.evict(1)
    with pytest.raises(AssertionError, match=r"blocks \[1\] were given away, and a table still reads them"):
        cache.pool.check([cache, table])
    other = BlockTable(cache.pool)
    other.reserve(1)
    with pytest.raises(AssertionError, match=r"blocks \[1\] were given away"):
        cache.pool.check([cache, table, other])
