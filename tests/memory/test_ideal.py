"""The exact bytes of whole models: sums, ranks, formats, and what is refused."""

import contextlib
import warnings
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvlab.memory import (
    FORMATS,
    Attention,
    Latent,
    Layer,
    ModelSpec,
    Shared,
    TokenLimitWarning,
    UnknownName,
    cost,
    kv_bytes,
    naive_bytes,
    read_bytes,
    replicated,
)
from tests.memory import specs
from tests.memory.specs import few, toy

LLAMA = ModelSpec.uniform(layers=32, kv_heads=8, head_dim=128, query_heads=32, max_tokens=8192)


def test_llama_3_by_hand():
    """2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB a token; 1 GiB at 8192."""
    assert kv_bytes(LLAMA, 1) == 131_072
    assert kv_bytes(LLAMA, 8192) == 2**30
    assert kv_bytes("Llama-3-8B", 8192) == kv_bytes("meta-llama/Meta-Llama-3-8B", 8192) == 2**30
    assert kv_bytes(LLAMA, 8192, sequences=3, dtype="fp8") == 3 * 2**29


@few
@given(specs.specs(), specs.tokens, specs.sequences, specs.formats, specs.ranks)
def test_more_tokens_never_take_less(spec, tokens, sequences, form, tp):
    now, then = (cost(spec, n, sequences, form, tp) for n in (tokens, tokens + 1))
    assert now.bytes_total <= then.bytes_total
    assert type(now.bytes_total) is int


@few
@given(specs.specs(), specs.tokens, specs.sequences, specs.formats, specs.ranks)
def test_the_total_is_layers_times_sequences_times_ranks(spec, tokens, sequences, form, tp):
    whole = cost(spec, tokens, sequences, form, tp)
    alone = [kv_bytes(replace(spec, layers=(layer,)), tokens, 1, form, tp) for layer in spec.layers]
    assert whole.bytes_total == sequences * sum(alone) == kv_bytes(spec, tokens, sequences, form, tp)
    assert whole.bytes_total == tp * whole.bytes_per_rank
    assert whole.bytes_per_rank == sequences * sum(whole.by_layer)
    assert [tp * each for each in whole.by_layer] == alone


@few
@given(specs.specs(specs.linear_layers), specs.tokens, specs.sequences, specs.formats, specs.ranks)
def test_a_growing_part_and_a_constant(spec, tokens, sequences, form, tp):
    one = cost(spec, tokens, sequences, form, tp)
    assert one.bytes_per_rank == sequences * (one.bytes_per_token * tokens + one.bytes_constant)
    more = cost(spec, tokens + 1, sequences, form, tp)
    assert more.bytes_per_rank - one.bytes_per_rank == sequences * one.bytes_per_token


@few
@given(specs.specs(), specs.tokens, specs.formats)
def test_ranks_together_hold_no_less_than_one_does(spec, tokens, form):
    alone = kv_bytes(spec, tokens, dtype=form)
    for tp in specs.RANKS:
        assert kv_bytes(spec, tokens, dtype=form, tp=tp) >= alone


