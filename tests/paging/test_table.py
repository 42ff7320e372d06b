"""A block table: where tokens go, who shares what, and refusals that change nothing."""

import pickle

import pytest

from kvlab.paging import BlockPool, BlockTable, Log, OutOfBlocks
from tests.paging.cases import refused, stored


@pytest.fixture
def pool():
    return BlockPool(6, 4)


def test_a_new_table_holds_nothing(pool):
    table = BlockTable(pool)
    assert (table.length, table.blocks, table.slots(0), table.reserve(0)) == (0, [], [], [])
    assert table.shared_block() is None
    assert repr(table) == "BlockTable(0 tokens in blocks [])"


@pytest.mark.parametrize("size", [1, 3, 4])
def test_slots_are_those_of_the_formula(size):
    pool = BlockPool(9, size)
    other, table = stored(pool, 2), BlockTable(pool)
    for n in (1, 4, 2):
        table.reserve(n)
        assert table.slots(n) == [
            table.blocks[t // size] * size + t % size for t in range(table.length, table.length + n)
        ]
        table.advance(n)
    assert table.length == 7
    assert not set(table.blocks) & set(other.blocks)
    pool.check([table, other])


def test_needed_is_what_reserve_takes(pool):
    table = BlockTable(pool)
    for n, blocks in ((0, 0), (3, 1), (1, 0), (1, 1), (9, 2)):
        before = pool.num_free
        assert table.needed(n) == blocks
        assert table.reserve(n) == []
        assert before - pool.num_free == blocks
        table.advance(n)
    assert table.length == 14


def test_room_that_is_reserved_already_is_not_taken_again(pool):
    table = BlockTable(pool)
    table.reserve(7)
    assert (table.needed(8), table.needed(9), table.length) == (0, 1, 0)
    table.reserve(7)
    assert (pool.num_held, table.slots(8)) == (2, [0, 1, 2, 3, 4, 5, 6, 7])


def test_out_of_blocks_takes_none(pool):
    table = stored(pool, 6)
    refused(pool, [table], OutOfBlocks, "5 blocks are needed and 4 of 6 are free", table.reserve, 19)
    refused(pool, [table], OutOfBlocks, "are needed and 4 of 6 are free", table.reserve, 10**30)
    table.reserve(18)
    assert pool.num_free == 0


def test_a_copy_counts_among_the_blocks_that_are_missing(pool):
    table = stored(pool, 6)
    other, rest = table.fork(), stored(pool, 9)
    assert (table.needed(1), table.needed(3), pool.num_free) == (1, 2, 1)
    refused(pool, [table, other, rest], OutOfBlocks, "2 blocks are needed and 1 of 6", table.reserve, 3)
    assert table.reserve(1) == [(1, 5)]


def test_fork_shares_every_block_that_holds_a_token_and_no_other(pool):
    table = stored(pool, 6)
    table.reserve(9)
    other = table.fork()
    assert (other.blocks, other.length) == ([0, 1], 6)
    assert [pool.count(block) for block in table.blocks] == [2, 2, 1, 1]
    pool.check([table, other])
    assert BlockTable(pool).fork().blocks == []


@pytest.mark.parametrize(("length", "blocks"), [(0, []), (1, [0]), (4, [0]), (5, [0, 1]), (8, [0, 1])])
def test_room_that_was_only_reserved_is_nobody_elses(pool, length, blocks):
    table = stored(pool, length)
    table.reserve(9)
    other = table.fork()
    assert other.blocks == blocks
    pool.check([table, other])


def test_whoever_writes_first_copies_and_the_other_keeps_the_block(pool):
    table = stored(pool, 6)
    other = table.fork()
    assert table.shared_block() == other.shared_block() == 1
    assert other.reserve(3) == [(1, 2)]
    assert (table.blocks, other.blocks) == ([0, 1], [0, 2, 3])
    assert (table.shared_block(), table.reserve(2)) == (None, [])
    assert (table.slots(2), other.slots(3)) == ([6, 7], [10, 11, 12])
    pool.check([table, other])


def test_full_blocks_are_never_copied(pool):
    table = stored(pool, 8)
    other = table.fork()
    assert (other.needed(1), other.shared_block(), other.reserve(1)) == (1, None, [])
    assert other.blocks == [0, 1, 2]


def test_a_kept_block_is_copied_by_its_only_owner(pool):
    table = stored(pool, 6)
    pool.keep(1)
    assert (table.needed(1), table.reserve(1)) == (1, [(1, 2)])
    assert pool.num_kept == 1


def test_truncating_into_a_shared_block_copies_it_at_the_next_token(pool):
    table = stored(pool, 8)
    other = table.fork()
    other.truncate(6)
    assert (other.shared_block(), other.needed(1), table.needed(1)) == (1, 1, 1)
    assert other.reserve(1) == [(1, 2)]
    assert table.blocks == [0, 1]
    pool.check([table, other])


def test_truncating_lets_go_of_the_blocks_behind(pool):
    table = stored(pool, 11)
    table.reserve(9)
    table.truncate(11)
    assert table.blocks == [0, 1, 2]
    for n, blocks in ((9, 3), (8, 2), (8, 2), (5, 2), (0, 0)):
        table.truncate(n)
        assert (table.length, len(table.blocks), pool.num_held) == (n, blocks, blocks)
    pool.check([table])


def test_released_blocks_are_free_when_no_other_table_has_them(pool):
    table = stored(pool, 8)
    other = table.fork()
    table.release()
    assert (pool.num_held, table.length, table.blocks) == (2, 0, [])
    other.release()
    assert pool.num_free == 6


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("needed", [1]),
        ("reserve", [0]),
        ("slots", [0]),
        ("advance", [0]),
        ("truncate", [0]),
        ("fork", []),
        ("release", []),
    ],
)
def test_a_released_table_does_nothing(pool, name, arguments):
    table = stored(pool, 5)
    table.release()
    refused(pool, [table], RuntimeError, "this table was released", getattr(table, name), *arguments)


