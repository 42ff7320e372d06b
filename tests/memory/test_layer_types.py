"""layer_types: what a file says of each layer is read, or refused where the rest says otherwise."""

import pytest

from kvlab.checkpoint import CheckpointError
from kvlab.memory import ModelSpec, models
from tests.memory.specs import read

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
# Kinds of layer that a word may stand for, in whatever family.
MEANS = {
    FULL: {"full", "latent"},
    SLIDING: {"sliding"},
    CHUNKED: {"chunked"},
    "linear_attention": {"state"},
    "mamba": {"state"},
    "indexed_attention": {"latent"},
    "deepseek_sparse_attention": {"latent"},
    "minimax_m3_sparse": {"full"},
    "heavily_compressed_attention": {"compressed"},
    "new_attention": set(),
}
ONE_A_FAMILY = {row["config"]["model_type"]: row["config"] for row in models().values()}


def owners(spec):
    return [getattr(layer, "owner", layer) for layer in spec.layers]


@pytest.mark.parametrize("word", MEANS)
@pytest.mark.parametrize("family", sorted(ONE_A_FAMILY))
def test_no_family_overlooks_a_word_of_layer_types(family, word):
    """Whatever else decides a family's layers: a list that names another kind is read or refused."""
    config, windows = ONE_A_FAMILY[family], {"sliding_window": 128, "attention_chunk_size": 128}
    count = len(ModelSpec.from_config(config).layers)
    try:
        layers = owners(ModelSpec.from_config(windows | config | {"layer_types": [word] * count}))
    except CheckpointError as error:
        assert len(str(error)) > 20
        return
    if family == "gemma4_text":
        layers.pop()  # which is full in any case
    assert {layer.kind for layer in layers} <= MEANS[word]
    indexed = {getattr(layer, "index_topk", None) is not None for layer in layers}
    assert indexed == {word in ("indexed_attention", "deepseek_sparse_attention", "minimax_m3_sparse")}


def test_layers_without_attention_may_be_called_what_they_are():
    fields = {"mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 6, "n_groups": 2, "conv_kernel": 4}
    fields |= {"hybrid_override_pattern": "M*E-", "head_dim": 8}
    plain = read("nemotron_h", **fields)
    words = ["mamba", "attention", "moe", "mlp"]
    assert read("nemotron_h", layer_types=words, **fields).layers == plain.layers
    with pytest.raises(CheckpointError, match="says sliding_attention of layer 2, and the other fields moe"):
        read("nemotron_h", layer_types=["mamba", "attention", SLIDING, "mlp"], **fields)


def test_a_list_that_repeats_what_was_read_does_no_harm():
    for types in ([FULL] * 4, [FULL] * 5):  # the fifth is for multi-token prediction
        assert read("llama", layer_types=types).layers == read("llama").layers


@pytest.mark.parametrize("family", ["llama", "falcon", "gpt_bigcode", "opt", "qwen2"])
def test_a_family_read_as_plain_has_no_windows(family):
    fields = {"multi_query": True, "use_sliding_window": False, "sliding_window": 5}
    assert read(family, **fields).kinds() == {"full": 4}  # the window alone is a leftover
    says = "config.json: layer_types says sliding_attention of layer 1, and the other fields full_attention"
    with pytest.raises(CheckpointError, match=f"{says}: correct one, or give its layers by hand"):
        read(family, layer_types=[FULL, SLIDING] * 2, **fields)
    with pytest.raises(CheckpointError, match="layer_types has 3 entries for 4 layers"):
        read(family, layer_types=[FULL] * 3, **fields)


def test_a_list_and_a_pattern_that_differ_are_refused():
    config = ONE_A_FAMILY["mimo_v2_flash"]
    types = [SLIDING if mark else FULL for mark in config["hybrid_layer_pattern"]]
    assert ModelSpec.from_config(config | {"layer_types": types}) == ModelSpec.from_config(config)
    with pytest.raises(CheckpointError, match="layer_types says full_attention of layer 1"):
        ModelSpec.from_config(config | {"layer_types": [FULL] * len(types)})


@pytest.mark.parametrize(
    ("types", "says"),
    [
        ([FULL] * 3, "layer_types has 3 entries for 4 layers"),
        ([], "layer_types has 0 entries for 4 layers"),
        ([FULL, "global", SLIDING, FULL], f"layer_types global not known here; known: {FULL}, {SLIDING}"),
        ([FULL, "linear_attention", SLIDING, FULL], "layer_types linear_attention not known here"),
        ([FULL, None, SLIDING, FULL], "layer_types is .*; it must be a list of strings"),
        ([FULL, 1, SLIDING, FULL], "must be a list of strings"),
        ("full_attention", "must be a list of strings"),
        ({"0": FULL}, "must be a list of strings"),
    ],
)
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "olmo3"])
def test_layer_types_too_short_or_strange(family, types, says):
    with pytest.raises(CheckpointError, match=says):
        read(family, head_dim=8, sliding_window=5, layer_types=types)
