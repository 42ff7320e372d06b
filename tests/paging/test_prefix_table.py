"""A block table that begins with what a prefix cache has: what it finds, gives, shares and lets go of."""

import re

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from kvlab.paging import Log, OutOfBlocks, PrefixTable
from kvlab.paging.radix import RadixTree
from tests.paging.prefix_cases import BOTH, a_cache, everything, everything_is_right, store, text
from tests.paging.prefix_table_machine import TableMachine


def grown(table, n):
    """n more tokens are computed -> the copies that this took."""
    copies = table.reserve(n)
    table.advance(n)
    return copies


def opened(cache, tokens, **more):
    """A table with all tokens of a text, some of them found."""
    table = PrefixTable(cache, tokens, **more)
    grown(table, len(tokens) - table.length)
    return table


def all_of(cache, *tables):
    parts = [vars(table) | {"pool": None, "cache": None, "blocks": list(table.blocks)} for table in tables]
    return everything(cache), parts


def refused(cache, tables, error, says, operation, *arguments, **more):
    before = all_of(cache, *tables)
    with pytest.raises(error, match=re.escape(says)):
        operation(*arguments, **more)
    assert all_of(cache, *tables) == before


def let_go(cache, *tables):
    """All of them, and whatever the cache has: then the pool is as it was in the beginning."""
    for number, table in enumerate(tables, 1):
        table.release()
        everything_is_right(cache, *tables[number:])
    assert cache.pool.num_held == 0
    cache.evict(99)
    assert (cache.pool.num_free, cache.num_blocks) == (cache.pool.num_blocks, 0)


