"""Weights and caches in formats of their own: what quantization_config asks, and what it leaves open."""

import json
from dataclasses import replace

import pytest

from kvlab.memory import Device, ModelSpec, cost, decode, kv_bytes, models, touched, weight_bytes
from kvlab.memory.roofline import weights_read
from tests.memory.specs import read, toy

FP8 = {"num_bits": 8, "type": "float"}
OPEN = "those that the checkpoint keeps in another, the embeddings and often more, take what that takes."
PLAIN = read("llama")


def quantized(**fields):
    return read("llama", torch_dtype="bfloat16", quantization_config=fields)


def said(spec, words):
    return any(words in note for note in spec.notes)


@pytest.mark.parametrize("method", ["modelopt", "modelopt_fp4", "modelopt_mixed"])
@pytest.mark.parametrize(
    "fields",
    [
        {"kv_cache_scheme": FP8 | {"dynamic": False}},
        {"kv_cache_quant_algo": "FP8"},
        {"kv_cache_quant_algo": "fp8"},
        {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
        {"quantization": {"kv_cache_scheme": FP8}},
    ],
)
def test_a_cache_in_fp8_that_engines_take_from_the_file(method, fields):
    """The cache halves, the weights are what they are without it, and any dtype that is asked for holds."""
    spec = quantized(quant_method=method, **fields)
    weights = "fp8" if "quant_algo" in fields.get("quantization", {}) else None
    assert (spec.cache_dtype, spec.dtype, spec.weights_dtype) == ("fp8", "bf16", weights)
    assert (cost(spec, 10).dtype, 2 * kv_bytes(spec, 10)) == ("fp8", kv_bytes(PLAIN, 10))
    assert kv_bytes(spec, 10, dtype="bf16") == kv_bytes(PLAIN, 10)
    assert weight_bytes(spec.with_parameters(1000)) == (1000 if weights else 2000)
    assert said(spec, "vLLM and SGLang follow it unless told otherwise")


@pytest.mark.parametrize("method", ["compressed-tensors", "fp8", "awq", None, 5])
def test_a_cache_in_fp8_that_not_every_engine_takes_from_the_file(method):
    spec = quantized(quant_method=method, kv_cache_scheme=FP8)
    assert spec.cache_dtype is None and kv_bytes(spec, 10) == kv_bytes(PLAIN, 10)
    assert said(spec, "asks for a cache in fp8 (kv_cache_scheme), which not every engine follows")
    assert said(spec, "counted in bf16; ask for dtype fp8 to count it so")


@pytest.mark.parametrize("scheme", [{"num_bits": 4, "type": "float"}, FP8 | {"type": "int"}, "NVFP4", 8, [1]])
@pytest.mark.parametrize("method", ["modelopt", "compressed-tensors"])
def test_a_cache_in_a_format_that_is_not_read(method, scheme):
    spec = quantized(quant_method=method, kv_cache_scheme=scheme)
    assert spec.cache_dtype is None and kv_bytes(spec, 10) == kv_bytes(PLAIN, 10)
    assert said(spec, "Of its cache the file says kv_cache_scheme ") and said(spec, "is not read here")


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"kv_cache_scheme": FP8, "kv_cache_quant_algo": "NVFP4"}, "fp8"),
        ({"kv_cache_scheme": "NVFP4", "kv_cache_quant_algo": "FP8"}, None),
        ({"kv_cache_scheme": "NVFP4", "quantization": {"kv_cache_scheme": FP8}}, "fp8"),
        ({"kv_cache_scheme": FP8, "quantization": {"kv_cache_scheme": "NVFP4"}}, None),
        ({"kv_cache_scheme": FP8, "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "fp8"),
    ],
)
def test_which_of_several_words_on_the_cache_holds(fields, form):
    """A scheme before an algorithm, and the inner object before the outer, as in vLLM."""
    assert quantized(quant_method="modelopt", **fields).cache_dtype == form


@pytest.mark.parametrize("nothing", [{}, {"kv_cache_scheme": None}, {"kv_cache_quant_algo": None}])
def test_a_file_that_asks_nothing_of_the_cache(nothing):
    assert not said(quantized(quant_method="modelopt", **nothing), "cache")