@few
@given(
    specs.specs(specs.attentions | specs.latents | specs.nothing), specs.tokens, specs.formats, specs.ranks
)
def test_ranks_together_hold_copies_only_where_they_exceed_kv_heads(spec, tokens, form, tp):
    assume(not any(layer.index_dim for layer in spec.layers))  # its key lies on every rank
    copies = [max(1, tp // layer.kv_heads) if isinstance(layer, Attention) else 1 for layer in spec.layers]
    alone = cost(spec, tokens, dtype=form).by_layer
    expected = sum(n * held for n, held in zip(copies, alone, strict=True))
    assert kv_bytes(spec, tokens, dtype=form, tp=tp) == expected
    assert replicated(spec, tp) == max(copies)


@pytest.mark.parametrize(("tp", "copies", "heads"), [(1, 1, 8), (2, 1, 4), (8, 1, 1), (16, 2, 1), (32, 4, 1)])
def test_kv_heads_are_copied_only_beyond_their_number(tp, copies, heads):
    assert replicated(LLAMA, tp) == copies
    assert cost(LLAMA, 100, tp=tp).bytes_per_rank == 100 * 32 * heads * 2 * 128 * 2
    assert kv_bytes(LLAMA, 100, tp=tp) == copies * kv_bytes(LLAMA, 100)


@pytest.mark.parametrize("tp", [1, 2, 16, 128])
def test_mla_lies_whole_on_every_rank(tp):
    one = cost("DeepSeek-V3", 1000, tp=tp)
    assert one.bytes_per_rank == 1000 * 61 * 576 * 2
    assert one.bytes_total == tp * one.bytes_per_rank
    assert replicated("DeepSeek-V3", tp) == tp


@few
@given(specs.specs(specs.attentions | specs.latents), specs.tokens)
def test_wider_formats(spec, tokens):
    """Two bytes for one, four for two; and blocks of 34 bytes for 64."""
    assume(all(not layer.index_dim for layer in spec.layers))
    fp8, bf16, fp32, q8 = (kv_bytes(spec, tokens, dtype=form) for form in ("fp8", "bf16", "fp32", "q8_0"))
    assert (2 * fp8, 2 * bf16, bf16 * 34) == (bf16, fp32, q8 * 64)


def test_the_models_own_dtype_unless_another_is_asked_for():
    assert cost(replace(LLAMA, dtype="fp32"), 1).dtype == "fp32"
    assert kv_bytes(replace(LLAMA, dtype="fp32"), 1) == 2 * kv_bytes(LLAMA, 1)
    assert kv_bytes(replace(LLAMA, dtype="fp32"), 1, dtype="bf16") == kv_bytes(LLAMA, 1)


def test_bytes_read_are_not_bytes_held():
    owner = Attention(2, 64, 64)
    spec = toy(owner, Shared(owner), Latent(1, 96, 64, index_dim=24, index_topk=9), Layer())
    held = 100 * 2 * 128 * 2 + 100 * (96 * 2 + 28)
    read = 2 * 100 * 2 * 128 * 2 + 9 * 96 * 2 + 100 * 28
    assert (kv_bytes(spec, 100), read_bytes(spec, 100)) == (held, read)
    assert read_bytes(spec, 100, dtype="fp8", tp=2) == 2 * 100 * 128 + 9 * 96 + 100 * 28


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2], float("nan")])
@pytest.mark.parametrize("name", ["tokens", "sequences", "tp"])
def test_what_is_no_whole_number_is_named(name, value):
    with pytest.raises(TypeError, match=f"{name} is .*; it must be a whole number"):
        kv_bytes(LLAMA, **{"tokens": 5} | {name: value})


@pytest.mark.parametrize(("name", "least"), [("tokens", 0), ("sequences", 0), ("tp", 1)])
def test_what_is_too_small_is_named(name, least):
    with pytest.raises(ValueError, match=f"{name} is {least - 1}; it must be {least} or more"):
        kv_bytes(LLAMA, **{"tokens": 5} | {name: least - 1})


@pytest.mark.parametrize("tokens", [-1, True, 2.0])
def test_every_count_of_tokens_is_checked(tokens):
    for count in (cost, read_bytes, naive_bytes):
        with pytest.raises((TypeError, ValueError), match="tokens is"):
            count(LLAMA, tokens)


def test_nothing_costs_nothing():
    assert kv_bytes(LLAMA, 0) == kv_bytes(LLAMA, 5, sequences=0) == 0
    assert kv_bytes("Granite-4.0-H-Micro", 0) > 0  # a state is there from the start


@pytest.mark.parametrize("tp", [3, 5, 64])
def test_a_tp_that_does_not_divide_the_query_heads(tp):
    for count in (kv_bytes, read_bytes):
        with pytest.raises(
            ValueError, match=f"tp {tp} does not divide the 32 query heads.*1, 2, 4, 8, 16, 32"
        ):
            count(LLAMA, 10, tp=tp)


def test_a_tp_that_neither_divides_the_kv_heads_nor_copies_them_evenly():
    spec = ModelSpec.uniform(layers=2, kv_heads=4, head_dim=64, query_heads=12)
    with pytest.raises(
        ValueError, match="4 KV heads can be neither .* over 6 ranks .*divides 4, or a multiple"
    ):
        kv_bytes(spec, 10, tp=6)
    with pytest.raises(ValueError, match="4 KV heads"):
        replicated(spec, 6)
    assert kv_bytes(spec, 10, tp=12) == 3 * kv_bytes(spec, 10)


def test_a_tp_that_does_not_divide_a_state():
    heads = ModelSpec.named("Qwen3-Next-80B-A3B")
    with pytest.raises(ValueError, match="heads of a recurrent state"):
        kv_bytes(replace(heads, query_heads=64), 10, tp=64)


def test_more_tokens_than_the_model_was_made_for_warn_and_count():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limit = kv_bytes(LLAMA, 8192)
        kv_bytes(replace(LLAMA, max_tokens=None), 10**9)
    with pytest.warns(TokenLimitWarning, match="8,193 tokens are more than the 8,192 that by hand was made"):
        assert kv_bytes(LLAMA, 8193) == limit + 131_072