@BOTH
@pytest.mark.parametrize(
    ("most", "found"), [(None, 8), (99, 8), (8, 8), (7, 4), (4, 4), (3, 0), (0, 0), (-1, 0)]
)
def test_the_longest_stored_beginning_is_there(make, most, found):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2))
    table = PrefixTable(cache, text(1, 2, 3), most=most, name="A")
    assert (table.found, table.length, table.borrowed, table.name) == (found, found, found // 4, "A")
    assert (table.blocks, table.owned) == (blocks[: found // 4], [])
    everything_is_right(cache, table)
    assert cache.evict(99) == 2 - found // 4
    let_go(cache, table)


@BOTH
def test_nothing_is_found_of_another_text(make):
    cache = a_cache(make)
    store(cache, text(1, 2))
    for tokens in ([], [1, 1, 1], text(3, 2)):
        table = PrefixTable(cache, tokens)
        assert (table.found, table.blocks) == (0, [])
        everything_is_right(cache, table)
        table.release()


@BOTH
def test_of_a_text_that_is_stored_whole_the_last_token_is_computed(make):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2))
    table = opened(cache, text(1, 2), most=7)
    assert (table.found, table.blocks[0]) == (4, blocks[0]) and table.blocks[1] != blocks[1]
    table.store(text(1, 2))
    assert (table.blocks, table.owned, table.found, cache.pool.num_free) == (blocks, [], 4, 10)
    everything_is_right(cache, table)
    let_go(cache, table)


@BOTH
def test_only_full_blocks_are_stored_and_each_once(make):
    cache = a_cache(make)
    tokens, table = text(1, 2, 3), PrefixTable(cache, [])
    for length in range(1, 13):
        assert grown(table, 1) == []
        blocks = list(table.blocks)
        for _ in range(2):
            table.store(tokens[:length])
            before = all_of(cache, table)
        table.store(tokens)
        assert all_of(cache, table) == before
        assert (cache.num_blocks, table.borrowed, table.prefix.tokens) == (
            *[length // 4] * 2,
            length // 4 * 4,
        )
        assert (cache.peek(tokens), table.blocks, table.length) == (length // 4 * 4, blocks, length)
        everything_is_right(cache, table)
    let_go(cache, table)


@BOTH
def test_who_stores_the_same_later_goes_over_to_the_blocks_that_are_there(make):
    cache = a_cache(make)
    store(cache, text(1))
    tokens = [*text(1, 2, 3), 9]
    first, second = opened(cache, tokens), opened(cache, tokens)
    theirs, mine = first.blocks, list(second.blocks)
    first.store(tokens)
    second.store(tokens)
    assert second.blocks == [*theirs[:3], mine[3]] and second.owned == mine[3:]
    assert [cache.pool.count(block) for block in mine[1:]] == [0, 0, 1]
    assert not any(cache.pool.cached(block) for block in mine[1:])
    assert (second.length, cache.num_blocks, cache.pool.num_held) == (13, 3, 5)
    everything_is_right(cache, first, second)
    let_go(cache, first, second)


@BOTH
def test_a_text_that_parts_shares_what_was_stored_meanwhile(make):
    cache = a_cache(make)
    first, second = opened(cache, text(1, 2, 3)), opened(cache, text(1, 2, 4))
    mine = list(second.blocks)
    first.store(text(1, 2, 3))
    second.store(text(1, 2, 4))
    assert second.blocks == [*first.blocks[:2], mine[2]]
    everything_is_right(cache, first, second)
    let_go(cache, second, first)


@BOTH
def test_a_block_that_somebody_else_stored_is_not_written_into(make):
    """Forked before it was stored, and cut back into it."""
    cache = a_cache(make)
    table = opened(cache, text(1, 2))
    other = table.fork()
    table.store(text(1, 2))
    other.truncate(6)
    [(old, new)] = grown(other, 2)
    assert (old, new) == (table.blocks[1], other.blocks[1])
    everything_is_right(cache, table, other)
    other.store(text(1) + [2, 2, 5, 5])
    assert (other.blocks, other.owned) == ([table.blocks[0], new], [])
    everything_is_right(cache, table, other)
    let_go(cache, table, other)


@BOTH
@pytest.mark.parametrize("first", [0, 1])
def test_a_fork_locks_again(make, first):
    cache = a_cache(make)
    table = opened(cache, [*text(1, 2), 3])
    table.store(text(1, 2))
    blocks = list(table.blocks)
    other = table.fork("B")
    assert type(other) is PrefixTable
    assert (other.blocks, other.borrowed, other.length, other.found, other.name) == (blocks, 2, 9, 0, "B")
    assert [cache.pool.count(block) for block in blocks] == [1, 1, 2]
    everything_is_right(cache, table, other)
    pair = [table, other]
    pair.pop(first).release()
    everything_is_right(cache, *pair)
    assert (cache.evict(99), cache.pool.num_held) == (0, 3)
    let_go(cache, *pair)


@BOTH
def test_forks_write_apart_and_store_both(make):
    cache = a_cache(make)
    table = opened(cache, [*text(1), 2, 2])
    table.store(text(1))
    other = table.fork()
    half = table.blocks[1]
    assert grown(other, 2) == [(half, other.blocks[1])] and grown(table, 2) == []
    table.store([*text(1), 2, 2, 5, 5])
    other.store([*text(1), 2, 2, 6, 6])
    assert cache.num_blocks == 3 and table.blocks == [other.blocks[0], half]
    assert cache.match([*text(1), 2, 2, 6, 6]).blocks == other.blocks
    everything_is_right(cache, table, other)
    let_go(cache, other, table)


@BOTH
def test_what_is_in_the_cache_is_not_cut_off(make):
    cache = a_cache(make)
    table = opened(cache, [*text(1, 2, 3), 4])
    table.store([*text(1, 2, 3), 4])
    for n in (11, 0, -1):
        refused(cache, [table], ValueError, f"cannot keep {n} tokens: 12 of them are", table.truncate, n)
    refused(cache, [table], ValueError, "cannot keep 14 tokens of the 13 stored", table.truncate, 14)
    table.truncate(12)
    assert (table.length, table.owned) == (12, [])
    everything_is_right(cache, table)
    let_go(cache, table)


@BOTH
def test_a_released_table_does_nothing_more(make):
    cache = a_cache(make)
    table, other = opened(cache, [*text(1, 2), 3]), opened(cache, [*text(1, 2), 3])
    table.store(text(1, 2))
    other.store(text(1, 2))
    table.release()
    assert (table.blocks, table.length, cache.pool.num_held) == ([], 0, 3)
    everything_is_right(cache, other)
    for operation, arguments in (
        (table.release, ()),
        (table.fork, ()),
        (table.store, (text(1, 2),)),
        (table.store, ([],)),
        (table.truncate, (0,)),
        (table.truncate, (8,)),
    ):
        refused(cache, [table, other], RuntimeError, "this table was released", operation, *arguments)
    let_go(cache, other)


@BOTH
def test_namespaces_have_their_own_texts(make):
    cache = a_cache(make)
    for namespace in (None, "x", ("x",)):
        table = opened(cache, text(1, 2), namespace=namespace)
        assert table.found == 0
        table.store(text(1, 2))
        table.release()
        other = PrefixTable(cache, text(1, 2), namespace)
        assert other.found == 8
        other.release()
        everything_is_right(cache)
    assert cache.num_blocks == 6
    let_go(cache)


@BOTH
def test_a_text_shorter_than_the_table_is_not_stored(make):
    cache = a_cache(make)
    table = opened(cache, text(1, 2))
    refused(cache, [table], ValueError, "7 tokens do not fill 2 blocks", table.store, text(1, 2)[:7])
    table.store(text(1, 2))
    let_go(cache, table)


@BOTH
def test_what_cannot_be_opened_leaves_nothing(make):
    cache = a_cache(make)
    log = Log.of(cache.pool)
    store(cache, text(1))
    table, number = PrefixTable(cache, text(1), name="A"), len(log.events)
    for error, says, tokens, namespace in (
        (ValueError, "tokens are ids", [*text(1), *[None] * 4], None),
        (TypeError, "unhashable", text(1), []),
    ):
        refused(cache, [table], error, says, PrefixTable, cache, tokens, namespace)
    with pytest.raises(ValueError, match="there is a table called A already"):
        PrefixTable(cache, text(1), name="A")
    assert len(log.events) == number
    everything_is_right(cache, table)
    let_go(cache, table)
    moment = log.at(len(log.events))
    assert moment.tables == {} and not moment.counts()


@BOTH
def test_without_room_nothing_is_taken(make):
    cache = a_cache(make, num_blocks=3)
    store(cache, text(1, 2))
    table = PrefixTable(cache, text(1, 3, 4))
    refused(cache, [table], OutOfBlocks, "2 blocks are needed and 1 of 3 are free", table.reserve, 8)
    assert (cache.evict(1), table.reserve(8)) == (1, [])
    everything_is_right(cache, table)
    let_go(cache, table)


def test_what_is_new_has_a_priority():
    cache = a_cache(RadixTree)
    for letter, priority in ((1, 1), (2, 0)):
        table = opened(cache, text(letter, letter))
        table.store(text(letter, letter), priority)
        table.release()
    assert (cache.evict(2), cache.peek(text(1, 1)), cache.peek(text(2, 2))) == (2, 8, 0)


@BOTH
@pytest.mark.parametrize("size", [1, 4])
def test_any_order_of_operations(make, size):
    machine = type(f"Tables{make.__name__}{size}", (TableMachine,), {"make": make, "size": size})
    wanted = settings(max_examples=40, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(machine, settings=wanted)
