"""What is not understood in full is refused, in a sentence that names the value, the limit and the remedy."""

import json
import math

import pytest

from kvlab.checkpoint import CheckpointError
from kvlab.memory import FAMILIES, ModelSpec, UnknownArchitecture, kv_bytes, models
from tests.memory.specs import MLA

LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 48},
    **{"num_attention_heads": 6, "num_key_value_heads": 2},
}


def refused(says, config, error=CheckpointError):
    with pytest.raises(error, match=says) as caught:
        ModelSpec.from_config(config)
    return str(caught.value)


def changed(*absent, **fields):
    return {name: value for name, value in (LLAMA | fields).items() if name not in absent}


@pytest.mark.parametrize("family", ["mamba", "t5", "bert", "LLAMA", "whisper", "", "llama "])
def test_an_unknown_architecture(family):
    text = refused(
        f"model_type '{family}'.*Known: .*by hand", changed(model_type=family), UnknownArchitecture
    )
    assert all(known in text for known in FAMILIES)
    assert "ModelSpec.uniform(layers=" in text and "where they differ ModelSpec(name, (Attention(" in text


@pytest.mark.parametrize("inside", ["llm_config", "language_config", "thinker_config"])
def test_a_language_model_in_an_object_that_is_not_looked_into(inside):
    config = {"model_type": "some_vl", inside: LLAMA}
    refused(f"stands in {inside}: give that object alone", config, UnknownArchitecture)
    assert ModelSpec.from_config(config[inside]).kinds() == {"full": 4}


@pytest.mark.parametrize(
    "config", [changed("model_type"), {}, {"text_config": None}, {"text_config": [LLAMA]}]
)
def test_no_architecture_at_all(config):
    refused("does not say its model_type", config, UnknownArchitecture)


def test_the_object_that_lacks_a_field_is_named():
    """The inner one of two, and why it may be missing."""
    inner = {name: value for name, value in LLAMA.items() if name != "num_hidden_layers"}
    says = "config.json, text_config lacks num_hidden_layers; transformers leaves out .*: add the field"
    refused(says, LLAMA | {"text_config": inner})
    refused("^config.json lacks num_hidden_layers; transformers leaves out", inner)
    assert "null" not in refused("lacks num_hidden_layers", inner)  # which no model may have none of
    inner = changed(model_type="cohere", num_key_value_heads=None)
    refused("^config.json, text_config does not say num_key_value_heads", {"text_config": inner})
    inner = changed(n_layer=5)
    refused("^config.json, text_config contradicts itself", {"text_config": inner})


def test_an_architecture_that_only_the_inner_part_says():
    assert ModelSpec.from_config({"text_config": LLAMA}).layers == ModelSpec.from_config(LLAMA).layers


@pytest.mark.parametrize("family", [["llama"], {"a": 1}, 5, True, ["x"]])
def test_an_architecture_that_is_no_name(family):
    refused("model_type", changed(model_type=family), UnknownArchitecture)


def test_an_unknown_architecture_inside_another():
    config = {"model_type": "some_vl", "text_config": changed(model_type="mamba")}
    refused("model_type 'mamba'", config, UnknownArchitecture)
    config = {"model_type": "some_vl", "text_config": changed("model_type")}
    refused("model_type 'some_vl_text'", config, UnknownArchitecture)


SIZES = ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"]


@pytest.mark.parametrize("value", [0, -4, 4.0, "4", True, [4], {}, math.nan])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_positive_whole_numbers(name, value):
    config = changed(**{name: value}) | ({"head_dim": None} if name == "hidden_size" else {})
    text = refused(f"config.json: {name} is .*; it must be an integer, 1 or more", config)
    assert str(value) in text or isinstance(value, float)


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_attention_heads", "hidden_size"])
@pytest.mark.parametrize("absent", [True, False])
def test_sizes_are_there(name, absent):
    refused(name, changed(name) if absent else changed(**{name: None}))


