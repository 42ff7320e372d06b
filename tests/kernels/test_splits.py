"""Parts of contexts: they cover a context exactly, are no more than asked, and as many as keep a GPU busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.kernels.splits import MOST, SHORTEST, WAVES, choose, occupancy, share

tokens = st.integers(0, 20_000)
splits = st.integers(1, 300)
tiles = st.sampled_from([16, 32, 64, 128, 512])
programs = st.integers(1, 5000)
machines = st.integers(1, 300)


@given(tokens, splits, tiles)
def test_parts_cover_a_context_exactly_and_are_no_more_than_asked(tokens, splits, tile):
    each = share(tokens, splits, tile)
    parts = [range(first, min(first + each, tokens)) for first in range(0, max(tokens, 1), each)]
    assert each % tile == 0 and each > 0
    assert [token for part in parts for token in part] == list(range(tokens))
    assert len(parts) <= min(splits, MOST)
    assert tokens == 0 or all(parts)  # none is empty


@given(tokens, splits, tiles)
def test_a_part_is_as_short_as_can_be(tokens, splits, tile):
    shorter = share(tokens, splits, tile) - tile
    assert shorter == 0 or shorter * min(splits, MOST) < tokens


@given(programs, tokens, tiles, machines)
def test_as_many_parts_as_keep_all_multiprocessors_busy_and_no_more(programs, tokens, tile, machines):
    chosen = choose(programs, tokens, tile, machines)
    limit = min(MOST, max(1, tokens // max(SHORTEST, tile)))
    assert 1 <= chosen <= limit
    assert chosen == limit or chosen * programs >= WAVES * machines
    assert chosen == 1 or (chosen - 1) * programs < WAVES * machines


@given(programs, tokens, tiles, machines, st.integers(1, 2000))
def test_more_work_in_other_ways_means_no_more_parts(programs, tokens, tile, machines, more):
    chosen = choose(programs, tokens, tile, machines)
    assert choose(programs + more, tokens, tile, machines) <= chosen
    assert choose(programs, tokens + more, tile, machines) >= chosen
    assert choose(programs, tokens, 2 * tile, machines) <= chosen
    assert choose(programs, tokens, tile, machines + more) >= chosen


@pytest.mark.parametrize(
    ("programs", "tokens", "tile", "machines", "parts"),
    [
        (8, 32_768, 64, 132, 64),  # a sequence of 8 KV heads on an H100: 66 parts would fill four turns
        (256, 32_768, 64, 132, 3),  # 32 sequences: 528 programs wanted
        (8, 1000, 64, 132, 3),  # parts of 256 tokens at least
        (8, 100, 64, 132, 1),
        (528, 32_768, 64, 132, 1),
        (527, 32_768, 64, 132, 2),
        (1, 10**6, 512, 1, 4),
    ],
)
def test_parts_of_some_batches(programs, tokens, tile, machines, parts):
    assert choose(programs, tokens, tile, machines) == parts


@given(programs, machines)
def test_occupancy_is_what_comes_of_handing_programs_out_turn_by_turn(programs, machines):
    waiting, worked, offered = programs, 0, 0
    while waiting:
        for _ in range(machines):
            offered += 1
            if waiting:
                waiting, worked = waiting - 1, worked + 1
    assert occupancy(programs, machines) == worked / offered


def test_four_turns_lose_little():
    """Why WAVES is 4: with so many programs or more, a fifth of the machine stands idle at the worst."""
    for machines in (1, 60, 132, 304):
        wanted = WAVES * machines
        assert min(occupancy(n, machines) for n in range(wanted, 3 * wanted)) > WAVES / (WAVES + 1)
