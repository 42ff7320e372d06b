"""Layers of different kinds in one model: states, attention, and none at all, as each family spells them."""

import pytest

from kvlab.memory import Attention, Layer, ModelSpec, State, cost
from tests.memory.specs import MLA, read

MAMBA = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 10, "mamba_n_groups": 2, "mamba_d_conv": 5}


def test_granite_carries_fields_of_layers_that_it_has_not():
    dense = read("granitemoehybrid", layer_types=["attention"] * 4, **MAMBA)
    assert dense.layers == (Attention(2, 8, 8),) * 4
    mixed = read("granitemoehybrid", layer_types=["mamba", "attention", "mamba", "mamba"], **MAMBA)
    assert mixed.kinds() == {"state": 3, "full": 1}
    one = cost(mixed, 100, dtype="fp8")
    assert one.bytes_per_token == 2 * 2 * 8
    assert one.bytes_constant == 3 * (4 * (96 + 2 * 2 * 10) * 2 + 960 * 4)  # in formats of their own
    assert {layer.kind for layer in ModelSpec.named("Granite-4.0-Micro (dense)").layers} == {"full"}


def test_kimi_counts_layers_from_one():
    linear = {"num_heads": 5, "head_dim": 16, "short_conv_kernel_size": 4}
    lists = {"full_attn_layers": [1, 4], "kda_layers": [2, 3]}
    spec = read("kimi_linear", **MLA, linear_attn_config=linear | lists)
    assert [layer.kind for layer in spec.layers] == ["latent", "state", "state", "latent"]
    for wrong in ([0, 3], [1], [1, 5], [1, 2], [1, 4, 3]):
        with pytest.raises(ValueError, match="must name each layer from 1 to 4 once"):
            read("kimi_linear", **MLA, linear_attn_config=linear | lists | {"full_attn_layers": wrong})


NEMOTRON = {"mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 10, "n_groups": 2, "conv_kernel": 5}


def test_nemotron_spells_its_layers():
    spec = read("nemotron_h", hybrid_override_pattern="M*-EMM", head_dim=8, **NEMOTRON)
    assert spec.layers[1:] == (Attention(2, 8, 8), Layer(), Layer())
    assert isinstance(spec.layers[0], State)
    for wrong in ("M*-", "M*-X", "m*-E"):
        with pytest.raises(ValueError, match="hybrid_override_pattern must be"):
            read("nemotron_h", hybrid_override_pattern=wrong, head_dim=8, **NEMOTRON)


def test_nemotron_names_its_head_in_another_field():
    """attention_head_dim; hidden/heads is another number in most of its models."""
    fields = NEMOTRON | {"hybrid_override_pattern": "M*-E"}
    with pytest.raises(ValueError, match="head_dim"):
        read("nemotron_h", **fields)
    assert read("nemotron_h", attention_head_dim=12, **fields).layers[1] == Attention(2, 12, 12)


def test_nemotron_in_its_newer_spelling():
    """As Nemotron-3-Ultra and transformers 5 write it, without a number of layers."""
    types = {"layers_block_type": ["mamba", "attention", "mlp", "moe"]}
    spelled = read("nemotron_h", hybrid_override_pattern="M*-E", head_dim=8, **NEMOTRON)
    assert read("nemotron_h", "num_hidden_layers", head_dim=8, **NEMOTRON | types).layers == spelled.layers
    types = {"layers_block_type": ["linear_attention", "full_attention", "mlp", "moe"]}
    assert read("nemotron_h", "num_hidden_layers", head_dim=8, **NEMOTRON | types).layers == spelled.layers


def block(**attention):
    return {"attention": {"no_op": False, "replace_with_linear": False, "n_heads_in_group": None} | attention}


def test_blocks_that_architecture_search_left_without_attention():
    blocks = [
        block(n_heads_in_group=2),
        block(no_op=True),
        block(replace_with_linear=True),
        block(n_heads_in_group=6),
    ]
    spec = read("nemotron-nas", num_key_value_heads=None, block_configs=blocks)
    assert spec.layers == (Attention(3, 8, 8), Layer(), Layer(), Attention(1, 8, 8))
    with pytest.raises(ValueError, match=r"block_configs\[1\].*n_heads_in_group is null"):
        read("nemotron-nas", block_configs=[block(n_heads_in_group=2), block()] * 2)
    with pytest.raises(ValueError, match="6 query heads do not divide into groups of 4"):
        read("nemotron-nas", block_configs=[block(n_heads_in_group=4)] * 4)


def test_blocks_beyond_the_model_are_not_read():
    blocks = [block(n_heads_in_group=2)] * 4
    spec = read("nemotron-nas", block_configs=[*blocks, None, block(n_heads_in_group=4)])
    assert spec.layers == (Attention(3, 8, 8),) * 4


def test_recurrent_gemma_repeats_its_blocks():
    fields = {"block_types": ["recurrent", "attention"], "attention_window_size": 5, "head_dim": 8}
    assert read("recurrent_gemma", **fields).kinds() == {"state": 2, "sliding": 2}
    with pytest.raises(ValueError, match="block"):
        read("recurrent_gemma", **fields | {"block_types": ["recurrent", "convolution"]})
    with pytest.raises(ValueError, match=r"block_types is \[\]; it must list"):
        read("recurrent_gemma", **fields | {"block_types": []})


def states_note(spec):
    return any("states are counted in fp32, since the config does not say" in note for note in spec.notes)


DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 10}
DELTA |= {"linear_value_head_dim": 14, "linear_conv_kernel_dim": 4, "head_dim": 8}
JAMBA = {"attn_layer_period": 4, "attn_layer_offset": 2, "mamba_expand": 2, "mamba_d_conv": 4}
OPEN = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), DELTA),
    "granitemoehybrid": MAMBA | {"layer_types": ["mamba", "attention", "mamba", "mamba"]},
    "jamba": JAMBA | {"mamba_d_state": 10},
}
FP32_ANYWAY = {
    "kimi_linear": MLA
    | {
        "linear_attn_config": {
            **{"num_heads": 5, "head_dim": 16, "short_conv_kernel_size": 4},
            **{"full_attn_layers": [4], "kda_layers": [1, 2, 3]},
        }
    },
    "nemotron_h": NEMOTRON | {"hybrid_override_pattern": "M*-E", "head_dim": 8},
    "recurrent_gemma": {"attention_window_size": 5, "head_dim": 8},
}


@pytest.mark.parametrize("family", OPEN | FP32_ANYWAY)
def test_states_that_are_fp32_by_our_choice_alone_are_noted(family):
    """vLLM keeps these in the convolution's dtype, but those of some families in fp32 by itself."""
    spec = read(family, **(OPEN | FP32_ANYWAY)[family])
    [state] = {layer for layer in spec.layers if layer.kind == "state"}
    assert state.state_form.name == "fp32" and states_note(spec) == (family in OPEN)


@pytest.mark.parametrize("name", ["mamba_ssm_dtype", "mamba_ssm_cache_dtype"])
def test_states_whose_format_the_file_says(name):
    spec = read("qwen3_next", **DELTA, **{name: "bfloat16"})
    assert spec.layers[0].state_form.name == "bf16" and not states_note(spec)
    assert states_note(read("qwen3_next", **DELTA, **{name: "auto"}, torch_dtype="auto"))
    dense = read("granitemoehybrid", layer_types=["attention"] * 4, **MAMBA)
    assert not states_note(dense)