@pytest.mark.parametrize(
    ("name", "n", "error", "says"),
    [
        ("needed", -1, ValueError, "-1 tokens cannot be stored; give 0 or more"),
        ("reserve", -1, ValueError, "-1 tokens cannot be stored"),
        ("slots", 4, ValueError, "no room for 4 more tokens: reserve it first"),
        ("slots", -1, ValueError, "no room for -1 more tokens"),
        ("advance", 4, ValueError, "no room for 4 more tokens: reserve it first"),
        ("advance", 10**30, ValueError, "more tokens: reserve it first"),
        ("advance", -1, ValueError, "no room for -1 more tokens"),
        ("truncate", 6, ValueError, "cannot keep 6 tokens of the 5 stored"),
        ("truncate", -1, ValueError, "cannot keep -1 tokens"),
        *(
            (name, n, TypeError, None)
            for name in ("needed", "reserve", "slots", "advance")
            for n in (2.0, "2")
        ),
        *(("truncate", n, TypeError, None) for n in (2.5, None)),
    ],
)
def test_numbers_that_cannot_be(pool, name, n, error, says):
    table = stored(pool, 5)
    refused(pool, [table], error, says, getattr(table, name), n)


def test_slots_of_a_block_that_others_read_are_not_given(pool):
    table = stored(pool, 6)
    other = table.fork()
    refused(
        pool, [table, other], ValueError, "others read block 1, where the next token goes", other.slots, 1
    )
    assert other.slots(0) == []
    other.reserve(1)
    assert other.slots(1) == [10]


class Whole:
    """An integer of somebody else's making, such as numpy's."""

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


def test_any_integer_will_do_and_python_ints_are_kept(pool):
    log = Log.of(pool)
    table = BlockTable(pool)
    table.reserve(Whole(6))
    table.advance(Whole(6))
    table.truncate(Whole(5))
    assert (type(table.length), table.length, table.needed(Whole(4))) == (int, 5, 1)
    assert Log.from_text(log.text()).at(len(log.events)).lengths == {"A": 5}


def test_a_pickled_table_has_a_pool_of_its_own(pool):
    table = stored(pool, 6)
    other = pickle.loads(pickle.dumps(table))
    other.reserve(9)
    assert (table.blocks, pool.num_held) == ([0, 1], 2)
    other.pool.check([other])