@pytest.mark.parametrize("ask", [kv_bytes, cost])
def test_a_warning_points_to_the_line_that_asked(ask):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(LLAMA, 8193)
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize("model", [None, 5, ["Llama-3-8B"], {"model_type": "llama"}])
def test_what_is_no_model(model):
    with pytest.raises(TypeError, match="a model is a name, a path or a ModelSpec"):
        kv_bytes(model, 1)


def test_a_model_that_nobody_knows():
    with pytest.raises(UnknownName, match="unknown model 'Llama-3.1-9B'; did you mean .*Llama-3.1-8B"):
        kv_bytes("Llama-3.1-9B", 1)
    with pytest.raises(UnknownName, match="unknown model 'qqqqq'; known: .*GPT-2"):
        kv_bytes("qqqqq", 1)


def test_a_model_by_its_path(tmp_path):
    (tmp_path / "here").mkdir()
    file = tmp_path / "here" / "config.json"
    file.write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3}',
        encoding="utf-8",
    )
    expected = 5 * 2 * 2 * 24 * 2
    assert [kv_bytes(each, 5) for each in (file, file.parent, str(file), str(file.parent))] == [expected] * 4
    assert ModelSpec.from_config(file).name == "here"
    with pytest.raises(ValueError, match="config.json is missing"):
        kv_bytes(tmp_path, 5)
    with pytest.raises(ValueError, match="nothing.json is missing"):
        kv_bytes(str(tmp_path / "nothing.json"), 5)


def test_the_formula_of_the_textbooks():
    assert naive_bytes(LLAMA, 100) == 2 * 32 * 100 * 32 * 128 * 2 == 4 * kv_bytes(LLAMA, 100)
    assert naive_bytes("DeepSeek-V3", 10, 3) == 2 * 61 * 10 * 3 * 128 * 128 * 2
    falcon = naive_bytes("Falcon-7B", 2048), kv_bytes("Falcon-7B", 2048)
    assert falcon[0] == 71 * falcon[1]
    assert naive_bytes("Gemma-2-9B", 8192) > 2 * kv_bytes("Gemma-2-9B", 8192)


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec.uniform_latent(layers=3, kv_lora_rank=64, rope_dim=32, query_heads=4),
        ModelSpec.named("DeepSeek-V4-Flash"),
    ],
    ids=lambda spec: spec.name,
)
def test_the_formula_of_the_textbooks_is_never_nothing(spec):
    """It is what a cache is compared with: either a number that it can be compared with, or a refusal."""
    with contextlib.suppress(ValueError, TypeError):
        assert naive_bytes(spec, 1000) > kv_bytes(spec, 1000)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"kv_heads": 0}, "kv_heads is 0"),
        ({"head_dim": 0}, "key_dim is 0"),
        ({"value_dim": 0}, "value_dim is 0"),
        ({"window": 0}, "window is 0"),
        ({"query_heads": 0}, "query_heads is 0"),
        ({"query_heads": -4}, "query_heads"),
        ({"query_heads": 6.0}, "query_heads"),
        ({"query_heads": 5}, "5 query heads"),
        ({"layers": True}, "layers is True"),
    ],
)
def test_models_by_hand_are_checked(changes, says):
    with pytest.raises((TypeError, ValueError), match=says):
        ModelSpec.uniform(**{"layers": 2, "kv_heads": 2, "head_dim": 8, "query_heads": 4} | changes)


def test_models_by_hand():
    spec = ModelSpec.uniform(layers=3, kv_heads=2, head_dim=48, value_dim=32, window=5, name="mine")
    assert spec.kinds() == {"sliding": 3} and spec.name == "mine" and spec.query_heads == 2
    assert kv_bytes(spec, 100) == 3 * 5 * 2 * (48 + 32) * 2
    latent = ModelSpec.uniform_latent(layers=3, kv_lora_rank=40, rope_dim=8, query_heads=4)
    assert kv_bytes(latent, 100) == 3 * 100 * 48 * 2 and latent.kinds() == {"latent": 3}


@few
@given(specs.specs(), st.integers(0, 3), specs.tokens)
def test_layers_without_attention_cost_nothing(spec, more, tokens):
    padded = replace(spec, layers=(Layer(),) * more + spec.layers)
    assert kv_bytes(padded, tokens) == kv_bytes(spec, tokens)
    assert FORMATS[cost(padded, tokens).dtype] is FORMATS["bf16"]
