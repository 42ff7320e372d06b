"""Parts cover a context exactly, no more than asked, as many as keep a GPU busy; tiles are within limits."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.kernels.splits import ENOUGH, MOST, SHORTEST, choose, occupancy, share
from kvlab.kernels.triton_attention import padded
from kvlab.kernels.triton_launch import tiling

tokens = st.integers(0, 20_000)
splits = st.integers(1, 300)
tiles = st.sampled_from([16, 32, 64, 128, 512])
programs = st.integers(1, 20) | st.integers(1, 5000)
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


def real(tokens, parts, tile):
    """Parts that a context is cut into when ``parts`` are asked for, since they are of whole tiles."""
    return max(1, -(-tokens // share(tokens, parts, tile)))


@given(programs, tokens, tiles, machines)
def test_the_fewest_parts_that_keep_a_gpu_busy_enough_or_as_busy_as_can_be(programs, tokens, tile, machines):
    chosen = choose(programs, tokens, tile, machines)
    limit = min(MOST, max(1, tokens // max(SHORTEST, tile)))
    busy = {n: occupancy(programs * real(tokens, n, tile), machines) for n in range(1, limit + 1)}
    assert 1 <= chosen <= limit and real(tokens, chosen, tile) == chosen
    assert busy[chosen] >= min(ENOUGH, max(busy.values()))
    assert all(each < min(ENOUGH, busy[chosen]) for n, each in busy.items() if real(tokens, n, tile) < chosen)


@pytest.mark.parametrize(
    ("programs", "tokens", "tile", "machines", "parts"),
    [
        (8, 32_768, 64, 132, 15),  # a sequence of 8 KV heads on an H100: 120 programs, 91% busy
        (8, 4096, 64, 132, 16),  # 15 parts of whole tiles would be 13
        (128, 8192, 64, 132, 1),  # 97% busy as they are
        (136, 8192, 64, 132, 7),  # two turns, the second all but empty; 952 programs fill 7.2 turns
        (8, 1000, 64, 132, 3),  # parts of 256 tokens at least
        (8, 100, 64, 132, 1),
        (8, 0, 64, 132, 1),
        (160, 600, 64, 300, 1),  # two parts would be no busier
        (1, 2100, 512, 132, 3),  # parts of a tile at least
        (1, 10**6, 512, 304, 64),  # more parts are never merged
        (512, 32_768, 64, 132, 1),
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


@pytest.mark.parametrize("rows", [1, 5, 16, 17, 40, 64, 65, 1000])
def test_the_usual_tiles_are_powers_of_two_and_no_higher_than_there_are_rows(rows):
    widths = [(width, False) for width in (1, 64, 80, 128, 192, 256)] + [(64, True), (512, True)]
    for (width, latent), itemsize in product(widths, (2, 4)):
        tiles = tiling(rows, width + 64 * latent, width, latent, itemsize)
        for side in (tiles.rows, tiles.tokens):
            assert side >= 16 and side.bit_count() == 1
        assert tiles.rows == 16 or tiles.rows < 2 * rows
        assert tiles.rows * padded(width) <= 2**14  # numbers that a program sums
    assert [padded(width) for width in (1, 16, 17, 64, 80, 512)] == [16, 16, 32, 64, 128, 512]