def test_where_a_file_says_it():
    outside = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    inner = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 48, "num_attention_heads": 6}
    for config in (
        inner | {"compression_config": outside},
        inner | {"quantization_config": {}, "compression_config": outside},
        {"text_config": inner | {"quantization_config": None}, "quantization_config": outside},
        {"text_config": inner, "quantization_config": outside},
        {"text_config": inner | {"quantization_config": outside}},
    ):
        assert ModelSpec.from_config(config).cache_dtype == "fp8"


# 1000 weights, 200 of them in bf16 and 800 in 4 bits, where 32 take 17 bytes.
PARTS = toy(
    *PLAIN.layers, expert_dtype="mxfp4", parameters=1000, active_parameters=550, expert_parameters=800
)


def test_weights_in_two_formats():
    assert weight_bytes(PARTS) == 800 // 32 * 17 + 200 * 2
    assert weight_bytes(PARTS, tp=2) == 413  # 825 / 2, rounded up
    for form, all_in_it in (("bf16", 2000), ("fp8", 1000), ("mxfp4", 532)):  # 531.25, rounded up
        assert weight_bytes(PARTS, form) == all_in_it
    assert weight_bytes(replace(PARTS, expert_parameters=None)) == 532
    assert weight_bytes(replace(PARTS, expert_parameters=0)) == 2000
    assert weight_bytes(replace(PARTS, weights_dtype="fp8")) == 425 + 200


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_experts_are_in_the_format_of_the_other_weights_unless_it_is_said(tokens):
    spec = replace(PARTS, expert_dtype=None, weights_dtype="fp8", experts=4, experts_per_token=2)
    assert weight_bytes(spec) == weight_bytes(spec, "fp8") == 1000
    assert weights_read(spec, tokens) == pytest.approx(200 + 800 * (1 - 0.5**tokens), abs=1)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_weights_of_two_formats_that_a_step_reads(tokens):
    """All 800 quantised ones are in four experts, of which a token picks two: half of them are read.

    Active parameters have no part in that: makers state them without the embedding.
    """
    spec = replace(PARTS, experts=4, experts_per_token=2)
    assert touched(spec, tokens) == pytest.approx((200 + 800 * (1 - 0.5**tokens)) / 1000)
    expected = 400 + 425 * (1 - 0.5**tokens)
    assert weights_read(spec, tokens) == pytest.approx(expected, abs=1)
    device = Device("toy", memory_bytes=10**6, bandwidth=1000, flops={})
    assert decode(spec, 10, device, sequences=tokens).weights_read == weights_read(spec, tokens)
    in_bf16 = 400 + 1600 * (1 - 0.5**tokens)
    assert weights_read(spec, tokens, "bf16") == pytest.approx(in_bf16, abs=1)


@pytest.mark.parametrize("method", ["fp8", "nvfp4"])
def test_a_quantised_format_says_that_not_all_weights_are_in_it(method):
    spec = quantized(quant_method=method)
    assert (spec.weights_dtype, spec.expert_dtype) == (method, None) and said(spec, OPEN)
    assert said(spec.with_parameters(1000), OPEN) and said(spec.with_parameters(1000, None, 200), OPEN)
    assert not said(PLAIN, OPEN) and not said(quantized(quant_method="awq"), OPEN)


def test_a_format_of_the_experts_alone():
    """mxfp4 is one in transformers; without the experts' number all is counted in it, and a note says so."""
    spec = quantized(quant_method="mxfp4")
    assert (spec.weights_dtype, spec.expert_dtype) == (None, "mxfp4") and said(spec, OPEN)
    assert said(spec.with_parameters(1000), OPEN) and not said(spec.with_parameters(1000, None, 200), OPEN)
    assert said(spec.with_parameters(1000, None, 200).with_parameters(1000), OPEN)
    assert weight_bytes(spec.with_parameters(3200)) == 1700
    assert weight_bytes(spec.with_parameters(3200, None, 3136)) == 1666 + 128


