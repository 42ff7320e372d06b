"""The pool: every operation, every refusal with nothing changed, and a check that can fail."""

import copy
import pickle
import re

import pytest

from kvlab.paging import BlockPool, BlockTable, OutOfBlocks
from tests.paging.cases import refused


def counts(pool):
    return pool.num_free, pool.num_held, pool.num_kept


def test_a_new_pool_is_free():
    pool = BlockPool(3, 4)
    assert (counts(pool), pool.num_blocks, pool.block_size, pool.most_held) == ((3, 0, 0), 3, 4, 0)
    assert [pool.count(block) for block in range(3)] == [0, 0, 0]
    assert repr(pool) == "BlockPool(3 blocks of 4: 3 free, 0 held, 0 kept)"


@pytest.mark.parametrize(
    ("sizes", "error", "says"),
    [
        ((0, 4), ValueError, "num_blocks is 0; a pool has at least one block"),
        ((-2, 4), ValueError, "num_blocks is -2"),
        ((3, 0), ValueError, "block_size is 0"),
        ((2.0, 4), TypeError, "float"),
        (("3", 4), TypeError, "str"),
        ((3, None), TypeError, "NoneType"),
    ],
)
def test_a_pool_has_blocks_with_slots(sizes, error, says):
    with pytest.raises(error, match=says):
        BlockPool(*sizes)


def test_allocate_gives_each_block_once_and_the_last_released_first():
    pool = BlockPool(4, 1)
    assert sorted(pool.allocate() for _ in range(4)) == [0, 1, 2, 3]
    assert counts(pool) == (0, 4, 0)
    for block in (2, 0):
        pool.release(block)
    assert [pool.allocate(), pool.allocate()] == [0, 2]


def test_out_of_blocks_says_how_many_and_takes_nothing():
    pool = BlockPool(2, 4)
    pool.keep(pool.allocate())
    pool.release(0)
    pool.allocate()
    says = "1 block is needed and 0 of 2 are free (1 held, 1 kept for prefixes)"
    refused(pool, (), OutOfBlocks, says, pool.allocate)
    pool.drop(0)
    pool.allocate()
    refused(pool, (), OutOfBlocks, "are free (2 held): release a sequence", pool.allocate)


def test_a_block_has_as_many_owners_as_its_count_says():
    pool = BlockPool(2, 4)
    block = pool.allocate()
    pool.share(block)
    pool.share(block)
    assert (pool.count(block), counts(pool)) == (3, (1, 1, 0))
    for owners in (2, 1, 0):
        pool.release(block)
        assert pool.count(block) == owners
    assert counts(pool) == (2, 0, 0)


def test_only_the_one_owner_of_an_unwanted_block_may_write():
    pool = BlockPool(2, 4)
    assert not pool.writable(1)
    block = pool.allocate()
    assert pool.writable(block)
    pool.share(block)
    assert not pool.writable(block)
    pool.release(block)
    assert pool.writable(block)
    pool.keep(block)
    assert not pool.writable(block)


def test_a_kept_block_outlives_its_owners_and_can_be_shared_again():
    pool = BlockPool(2, 4)
    block = pool.allocate()
    pool.keep(block)
    pool.keep(block)  # wanted is wanted
    assert (counts(pool), pool.cached(block)) == ((1, 1, 0), True)
    pool.release(block)
    assert counts(pool) == (1, 0, 1)
    pool.share(block)
    assert (counts(pool), pool.count(block), pool.cached(block)) == ((1, 1, 0), 1, True)
    pool.release(block)
    pool.drop(block)
    assert (counts(pool), pool.cached(block)) == ((2, 0, 0), False)


def test_a_dropped_block_stays_with_its_owner():
    pool = BlockPool(2, 4)
    block = pool.allocate()
    pool.keep(block)
    pool.drop(block)
    assert (counts(pool), pool.writable(block)) == ((1, 1, 0), True)
    pool.release(block)
    assert counts(pool) == (2, 0, 0)


def test_most_held_remembers_the_peak():
    pool = BlockPool(4, 1)
    blocks = [pool.allocate() for _ in range(3)]
    pool.keep(blocks[0])
    for block in blocks:
        pool.release(block)
    assert pool.most_held == 3
    pool.share(blocks[0])
    assert pool.most_held == 3
    other = BlockPool(2, 1)
    kept = other.allocate()
    other.keep(kept)
    other.release(kept)
    other.most_held = 0
    other.share(kept)
    assert other.most_held == 1


@pytest.mark.parametrize("block", [-1, 4, 10**12])
@pytest.mark.parametrize("name", ["count", "cached", "writable", "share", "release", "keep", "drop"])
def test_a_block_that_the_pool_does_not_have(name, block):
    pool = BlockPool(4, 2)
    for _ in range(4):
        pool.keep(pool.allocate())  # -1 would mean the last one to Python
    refused(
        pool, (), ValueError, f"there is no block {block}: this pool has 0 to 3", getattr(pool, name), block
    )