@pytest.mark.parametrize(
    ("family", "fields", "says"),
    [
        ("falcon", {"num_kv_heads": 6}, "does not say multi_query: .*Add it"),
        ("gpt_bigcode", {}, "does not say multi_query: .*Add it"),
        ("falcon", {"new_decoder_architecture": True, "num_key_value_heads": None}, "num_kv_heads is null"),
        ("qwen3", {}, "does not say head_dim, which qwen3 models choose freely: add"),
        ("gemma2", {"sliding_window": 5}, "does not say head_dim"),
        ("gemma2", {"head_dim": 8}, "sliding_window is null"),
        (
            "cohere",
            {"num_key_value_heads": None},
            "num_key_value_heads, in which cohere models differ: add it",
        ),
        (
            "smollm3",
            {"use_sliding_window": True, "sliding_window": 5},
            "layer_types, which this family needs",
        ),
        ("granitemoehybrid", {}, "does not say layer_types"),
        ("mistral", {}, "lacks sliding_window; .* add the field, null for none"),
        ("llama4_text", {"head_dim": 8}, "lacks attention_chunk_size; .* null for none"),
        (
            "gemma3n_text",
            {"head_dim": 8, "sliding_window": 5},
            "lacks num_kv_shared_layers; .* null for none",
        ),
        *[
            (
                family,
                {"use_sliding_window": True, "max_window_layers": 2, "head_dim": 8},
                "lacks sliding_window",
            )
            for family in FAMILIES
            if family.startswith(("qwen2", "qwen3_moe")) or family == "qwen3"
        ],
        ("gemma3_text", {"use_bidirectional_attention": True}, "a token sees those after it"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "a token sees those after it"),
        ("deepseek_v2", {"use_mla": False, **MLA}, "use_mla is false, .*by hand"),
        ("deepseek_v3", {"kv_lora_rank": 20, "qk_rope_head_dim": 6, "v_head_dim": 8}, "qk_nope_head_dim"),
        ("deepseek_v3", {"qk_rope_head_dim": 6}, "kv_lora_rank"),
        ("deepseek_v4", {"head_dim": 8, "sliding_window": 5}, "compress_ratios must say 0, 4 or 128"),
        ("mimo_v2_flash", {"head_dim": 8}, "hybrid_layer_pattern must mark each of the 4 layers"),
        ("kimi_linear", {}, "linear_attn_config"),
        ("nemotron-nas", {}, "block_configs must describe the attention of every layer"),
    ],
)
def test_what_a_family_has_to_say(family, fields, says):
    refused(says, changed(model_type=family, **fields))


@pytest.mark.parametrize("wrong", [8, -4, 4.0, "4", True, False, None, [4]])
def test_compression_ratios_are_of_those_known(wrong):
    fields = {"model_type": "deepseek_v4", "head_dim": 8, "sliding_window": 5}
    assert ModelSpec.from_config(changed(**fields, compress_ratios=[0, 128, 0, 128])).layers
    refused("compress_ratios must say 0, 4 or 128", changed(**fields, compress_ratios=[0, 128, 0, wrong]))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"head_dim": None, "hidden_size": 50}, "hidden_size 50 does not divide into 6 heads"),
        ({"num_key_value_heads": 4}, "6 query heads cannot share 4 KV heads evenly: one is wrong"),
        ({"num_key_value_heads": 12}, "6 query heads cannot share 12 KV heads evenly"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers is above 10,000"),
        ({"n_layer": 5}, "contradicts itself: .*'num_hidden_layers': 4, 'n_layer': 5"),
        ({"n_head": 3}, "contradicts itself: .*'n_head': 3"),
        ({"n_embd": 64}, "contradicts itself: .*'n_embd': 64"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "contradicts itself: .*'dtype': 'float16'"),
        ({"sliding_window_pattern": 5, "_sliding_window_pattern": 6}, "contradicts itself: .*5.*6"),
        ({"block_types": ["attention"], "_block_types": ["recurrent"]}, "contradicts itself"),
        ({"num_nextn_predict_layers": "x"}, "num_nextn_predict_layers is 'x'; it must be an integer"),
        ({"num_nextn_predict_layers": -1}, "num_nextn_predict_layers is -1"),
        ({"num_nextn_predict_layers": 1.0}, "num_nextn_predict_layers is 1.0"),
        ({"mtp_num_hidden_layers": [1]}, "mtp_num_hidden_layers is"),
        ({"num_experts": 4, "num_local_experts": 8}, "contradicts itself"),
        ({"torch_dtype": "float64"}, "unknown dtype 'float64'; known: fp32, bf16"),
        ({"torch_dtype": 16}, "dtype is 16; it must be a string"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"max_position_embeddings": "4096"}, "max_position_embeddings is '4096'"),
    ],
)
def test_contradictions(fields, says):
    refused(says, changed(**fields))


def test_spellings_that_agree():
    assert ModelSpec.from_config(changed(n_layer=4, n_head=6, n_embd=48)).layers
    assert ModelSpec.from_config(changed(n_layer=None)).layers


def test_differences_by_layer_are_not_overlooked():
    """transformers 5 may override fields of single layers, in any family."""
    overrides = {"1": {"num_key_value_heads": 6}}
    try:
        layers = ModelSpec.from_config(changed(per_layer_config=overrides)).layers
    except CheckpointError as error:
        assert "per_layer_config" in str(error)
    else:
        assert [layer.kv_heads for layer in layers] == [2, 6, 2, 2]
    assert ModelSpec.from_config(changed(per_layer_config={})) == ModelSpec.from_config(LLAMA)


