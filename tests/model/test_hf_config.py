"""A config.json is obeyed in full or refused: fields of a wrong kind, contradictions, strangers."""

import math

import pytest

import kvlab
from tests.model.test_hf import CONFIG

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "factor": 2.0}
WINDOWED = {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
LONG = "original_max_position_embeddings"
FULL, SLIDING = "full_attention", "sliding_attention"


def read(*absent, **changes):
    raw = CONFIG | changes
    return kvlab.hf.config_from_hf({name: value for name, value in raw.items() if name not in absent})


def refused(says, *absent, **changes):
    with pytest.raises(kvlab.hf.CheckpointError, match=says):
        read(*absent, **changes)


SIZES = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
]


@pytest.mark.parametrize("value", [None, True, 4.0, "4", [4], {}, 0, -4, math.nan])
@pytest.mark.parametrize("name", [*SIZES, "num_key_value_heads", "head_dim"])
def test_sizes_are_positive_integers(name, value):
    if value is None and name not in SIZES:  # null: the usual
        assert read(hidden_size=24, **{name: None}) == read(name, hidden_size=24)
    else:
        refused(f"config.json: {name} is .*; it must be an integer, 1 or more", **{name: value})


def test_null_heads_and_null_head_size():
    refused("num_attention_heads is null", num_attention_heads=None, head_dim=None)
    refused("hidden_size is null", hidden_size=None, head_dim=None)
    refused("hidden_size 20 does not divide into num_attention_heads 6", head_dim=None)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_there(name):
    refused(f"config.json lacks {name}", name)


@pytest.mark.parametrize("value", [True, 4.0, "4", [4], -1])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_windows_are_integers(family, value):
    refused("sliding_window is .*; it must be an integer", model_type=family, sliding_window=value)
    refused("max_window_layers is", model_type=family, max_window_layers=value)


def test_a_window_of_nothing():
    refused("a window holds at least the token itself", model_type="mistral", sliding_window=0)


@pytest.mark.parametrize("value", ["false", "true", 0, 1, None, []])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("name", ["use_sliding_window", "attention_bias", "mlp_bias", "tie_word_embeddings"])
def test_flags_are_true_or_false(family, name, value):
    refused(f"{name} is .*; it must be true or false", model_type=family, **{name: value})


@pytest.mark.parametrize("value", [None, 0, -1e-6, math.nan, math.inf, True, "1e-5", [1e-5], 10**400])
def test_numbers_are_positive(value):
    refused("rms_norm_eps is .*; it must be a number above 0", rms_norm_eps=value)
    refused("rope_theta is .*; it must be a number above 0", rope_theta=value)
    refused("rope_theta is", rope_parameters={"rope_type": "default", "rope_theta": value})
    refused("'linear': factor is .*; it must be a number above 0", rope_scaling=LINEAR | {"factor": value})
    for name in ("factor", "low_freq_factor", "high_freq_factor"):
        refused(f"'llama3': {name} is", rope_scaling=LLAMA3 | {name: value})
    refused("original_max_position_embeddings is", rope_scaling=LLAMA3 | {LONG: value})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling lacks rope_type"),
        ({"rope_scaling": {"rope_theta": 7.0}}, "rope_scaling lacks rope_type"),
        ({"rope_parameters": {"factor": 2.0}}, "rope_parameters lacks rope_type"),
        ({"rope_scaling": {"type": None, "factor": 2.0}}, "type is null; it must be a string"),
        ({"rope_scaling": {"type": ["linear"], "factor": 2.0}}, "type is .*; it must be a string"),
        ({"rope_scaling": LINEAR | {"type": "dynamic"}}, "type twice, as 'linear' and 'dynamic'"),
        (
            {"rope_parameters": {"rope_type": "default"}, "rope_scaling": LINEAR},
            "rope_parameters and rope_scaling disagree",
        ),
        (
            {"rope_parameters": LINEAR, "rope_scaling": LINEAR | {"factor": 4.0}},
            "rope_parameters and rope_scaling disagree",
        ),
        ({"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 7.0}, "rope_theta twice, as 5.0 and 7.0"),
        ({"rope_scaling": LLAMA3, LONG: 4096}, f"{LONG} twice, as 8192 and 4096"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "low_freq_factor 4.0 must be below"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 5}}, "low_freq_factor 5.0 must be below"),
        ({"rope_parameters": {FULL: LINEAR, SLIDING: LINEAR}}, f"differs by layer \\({FULL}, {SLIDING}\\)"),
        ({"rope_parameters": {FULL: None}}, "differs by layer"),
        ({"rope_parameters": [LINEAR]}, "rope_parameters is .*; it must be an object or null"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be an object or null"),
        ({"rope_scaling": {"rope_type": "default", "factor": 8.0}}, "'default': factor 8.0 is not covered"),
        ({"rope_scaling": LINEAR | {"attention_factor": 0.5}}, "'linear': attention_factor 0.5"),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}, "mrope_section"),
        ({"rope_parameters": LINEAR | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
    ],
)
def test_rope_that_contradicts_itself_or_is_more_than_the_decoder_does(changes, says):
    refused(says, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": LLAMA3, "rope_theta": 500_000},
        {"rope_scaling": LLAMA3 | {"type": "llama3", "rope_theta": 500_000.0}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 500_000.0}, "rope_scaling": None},
        {"rope_parameters": LLAMA3, "rope_scaling": {}, "rope_theta": 500_000.0, LONG: 8192},
        {"rope_parameters": LLAMA3, "rope_scaling": LLAMA3, "rope_theta": 500_000.0},
        {"rope_scaling": LLAMA3 | {"partial_rotary_factor": None, "mscale": None}, "rope_theta": 5e5},
    ],
)
def test_one_rope_in_many_spellings(changes):
    config = read(**changes)
    assert config.rope_theta == 500_000.0
    scaling = config.rope_scaling
    assert (scaling.kind, scaling.factor, scaling.low_freq_factor) == ("llama3", 32.0, 1.0)
    assert (scaling.high_freq_factor, scaling.original_max_positions) == (4.0, 8192)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_local_experts", 8),
        ("num_experts", 2),
        ("num_experts", "8"),
        ("n_routed_experts", [8]),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("residual_multiplier", 0.22),
        ("logits_scaling", 16),
        ("embedding_multiplier", 12),
        ("attention_multiplier", 0.0078125),
        ("query_pre_attn_scalar", 256),
        ("logit_scale", 0.0625),
        ("clip_qkv", 8.0),
        ("use_mrope", True),
        ("no_rope_layers", [1, 1, 0]),
        ("hidden_act", "gelu"),
        ("partial_rotary_factor", True),
    ],
)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_fields_of_other_architectures(family, name, value):
    refused(f"config.json: {name} .* is not covered", model_type=family, **{name: value})
    assert read(model_type=family, **{name: None}) == read(model_type=family)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_local_experts", 0),
        ("num_experts", 1),
        ("residual_multiplier", 1),
        ("logits_scaling", 1.0),
        ("embedding_multiplier", 1.0),
        ("attention_multiplier", 8**-0.5),
        ("use_mrope", False),
        ("partial_rotary_factor", 1),
    ],
)
def test_fields_of_other_architectures_that_change_nothing(name, value):
    assert read(**{name: value}) == read()


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention"])
def test_layers_of_unknown_kinds(family, kind):
    for switch in (True, False):
        refused(
            f"layer_types has \\['{kind}'\\]",
            model_type=family,
            layer_types=[kind, FULL, SLIDING],
            use_sliding_window=switch,
            sliding_window=5,
        )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layer_types": [SLIDING] * 3}, "every layer is full_attention"),
        ({"model_type": "mistral", "layer_types": [SLIDING, FULL, FULL]}, "every layer is sliding_attention"),
        ({"model_type": "qwen2", "layer_types": [SLIDING] * 3}, "every layer is full_attention"),
        (WINDOWED | {"layer_types": [SLIDING] * 2}, "layer_types has 2 entries for 3 layers"),
        ({"layer_types": FULL}, "layer_types is .*; it must be a list of strings"),
        ({"layer_types": [None] * 3}, "layer_types is .*; it must be a list of strings"),
    ],
)
def test_layers_that_contradict_the_switch(changes, says):
    refused(says, **changes)