FOUR = {"quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", None)),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, ("fp8", None)),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, ("fp8", None)),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, ("nvfp4", None)),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}, (None, "mxfp4")),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, ("fp8", None)),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, ("int8", None)),
        (FOUR, ("fp8", "nvfp4")),
    ],
)
def test_words_for_formats_that_we_have(fields, expected):
    """DeepSeek-V4's own word for its experts holds where the object has none."""
    spec = quantized(**fields)
    assert (spec.weights_dtype, spec.expert_dtype) == expected and said(spec, OPEN)
    spec = read("llama", torch_dtype="bfloat16", quantization_config=fields, expert_dtype="fp4")
    assert (spec.weights_dtype, spec.expert_dtype) == (expected[0], expected[1] or "mxfp4")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quant_method": "awq"}, "'awq'"),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"},
            "'pack-quantized', 'compressed-t",
        ),
        ({"quant_algo": "W4A8"}, "'W4A8'"),
        ({"bits": 4}, "by a method without a name"),
        ({"quant_method": 5, "quant_algo": ["FP8"]}, "['FP8'], 5"),
    ],
)
def test_words_that_are_not_read_are_repeated(fields, words):
    spec = quantized(**fields)
    assert (spec.weights_dtype, spec.expert_dtype) == (None, None) and said(spec, words)
    assert said(spec, "counted in its dtype unless you ask for another weights_dtype")


def test_a_file_of_its_own_for_how_it_is_quantised(tmp_path):
    """As older versions of ModelOpt wrote it; what config.json says has the last word."""
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 48, "num_attention_heads": 6}
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": inner}))
    for own, expected in (({}, ("nvfp4", "fp8")), ({"quant_method": "fp8"}, ("fp8", None))):
        full = config | ({"quantization_config": own} if own else {})
        (tmp_path / "config.json").write_text(json.dumps(full))
        spec = ModelSpec.from_config(tmp_path)
        assert (spec.weights_dtype, spec.cache_dtype) == expected


def test_the_note_says_in_what_each_part_is_counted():
    v4, oss = ModelSpec.named("DeepSeek-V4-Flash"), ModelSpec.named("gpt-oss-20b")
    assert said(v4, "Its experts are counted in mxfp4, and its other weights in fp8: those that")
    assert said(
        v4.with_parameters(10**9), "All its weights are counted in mxfp4, which the file names for its"
    )
    assert said(oss, "Its experts are counted in mxfp4, and its other weights in bf16.")
    assert said(
        ModelSpec.named("DeepSeek-V3"), "All its weights are counted in fp8, which the file names: those"
    )
    by_hand = ModelSpec.uniform(layers=2, kv_heads=2, head_dim=8, weights_dtype="int8")
    assert by_hand.with_parameters(1000).notes == ()


@pytest.mark.parametrize("form", ["fp8", "bf16", None, 4])
def test_experts_that_are_not_said_to_be_in_four_bits(form):
    assert read("llama", expert_dtype=form).expert_dtype is None


@pytest.mark.parametrize("name", models())
def test_no_note_stands_twice(name):
    for spec in (ModelSpec.named(name), ModelSpec.from_config(models()[name]["config"])):
        assert len(set(spec.notes)) == len(spec.notes)


@pytest.mark.parametrize(("name", "file"), [("DeepSeek-V4-Flash", 159.6e9), ("DeepSeek-V4-Pro", 864.7e9)])
def test_deepseek_v4_is_nearly_as_large_as_its_files(name, file):
    """Which have a layer for multi-token prediction more."""
    spec = ModelSpec.named(name)
    assert (spec.weights_dtype, spec.expert_dtype) == ("fp8", "mxfp4") and said(spec, OPEN)
    assert 0.96 * file < weight_bytes(spec) < file


@pytest.mark.parametrize(
    ("name", "size"), [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)]
)
def test_gpt_oss_is_as_large_as_its_files(name, size):
    """total_size of model.safetensors.index.json: only the experts' matrices are in MXFP4."""
    spec = ModelSpec.named(name)
    assert weight_bytes(spec) == size and not said(spec, OPEN)
    assert weight_bytes(spec, "mxfp4") < 0.96 * size


def test_fp8_models_of_the_catalogue_say_that_some_weights_are_larger():
    assert said(ModelSpec.named("DeepSeek-V3"), OPEN)
    assert not said(ModelSpec.named("Llama-3.1-8B"), OPEN)
