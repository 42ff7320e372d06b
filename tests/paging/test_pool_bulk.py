"""Several blocks at once: what the single operations do one after the other, or nothing at all."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.paging import BlockPool
from tests.paging.cases import refused, state

NAMES = ["share", "release", "keep", "drop"]
ALL = pytest.mark.parametrize("name", NAMES)
NUM_BLOCKS = 6

owners = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=NUM_BLOCKS, max_size=NUM_BLOCKS)
some = st.lists(st.integers(0, NUM_BLOCKS - 1), max_size=7)
any_blocks = some | st.lists(st.integers(-1, NUM_BLOCKS), max_size=7)


def a_pool(owners):
    """Of each block the number of owners, and whether a prefix cache wants it."""
    pool = BlockPool(len(owners), 4)
    for block in sorted(pool.allocate() for _ in owners):
        count, kept = owners[block]
        if kept:
            pool.keep(block)
        for _ in range(count - 1):
            pool.share(block)
        if not count:
            pool.release(block)
    pool.most_held = pool.num_held
    pool.check()
    return pool


def one_by_one(pool, name, blocks):
    """On a copy -> the state after it, or the error."""
    pool = copy.deepcopy(pool)
    try:
        for block in blocks:
            if name == "keep" and pool.count(block) and pool.cached(block):
                raise ValueError("more than keep asks for: each once")
            getattr(pool, name)(block)
    except ValueError as error:
        return error
    return state(pool)


def without_refusals(pool, name, blocks):
    fine = []
    for block in blocks:
        if not isinstance(one_by_one(pool, name, [*fine, block]), ValueError):
            fine.append(block)
    return fine


@settings(max_examples=400, deadline=None)
@given(owners, st.sampled_from(NAMES), any_blocks, st.booleans())
def test_all_is_each_or_nothing(owners, name, blocks, legal):
    pool = a_pool(owners)
    if legal:
        blocks = without_refusals(pool, name, blocks)
    before, expected = state(pool), one_by_one(pool, name, blocks)
    operation = getattr(pool, f"{name}_all")
    if isinstance(expected, ValueError):
        with pytest.raises(ValueError):
            operation(blocks)
        assert state(pool) == before
    else:
        assert operation(blocks) is None
        assert state(pool) == expected
    pool.check()


STATES = [(2, False), (1, False), (0, True), (1, True), (0, False)]


@pytest.mark.parametrize(
    ("name", "blocks", "says"),
    [
        ("share", [0, 2, 4], "block 4 is free: there is nothing in it to share; allocate one"),
        ("share", [2, 2, 4, 4], "block 4 is free"),
        ("release", [1, 1], "was released already"),
        ("release", [0, 0, 3, 0], "was released already"),
        ("release", [3, 2], "was released already"),
        ("release", [1, 4], "was released already"),
        ("keep", [0, 1, 0], "block 0 is kept already, or comes twice: keep each once"),
        ("keep", [0, 3], "block 3 is kept already"),
        ("keep", [1, 4], "block 4 has no owner: keep each once, while somebody holds it"),
        ("keep", [1, 2], "block 2 has no owner"),
        ("drop", [2, 3, 2], "block 2 is not wanted by a prefix cache, or comes twice"),
        ("drop", [2, 0], "block 0 is not wanted by a prefix cache"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_changes_nothing(name, blocks, says):
    pool = a_pool(STATES)
    refused(pool, (), ValueError, says, getattr(pool, f"{name}_all"), blocks)


@ALL
@pytest.mark.parametrize("block", [-1, 5, 10**12, float("nan")])
@pytest.mark.parametrize("place", [0, 1])
def test_a_block_that_the_pool_does_not_have(name, block, place):
    pool = a_pool([(1, name == "drop")] * 5)
    blocks = [3, 2]
    blocks.insert(place, block)
    error, says = (
        (TypeError, None) if block != block else (ValueError, f"there is no block {block}: this pool")
    )
    refused(pool, (), error, says, getattr(pool, f"{name}_all"), blocks)


@ALL
@pytest.mark.parametrize("block", [1.0, "1", None, [1]])
def test_a_block_is_a_whole_number(name, block):
    pool = a_pool([(1, name == "drop")] * 5)
    refused(pool, (), TypeError, None, getattr(pool, f"{name}_all"), [3, block])


@ALL
@pytest.mark.parametrize("kind", [list, tuple, np.array, iter, lambda blocks: [*map(np.int32, blocks)]])
def test_any_blocks_in_their_order(name, kind):
    pool = a_pool([(int(name != "drop"), name == "drop")] * 4)
    expected = one_by_one(pool, name, [2, 0, 3])
    getattr(pool, f"{name}_all")(kind([2, 0, 3]))
    assert state(pool) == expected
    assert {type(block) for block in pool._free} <= {int}


@ALL
def test_no_blocks_are_no_change(name):
    pool = a_pool(STATES)
    before = state(pool)
    getattr(pool, f"{name}_all")([])
    assert state(pool) == before


def test_the_peak_is_noticed():
    pool = a_pool([(0, True)] * 4)
    assert pool.most_held == 0
    pool.share_all([0, 1, 2, 2])
    pool.release_all([0, 1])
    pool.share_all([0])
    assert (pool.most_held, pool.num_held, pool.num_kept) == (3, 2, 2)
