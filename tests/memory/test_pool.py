"""What an engine with paged memory sets aside, against one that allocates and frees real blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.memory import FORMATS, Attention, Layer, Shared, allocation, cost
from tests.memory import specs
from tests.memory.specs import few, toy

BF16 = FORMATS["bf16"]
block_sizes = st.integers(1, 40)
ROW = 2 * 2 * 64 * 2  # bytes of a row of Attention(2, 64, 64)


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7, 16, 32])
def test_every_window_against_real_blocks(block_size):
    """Windows to 40, lengths to 120: the most blocks held so far, each freed as the window leaves it."""
    for window in [*range(1, 41), None]:
        layer = toy(Attention(2, 64, 64, window))
        for tokens in range(0, 121, 1 if block_size < 5 else 3):
            pool = allocation(layer, tokens, block_size=block_size, spare_blocks=0)
            needed = specs.blocks_touched(tokens, window, block_size)
            assert pool.total == needed * block_size * ROW, (window, tokens)


def test_the_simulation_frees_blocks():
    """A window of 5 in blocks of 4: 2 blocks at most at 100 tokens, and without freeing 25."""
    assert specs.blocks_touched(100, 5, 4) == 2
    assert specs.blocks_touched(100, 6, 4) == 3
    assert specs.blocks_touched(100, None, 4) == 25


@few
@given(specs.specs(specs.attentions), specs.tokens, specs.sequences, specs.formats, specs.ranks, block_sizes)
def test_layers_and_sequences_in_real_blocks(spec, tokens, sequences, form, tp, block_size):
    pool = allocation(spec, tokens, sequences, form, tp, block_size)
    rows = [layer.row_bytes(FORMATS[form], tp) for layer in spec.layers]
    blocks = [specs.blocks_touched(tokens, layer.window, block_size) for layer in spec.layers]
    expected = sum(block_size * row * n for row, n in zip(rows, blocks, strict=True))
    assert pool.total - pool.spare == sequences * expected
    assert pool.spare == block_size * sum(rows)


@few
@given(specs.specs(), specs.tokens, specs.sequences, specs.formats, specs.ranks, block_sizes)
def test_the_parts_make_the_whole(spec, tokens, sequences, form, tp, block_size):
    pool = allocation(spec, tokens, sequences, form, tp, block_size)
    assert pool.live == cost(spec, tokens, sequences, form, tp).bytes_per_rank
    assert pool.total == pool.live + pool.rounding + pool.windows + pool.spare
    assert min(pool.rounding, pool.windows, pool.spare) >= 0
    more = allocation(spec, tokens + 1, sequences, form, tp, block_size)
    assert more.total >= pool.total


def test_padding_by_hand_and_by_cause():
    """Blocks of 4. 10 tokens in full: 3 blocks, 2 rows of room. A window of 5: rows 5 to 9 of the blocks 4 to
    11, so 3 rows it left behind or has not reached, in the 2 blocks that it needs."""
    full = allocation(toy(Attention(2, 64, 64)), 10, block_size=4, spare_blocks=0)
    assert (full.live, full.rounding, full.windows) == (10 * ROW, 2 * ROW, 0)
    slides = allocation(toy(Attention(2, 64, 64, 5)), 10, block_size=4, spare_blocks=0)
    assert (slides.live, slides.rounding, slides.windows) == (5 * ROW, 0, 3 * ROW)
    short = allocation(toy(Attention(2, 64, 64, 50)), 10, block_size=4, spare_blocks=0)
    assert (short.live, short.rounding, short.windows) == (10 * ROW, 2 * ROW, 0)


def test_spare_blocks_belong_to_all_layers_that_own_a_cache():
    owner = Attention(2, 64, 64)
    spec = toy(owner, Shared(owner), Layer(), Attention(2, 64, 64, 5))
    for spare in (0, 1, 3):
        assert allocation(spec, 100, 7, block_size=16, spare_blocks=spare).spare == spare * 16 * 2 * ROW


@few
@given(specs.specs(specs.states | specs.nothing), specs.tokens, specs.sequences, block_sizes)
def test_states_are_not_paged(spec, tokens, sequences, block_size):
    pool = allocation(spec, tokens, sequences, block_size=block_size)
    assert pool.total == pool.live == sequences * sum(layer.state_bytes() for layer in spec.layers)


@few
@given(specs.specs(), specs.tokens, specs.formats)
def test_blocks_of_one_row_waste_nothing(spec, tokens, form):
    """But for a window, which needs one row at a time and so is never in a block too many."""
    pool = allocation(spec, tokens, dtype=form, block_size=1, spare_blocks=0)
    assert pool.total == pool.live


@pytest.mark.parametrize("value", [0, -1, True, 16.0, "16"])
def test_block_size_is_a_whole_number(value):
    with pytest.raises((TypeError, ValueError), match="block_size is"):
        allocation(toy(Attention(2, 64, 64)), 10, block_size=value)


@pytest.mark.parametrize("value", [-1, True, 1.0])
def test_spare_blocks_are_a_whole_number(value):
    with pytest.raises((TypeError, ValueError), match="spare_blocks is"):
        allocation(toy(Attention(2, 64, 64)), 10, spare_blocks=value)
