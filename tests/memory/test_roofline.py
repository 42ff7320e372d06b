"""The least time of a step: by hand, and against sums over every query."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.memory import (
    Attention,
    Compressed,
    Device,
    Latent,
    Layer,
    ModelSpec,
    Shared,
    attention_intensity,
    decode,
    devices,
    models,
    prefill,
    read_bytes,
    touched,
    weight_bytes,
)
from tests.memory import specs
from tests.memory.specs import few, toy

DEVICE = Device("toy", memory_bytes=10**6, bandwidth=1000, flops={"bf16": 50_000})
DENSE = ModelSpec.uniform(layers=3, kv_heads=2, head_dim=8, query_heads=6, parameters=700)


def test_a_decode_step_by_hand():
    """5 sequences of 11 tokens. Read: 700 weights and 5 x 11 rows of 3 layers, 2 x 2 heads x 8 values, in 2
    bytes. Computed: 2 x 700 for each token, and 2 x 6 heads x (8 + 8) x 11 in each of 3 layers."""
    step = decode(DENSE, 11, DEVICE, sequences=5)
    assert step.weights_read == 1400
    assert step.kv_read == 5 * 11 * 3 * 2 * 2 * 8 * 2
    assert step.flops == 5 * (2 * 700 + 3 * 2 * 6 * 16 * 11)
    assert step.read_s == (1400 + step.kv_read) / 1000
    assert step.compute_s == step.flops / 50_000
    assert step.floor_s == max(step.read_s, step.compute_s) == step.read_s
    assert step.intensity == step.flops / (1400 + step.kv_read)


def test_formats_and_ranks_of_a_decode_step():
    step = decode(DENSE, 11, DEVICE, dtype="fp8", weights_dtype="fp8", tp=2)
    assert step.weights_read == 350 and step.kv_read == 11 * 3 * 2 * 8
    assert step.flops == decode(DENSE, 11, DEVICE).flops // 2


def test_a_floor_of_compute_and_one_of_memory():
    slow = replace(DEVICE, flops={"bf16": 1})
    assert decode(DENSE, 11, slow).floor_s == decode(DENSE, 11, slow).compute_s
    unknown = decode(DENSE, 11, replace(DEVICE, flops={"bf16": None}))
    assert unknown.compute_s == 0 and unknown.floor_s == unknown.read_s > 0


LAYERS = {
    "full": Attention(2, 8, 6),
    "sliding": Attention(2, 8, 6, window=7),
    "latent": Latent(1, 12, 8, naive_dims=(9, 5)),
    "with heads of its own": Attention(2, 8, 6, window=7, query_heads=10),
    "shared": Shared(Attention(2, 8, 6)),
    "shared and sliding": Shared(Attention(2, 8, 6, window=7)),
    "indexed": Attention(2, 8, 8, index_dim=4, index_topk=7),
    "an indexed latent": Latent(1, 12, 8, index_dim=4, index_topk=7, naive_dims=(9, 5)),
    "compressed": Compressed(8, 7, 4),
    "compressed and indexed": Compressed(8, 7, 4, index_dim=4, index_topk=3),
    "a window alone": Compressed(8, 7),
    "none": Layer(),
}


@pytest.mark.parametrize("tokens", [1, 6, 7, 8, 50])
@pytest.mark.parametrize("kind", LAYERS)
def test_prefill_is_the_sum_over_its_queries(kind, tokens):
    """Query number t sees what it sees: the quadratic term, and what becomes of it with windows and picks."""
    layer = LAYERS[kind]
    by_query = sum(layer.visible(t) for t in range(1, tokens + 1)) * layer.row_flops(6, prefill=True)
    spec = toy(layer, layer, query_heads=6, parameters=100)
    assert prefill(spec, tokens, DEVICE).flops == 2 * 100 * tokens + 2 * by_query


def test_prefill_by_hand():
    """4 tokens meet 1, 2, 3 and 4 keys: 10 pairs, of 6 heads x (8 + 8) x 2 each, in 3 layers."""
    step = prefill(DENSE, 4, DEVICE)
    assert step.flops == 4 * 2 * 700 + 3 * 10 * 6 * 16 * 2
    assert (step.weights_read, step.kv_read) == (1400, 0)
    assert prefill(DENSE, 4, DEVICE, sequences=3).flops == 3 * step.flops
    latent = toy(LAYERS["latent"], query_heads=6, parameters=1)
    assert prefill(latent, 4, DEVICE).flops - 8 == 10 * 6 * (9 + 5) * 2  # expanded
    assert decode(latent, 4, DEVICE).flops - 2 == 4 * 6 * (12 + 8) * 2  # absorbed


def test_prefill_of_a_latent_model_by_hand_is_not_free():
    """Where its widths are not given: computed as decode does it, or refused, and not nothing."""
    spec = ModelSpec.uniform_latent(layers=2, kv_lora_rank=40, rope_dim=8, query_heads=4, parameters=1)
    try:
        flops = prefill(spec, 100, DEVICE).flops
    except ValueError:
        return
    assert flops > 2 * 100


def test_work_is_quadratic_and_memory_linear():
    once, twice = (prefill(DENSE, n, DEVICE).flops - 2 * 700 * n for n in (1000, 2000))
    assert 3.99 < twice / once < 4
    assert read_bytes(DENSE, 2000) == 2 * read_bytes(DENSE, 1000)


@few
@given(specs.specs(parameters=1000), st.integers(1, 300), specs.sequences)
def test_a_larger_batch_takes_no_less_in_all_and_no_more_for_each(spec, tokens, sequences):
    one, now, more = (decode(spec, tokens, DEVICE, sequences=n) for n in (1, sequences, sequences + 1))
    assert now.floor_s <= more.floor_s
    assert more.floor_s / (sequences + 1) <= now.floor_s / sequences * (1 + 1e-12)
    assert now.weights_read == one.weights_read
    assert (now.kv_read, now.flops) == (sequences * one.kv_read, sequences * one.flops)


# 200 weights that every token uses, and 800 in four experts, of which a token uses two.
MOE = toy(LAYERS["full"], parameters=1000, active_parameters=600, experts=4, experts_per_token=2)


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_the_share_of_weights_that_a_batch_touches_by_counting(sequences):
    """Over every way in which so many tokens pick two of four experts each."""
    picks = list(itertools.product(itertools.combinations(range(4), 2), repeat=sequences))
    experts = sum(len(set().union(*each)) for each in picks) / len(picks)
    assert touched(MOE, sequences) == pytest.approx((200 + 200 * experts) / 1000, abs=1e-12)


def test_a_batch_of_one_touches_the_active_share_and_a_large_one_everything():
    for spec in (MOE, replace(MOE, experts=0), replace(MOE, experts_per_token=None)):
        assert touched(spec, 1) == pytest.approx(0.6, abs=1e-12)
        shares = [touched(spec, n) for n in range(1, 60)]
        assert shares == sorted(shares) and 1 - 1e-9 < shares[-1] <= 1
    step = decode(MOE, 10, DEVICE)
    assert (step.weights_read, weight_bytes(MOE)) == (1200, 2000)
    assert step.flops == 2 * 600 + 10 * LAYERS["full"].row_flops(16)


@pytest.mark.parametrize(("tokens", "sequences"), [(1, 1), (3, 1), (1, 3), (2, 3)])
def test_prefill_reads_the_experts_of_all_its_tokens(tokens, sequences):
    step = prefill(MOE, tokens, DEVICE, sequences, weights_dtype="fp8", dtype="fp32")
    assert step.weights_read == pytest.approx(200 + 800 * (1 - 0.5 ** (tokens * sequences)), abs=1)
    halved = prefill(MOE, tokens, DEVICE, sequences, weights_dtype="fp8", tp=2).weights_read
    assert halved == pytest.approx(step.weights_read / 2, abs=1)


def test_a_model_that_lies_outside_its_experts_or_uses_all_of_them_is_read_whole():
    for spec in (replace(MOE, expert_parameters=0), replace(MOE, experts_per_token=4)):
        assert touched(spec, 1) == 1 and decode(spec, 5, DEVICE).weights_read == weight_bytes(spec)


@pytest.mark.parametrize("sequences", [0, -1, True, 1.5])
def test_a_step_over_nothing_touches_nothing_that_could_be_said(sequences):
    with pytest.raises((TypeError, ValueError), match="sequences is"):
        touched(MOE, sequences)


@pytest.mark.parametrize("active", [None, 1000])
def test_a_dense_model_is_read_whole(active):
    assert touched(replace(MOE, active_parameters=active), 1) == 1.0


def test_experts_of_the_catalogue_fit_into_their_models():
    """The share in experts, which the formula takes from the active parameters, is below one."""
    for name in models():
        spec = ModelSpec.named(name)
        if spec.experts and spec.experts_per_token and spec.active_parameters:
            picked = spec.experts_per_token / spec.experts
            assert picked < spec.active_parameters / spec.parameters < 1, name
            assert touched(spec, 10**9) == pytest.approx(1)


def test_intensity_of_decode_attention():
    """In bf16 as many FLOPs a byte as query heads share a KV head; MLA reads once for all of them."""
    assert attention_intensity(Attention(8, 128, 128), 32, "bf16") == 4
    assert attention_intensity(Attention(1, 128, 128), 32, "fp8") == 64
    assert attention_intensity(Attention(32, 128, 128, window=100), 32, "bf16") == 1
    mla = attention_intensity(Latent(1, 576, 512), 128, "bf16")
    assert mla == pytest.approx(128 * (576 + 512) / 576)


def test_a_floor_on_real_hardware():
    """Llama-3-8B reads 16 GB for a token: at 3.35 TB/s that is 4.8 ms, whatever else."""
    step = decode("Llama-3-8B", 1, "H100 SXM")
    assert step.floor_s == step.read_s == pytest.approx(16.06e9 / 3.35e12, rel=0.01)
    assert prefill("Llama-3-8B", 4096, "H100 SXM").floor_s > 10 * step.floor_s
    ridges = [each.ridge() for each in devices().values() if each.flops.get("bf16")]
    assert ridges and all(math.isfinite(ridge) and ridge > 1 for ridge in ridges)


def test_unknown_parameters_are_refused():
    for step in (decode, prefill):
        with pytest.raises(ValueError, match="parameters .* not known"):
            step(replace(DENSE, parameters=None), 5, DEVICE)


@pytest.mark.parametrize(("name", "value"), [("tokens", -1), ("tokens", True), ("sequences", 0), ("tp", 4)])
def test_steps_check_what_they_are_asked(name, value):
    asked = {"tokens": 5, "device": DEVICE} | {name: value}
    for step in (decode, prefill):
        with pytest.raises((TypeError, ValueError), match=name):
            step(DENSE, **asked)


def test_no_format_is_silently_guessed():
    with pytest.raises(ValueError, match="unknown dtype"):
        decode(DENSE, 5, DEVICE, weights_dtype="bf17")