@pytest.mark.parametrize("block", [1.0, "1", None])
@pytest.mark.parametrize("name", ["count", "cached", "writable", "share", "release", "keep", "drop"])
def test_a_block_is_a_whole_number(name, block):
    pool = BlockPool(4, 2)
    for _ in range(4):
        pool.keep(pool.allocate())
    refused(pool, (), TypeError, None, getattr(pool, name), block)


def test_operations_on_blocks_in_the_wrong_state():
    pool = BlockPool(3, 2)
    held, freed, kept = (pool.allocate() for _ in range(3))
    pool.release(freed)
    pool.keep(kept)
    pool.release(kept)
    refused(pool, (), ValueError, "block 1 has no owner: it was released already", pool.release, freed)
    refused(pool, (), ValueError, "block 2 has no owner: it was released already", pool.release, kept)
    refused(pool, (), ValueError, "block 1 is free: there is nothing in it to share", pool.share, freed)
    refused(pool, (), ValueError, "block 1 has no owner: there is nothing in it to keep", pool.keep, freed)
    refused(pool, (), ValueError, "block 2 has no owner: there is nothing in it to keep", pool.keep, kept)
    refused(pool, (), ValueError, "block 1 is not wanted by a prefix cache", pool.drop, freed)
    refused(pool, (), ValueError, "block 0 is not wanted by a prefix cache", pool.drop, held)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])
def test_a_copy_is_a_pool_of_its_own(again):
    pool = BlockPool(3, 2)
    pool.keep(pool.allocate())
    other = again(pool)
    other.allocate()
    assert (counts(pool), counts(other)) == ((2, 1, 0), (1, 2, 0))
    other.check()


def in_every_state():
    """Block 0 held twice, 1 held, 2 kept, 3 held and wanted, 4 and 5 free -> the pool and its tables."""
    pool = BlockPool(6, 2)
    first = BlockTable(pool)
    first.reserve(2)
    first.advance(2)
    tables = [first, first.fork(), *(BlockTable(pool) for _ in range(3))]
    for table in tables[2:]:
        table.reserve(1)
    for table in tables[3:]:
        pool.keep(table.blocks[0])
    tables[3].release()
    return pool, [table for table in tables if not table.released]


def test_check_is_content_with_every_state():
    pool, tables = in_every_state()
    pool.check()
    pool.check(tables)
    pool.check(iter(tables))


def corrupted(pool, field, index, value):
    if index is None:
        setattr(pool, field, value)
    else:
        getattr(pool, field)[index] = value


BROKEN = {
    "below zero": ("_counts", 4, -1, "a count is below zero"),
    "a free block with an owner": ("_counts", 4, 1, "blocks [4] are free and used, or neither"),
    "a held one without": ("_counts", 1, 0, "blocks [1] are free and used, or neither"),
    "a kept one with an owner": ("_counts", 2, 1, "0 blocks are kept, and 1 were counted"),
    "a free block that is wanted": ("_cached", 4, 1, "2 blocks are kept, and 1 were counted"),
    "a kept one that is not": ("_cached", 2, 0, "0 blocks are kept, and 1 were counted"),
    "kept miscounted": ("_num_kept", None, 2, "1 blocks are kept, and 2 were counted"),
    "free twice": ("_free", slice(None), [5, 4, 4], "a block is free twice"),
    "lost": ("_free", slice(None), [5], "blocks [4] are free and used, or neither"),
    "held and free": ("_free", slice(None), [5, 4, 1], "blocks [1] are free and used, or neither"),
    "kept and free": ("_free", slice(None), [5, 4, 2], "blocks [2] are free and used, or neither"),
    "no such block": ("_free", slice(None), [5, 4, 6], "blocks [6] are free and used, or neither"),
    "one count too many": ("_counts", slice(6, 6), [1], "7 blocks are accounted for, of 6"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_check_names_what_is_broken(what):
    pool, _ = in_every_state()
    field, index, value, says = BROKEN[what]
    corrupted(pool, field, index, value)
    with pytest.raises(AssertionError, match=re.escape(says)):
        pool.check()


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda pool, tables: tables.pop(0), [0]),
        (lambda pool, tables: tables[2].blocks.append(1), [1]),
        (lambda pool, tables: tables[2].blocks.clear(), [1]),
        (lambda pool, tables: tables[2].blocks.append(4), [4]),
        (lambda pool, tables: tables[2].blocks.append(2), [2]),
        (lambda pool, tables: tables[2].blocks.extend([-1, 6]), [-1, 6]),
        (lambda pool, tables: corrupted(pool, "_counts", 0, 3), [0]),
        (lambda pool, tables: tables.clear(), [0, 1, 3]),
    ],
)
def test_check_counts_the_tables_too(change, wrong):
    pool, tables = in_every_state()
    change(pool, tables)
    pool.check()
    with pytest.raises(AssertionError, match=re.escape(f"blocks {wrong} have other numbers of owners")):
        pool.check(tables)
