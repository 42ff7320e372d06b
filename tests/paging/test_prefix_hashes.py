"""The hashes alone: who goes first, and a check that can fail."""

import re

import pytest

from kvlab.paging import BlockTable
from kvlab.paging.hashes import BlockHashes
from tests.paging.prefix_cases import a_cache, everything_is_right, locked, refuses, store, text


@pytest.fixture
def hashes():
    return a_cache(BlockHashes)


def left(hashes):
    return [n for n in range(1, 9) if hashes.peek(text(n))]


def test_what_was_unlocked_longest_ago_goes_first(hashes):
    for n in (1, 2, 3, 4):
        store(hashes, text(n))
    hashes.match(text(1))
    hashes.peek(text(1))
    assert (hashes.evict(1), left(hashes)) == (1, [2, 3, 4])
    prefixes = [locked(hashes, text(n)) for n in (2, 4)]
    hashes.unlock(prefixes[1])
    hashes.unlock(prefixes[0])
    for there in ([2, 4], [2], []):
        assert (hashes.evict(1), left(hashes)) == (1, there)


def test_who_stores_it_again_wants_it_still(hashes):
    for n in (1, 2, 1):
        store(hashes, text(n))
    assert (hashes.evict(1), left(hashes)) == (1, [1])


@pytest.mark.parametrize("use", ["store", "lock"])
def test_the_end_goes_before_the_beginning_whoever_used_it(hashes, use):
    store(hashes, text(1, 2, 3))
    store(hashes, text(1, 4))
    for tokens in (text(1, 2, 3), text(1, 4), text(1, 2), text(1)):
        if use == "store":
            store(hashes, tokens)
        else:
            hashes.unlock(locked(hashes, tokens))
        everything_is_right(hashes)
    for found in ((4, 8, 8), (4, 4, 8), (4, 4, 4), (0, 0, 0)):
        assert hashes.evict(1) == 1
        everything_is_right(hashes)
        assert found == tuple(hashes.peek(tokens) for tokens in (text(1), text(1, 4), text(1, 2)))


def test_a_lock_on_the_beginning_lets_the_end_go(hashes):
    blocks = store(hashes, text(1, 2, 3))
    prefix = locked(hashes, text(1))
    assert (hashes.owned, hashes.evict(9), hashes.num_blocks) == (blocks[:1], 2, 1)
    hashes.unlock(prefix)


def test_there_are_no_priorities(hashes):
    store(hashes, text(1), priority=5)
    store(hashes, text(2))
    assert (hashes.evict(1), left(hashes)) == (1, [2])


def test_what_another_cache_found_is_nothing_here(hashes):
    store(hashes, text(1))
    other = a_cache(BlockHashes)
    store(other, text(1))
    prefix = locked(other, text(1))
    refuses(hashes, ValueError, "match again", hashes.lock, prefix)
    refuses(hashes, ValueError, "nobody has this prefix", hashes.unlock, prefix)


def corrupt(hashes, what):
    first, second = hashes._stored.values()
    if what == "twice":
        second.block = first.block
    elif what == "a number twice":
        second.number = first.number
    elif what == "another key":
        first.key = second.key
    elif what == "another parent":
        second.parent = second
    elif what == "not kept":
        hashes.pool.drop(second.block)
    elif what == "idle and locked":
        hashes._idle[second.number] = second
    elif what == "without an owner":
        hashes.pool.release(second.block)
    elif what == "neither":
        first.locks = second.locks = first.users = second.users = 0
    elif what == "half a lock":
        second.locks = second.users = 2
    elif what == "a lock of nobody":
        second.users = 0
    else:  # the beginning lost
        del hashes._stored[first.key]


BROKEN = {
    "twice": "a block is stored twice",
    "a number twice": "a block is stored twice",
    "another key": "a block stands under another's tokens",
    "another parent": "a block stands under another's tokens",
    "not kept": "is stored, and may be given away",
    "idle and locked": "a block is idle and locked, or neither",
    "without an owner": "a locked block has no owner",
    "neither": "a block is idle and locked, or neither",
    "half a lock": "a lock does not reach the beginning",
    "a lock of nobody": "a lock does not reach the beginning",
    "the beginning lost": "a block is stored, and the one before it is not",
}


@pytest.mark.parametrize("what", BROKEN)
def test_check_names_what_is_broken(hashes, what):
    table = BlockTable(hashes.pool)
    table.reserve(8)
    hashes.insert(text(1, 2), table.blocks, after=locked(hashes, []))
    hashes.check()
    corrupt(hashes, what)
    with pytest.raises(AssertionError, match=re.escape(BROKEN[what])):
        hashes.check()


def test_check_knows_what_goes_first(hashes):
    store(hashes, text(1, 2))
    hashes._idle.move_to_end(1)
    with pytest.raises(AssertionError, match="a beginning would go before its end"):
        hashes.check()


def test_check_measures_every_block(hashes):
    store(hashes, text(1))
    (each,) = hashes._stored.values()
    each.key = each.key[0], each.key[1][:-1]
    hashes._stored = {each.key: each}
    with pytest.raises(AssertionError, match="a block stands under another's tokens"):
        hashes.check()
