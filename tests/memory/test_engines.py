"""What engines set aside, by hand, where no published figure says it; see test_published for the rest."""

from dataclasses import replace

import pytest

from kvlab.memory import ModelSpec
from kvlab.memory.engines import (
    Blocks,
    Buffers,
    llamacpp_buffers,
    llamacpp_cells,
    llamacpp_states,
    sglang_buffers,
    vllm_blocks,
)
from kvlab.memory.formats import FORMATS
from kvlab.memory.layers import Attention, State

STATE = State(
    heads=2, channels=10, columns=3, values=90, conv_form=FORMATS["bf16"], state_form=FORMATS["fp32"]
)
FULL = Attention(2, 3, 4)  # 2 heads x (3 + 4) values x 2 bytes = 28 bytes a token


def hybrid(full, states):
    return ModelSpec("hybrid", (FULL,) * full + (STATE,) * states, query_heads=2)


def test_cells_are_a_multiple_of_256():
    assert [llamacpp_cells(n) for n in (0, 1, 256, 300)] == [0, 256, 256, 512]
    assert llamacpp_cells(8192, window=1000, sequences=3, ubatch=500) == 3584  # 3,500, padded
    assert llamacpp_cells(2000, window=1000, sequences=3, ubatch=500) == 2048  # never more than the context


def test_keys_and_values_of_two_widths():
    spec = ModelSpec("two widths", (Attention(2, 3, 4), Attention(1, 3, 4, window=50)), query_heads=2)
    assert llamacpp_buffers(spec, 300, ubatch=7) == {
        "full": Buffers(keys=512 * 2 * 3 * 2, values=512 * 2 * 4 * 2),
        "sliding": Buffers(keys=256 * 3 * 2, values=256 * 4 * 2),
    }
    assert sglang_buffers(hybrid(3, 5), 100, tp=2, page_size=16) == Buffers(116 * 3 * 3 * 2, 116 * 3 * 4 * 2)
    assert Buffers(5, 7).total == 12


def test_a_state_decides_the_block():
    """A state takes 60 + 360 = 420 bytes, and each token drafted ahead 20 more; a token 28 bytes."""
    assert vllm_blocks(hybrid(2, 6), block_size=4) == Blocks(16, 2 * 16 * 28, groups=1, state_blocks=3 * 2)
    drafting = vllm_blocks(hybrid(2, 6), block_size=4, speculative_tokens=3, prefix_caching=False)
    assert drafting == Blocks(20, 2 * 20 * 28, groups=1, state_blocks=3 * 4)  # 480 bytes: 17.1 tokens
    assert (drafting.needed(41), drafting.longest(15), drafting.longest(14)) == (3 + 12, 60, 40)
    assert drafting.cut(3 * 1120 - 1) == 2
    assert vllm_blocks(hybrid(2, 0), block_size=4) == Blocks(4, 2 * 4 * 28)


def test_a_group_has_as_many_layers_as_the_rarer_kind():
    """Or as the commoner kind, where that is less than half as many again."""
    sizes = {(full, states): vllm_blocks(hybrid(full, states)) for full, states in ((4, 6), (5, 7), (7, 5))}
    assert [blocks.block_bytes // (16 * 28) for blocks in sizes.values()] == [4, 7, 7]
    assert [(blocks.groups, blocks.state_blocks) for blocks in sizes.values()] == [(1, 4), (1, 2), (1, 2)]


def test_what_is_not_covered_is_refused():
    latent = ModelSpec.uniform_latent(layers=2, kv_lora_rank=8, rope_dim=4, query_heads=2)
    slides = ModelSpec.uniform(layers=2, kv_heads=2, head_dim=4, window=8)
    for call in (
        lambda: vllm_blocks(slides),
        lambda: sglang_buffers(latent, 10),
        lambda: llamacpp_buffers(latent, 10),
    ):
        with pytest.raises(ValueError, match="does not cover layers of kind"):
            call()
    with pytest.raises(ValueError, match="no cache in fp8"):
        llamacpp_buffers(hybrid(1, 1), 10, "fp8")
    uneven = replace(hybrid(1, 1), layers=(FULL, Attention(1, 3, 4), STATE))
    with pytest.raises(ValueError, match="one size beside states"):
        vllm_blocks(uneven)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: vllm_blocks(hybrid(2, 6), block_size=0), "block_size"),
        (lambda: vllm_blocks(hybrid(2, 0), block_size=-16), "block_size"),
        (lambda: vllm_blocks(hybrid(2, 6), speculative_tokens=-1), "speculative_tokens"),
        (lambda: Blocks(4, 5).cut(-1), "available"),
        (lambda: Blocks(4, 5).needed(1.5), "tokens"),
        (lambda: Blocks(4, 5).longest(-1), "blocks"),
        (lambda: Blocks(4, 5).reported(2.0, 3), "blocks"),
        (lambda: Blocks(4, 5).reported(2, 0), "max_tokens"),
        (lambda: sglang_buffers(hybrid(1, 1), -1), "tokens"),
        (lambda: sglang_buffers(hybrid(1, 1), 1, page_size=0), "page_size"),
        (lambda: llamacpp_cells(-1), "tokens"),
        (lambda: llamacpp_cells(1, window=0), "window"),
        (lambda: llamacpp_cells(1, sequences=0), "sequences"),
        (lambda: llamacpp_buffers(hybrid(1, 1), 1, ubatch=0.5), "ubatch"),
        (lambda: llamacpp_states(hybrid(1, 1), sequences=0), "sequences"),
        (lambda: llamacpp_states(hybrid(1, 1), rollback=-1), "rollback"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(call, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name} is .*; it must be"):
        call()


def test_blocks_that_states_fill_leave_no_tokens():
    assert Blocks(16, 100, state_blocks=3).longest(2) == 0