@pytest.mark.parametrize(
    ("absent", "changes", "windows"),
    [
        ((), {"sliding_window": 4096}, ()),  # Llama knows no window
        ((), {"layer_types": [FULL] * 3}, ()),
        ((), {"model_type": "mistral"}, (4096,) * 3),
        ((), {"model_type": "mistral", "sliding_window": None}, ()),
        ((), {"model_type": "mistral", "sliding_window": 7, "layer_types": [SLIDING] * 3}, (7,) * 3),
        ((), {"model_type": "qwen2", "sliding_window": 7, "layer_types": [FULL] * 3}, ()),
        (
            (),
            {"model_type": "qwen2", "use_sliding_window": True, "num_hidden_layers": 30},
            (None,) * 28 + (4096,) * 2,
        ),
        ((), WINDOWED, (None, 5, 5)),
        ((), WINDOWED | {"sliding_window": None}, ()),
        ((), WINDOWED | {"sliding_window": 10**6}, (None, 10**6, 10**6)),  # longer than the context
        ((), WINDOWED | {"layer_types": [SLIDING, FULL, SLIDING]}, (5, None, 5)),
        (("max_window_layers",), WINDOWED, ()),
    ],
)
def test_windows_by_hugging_faces_defaults(absent, changes, windows):
    assert read(*absent, **changes).windows == windows


def test_other_defaults_are_hugging_faces():
    for family in ("llama", "mistral", "qwen2", "qwen3"):
        config = read("rms_norm_eps", "tie_word_embeddings", model_type=family)
        assert (config.norm_eps, config.rope_theta, config.tied_embeddings) == (1e-6, 10_000.0, False)
    absent = ("num_key_value_heads", "head_dim")
    assert read(*absent, hidden_size=24).num_kv_heads == 6
    for family, num_kv_heads, head_dim in (("mistral", 8, 4), ("qwen2", 32, 4), ("qwen3", 32, 128)):
        changes = dict(model_type=family, num_attention_heads=64, hidden_size=256)
        config = read(*absent, **changes)
        assert (config.num_kv_heads, config.head_dim) == (num_kv_heads, head_dim)
        assert read("head_dim", **changes | {"num_key_value_heads": None}).num_kv_heads == 64


def test_only_a_dictionary_is_a_config():
    with pytest.raises(TypeError, match="config_from_hf was given list"):
        kvlab.hf.config_from_hf([])