def test_a_family_whose_layers_cannot_be_told_apart_is_not_guessed():
    """With the window on, transformers slides every other layer of Qwen2-MoE below max_window_layers, and of
    Qwen3-MoE every layer; Qwen2's own rule, those from max_window_layers on, is that of neither."""
    fields = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2, "head_dim": 8}
    for family, theirs in (("qwen2_moe", [5, None, None, None]), ("qwen3_moe", [5, 5, 5, 5])):
        try:
            layers = ModelSpec.from_config(changed(model_type=family, **fields)).layers
        except CheckpointError:
            continue
        assert [layer.window for layer in layers] == theirs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "this is no JSON .*: paste a whole config.json"),
        ("{", "this is no JSON"),
        ("{'model_type': 'llama'}", "this is no JSON"),
        ("model_type: llama", "this is no JSON"),
        ("[]", "this is a JSON list: paste a whole config.json"),
        ("null", "this is a JSON NoneType"),
        ('"llama"', "this is a JSON str"),
        ('"num_hidden_layers": 4', "this is no JSON"),
    ],
)
def test_text_that_is_no_config(text, says):
    with pytest.raises(ValueError, match=says):
        ModelSpec.from_json(text)


def test_text_nested_too_deeply():
    with pytest.raises(ValueError, match="JSON"):
        ModelSpec.from_json("[" * 100_000)


@pytest.mark.parametrize("config", [None, 5, [LLAMA], b"config.json", json])
def test_what_is_no_config_at_all(config):
    with pytest.raises(TypeError, match="from_config was given .*; it takes a dict or a path"):
        ModelSpec.from_config(config)


def test_files(tmp_path):
    file = tmp_path / "config.json"
    refused("config.json is missing", tmp_path)
    refused("config.json is missing", str(file))
    for content, says in (("{", "is not valid JSON"), ("[]", "holds a list"), ("null", "holds null")):
        file.write_text(content, encoding="utf-8")
        refused(f"config.json {says}", tmp_path)
    file.write_bytes(b"\xff\xfe{")
    refused("is not UTF-8", file)
    file.write_text("﻿" + json.dumps(LLAMA), encoding="utf-8")  # a byte-order mark
    assert ModelSpec.from_config(tmp_path).layers == ModelSpec.from_config(LLAMA).layers


@pytest.mark.parametrize("parameters", [0, -1, 7e9, True, "7B"])
def test_parameters_are_a_whole_number(parameters):
    spec = ModelSpec.from_config(LLAMA)
    with pytest.raises((TypeError, ValueError), match="parameters is"):
        spec.with_parameters(parameters)
    with pytest.raises((TypeError, ValueError), match="active_parameters is"):
        spec.with_parameters(10, parameters or -1)  # 0 is for a model that is drawn without weights
    for more in ({"active_parameters": 11}, {"expert_parameters": 11}):
        with pytest.raises(ValueError, match="is 11, more than all 10 parameters"):
            spec.with_parameters(10, **more)


def test_a_config_is_not_changed_by_reading_it():
    for row in models().values():
        before = json.dumps(row["config"])
        ModelSpec.from_config(row["config"])
        assert json.dumps(row["config"]) == before


@pytest.mark.parametrize("junk", [None, 5, [], {}, ["fp8"], "?"])
def test_junk_in_how_weights_are_quantised(junk):
    for quantization in (junk, {"quant_method": junk}):
        spec = ModelSpec.from_config(changed(quantization_config=quantization))
        assert spec.layers == ModelSpec.from_config(LLAMA).layers


JUNK = [None, "x", "false", "", [], {}, -1, 0, True, 1.5, math.nan, [[]], [{}], [None], ["x"], [5], {"a": 1}]

ONE_A_FAMILY = {row["config"]["model_type"]: row["config"] for row in models().values()}


@pytest.mark.parametrize("family", sorted(ONE_A_FAMILY))
def test_junk_in_any_field_is_read_or_refused_and_never_a_crash(family):
    config = ONE_A_FAMILY[family]
    more = ["text_config", "num_key_value_heads", "layer_types", "use_sliding_window", "block_types", "dtype"]
    for name in {*config, *more}:
        for junk in JUNK:
            try:
                kv_bytes(ModelSpec.from_config(config | {name: junk}), 10)
            except ValueError as error:
                assert len(str(error)) > 20 and "\n" not in str(error), (name, junk)
            except Exception as error:
                raise AssertionError(f"{name} = {junk!r}: {type(error).__name__}: {error}") from error
