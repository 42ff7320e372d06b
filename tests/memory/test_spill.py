"""Loading keys and values against computing them again: by hand, and by the step that it saves."""

import warnings
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvlab.memory import (
    Attention,
    Device,
    ModelSpec,
    TokenLimitWarning,
    break_even,
    decode,
    kv_bytes,
    load_seconds,
    prefill,
    read_bytes,
)
from tests.memory import specs
from tests.memory.specs import few, toy
from tests.memory.test_roofline import LAYERS

DEVICE = Device("toy", memory_bytes=10**6, bandwidth=1000, flops={"bf16": 50_000})
DENSE = ModelSpec.uniform(layers=3, kv_heads=2, head_dim=8, query_heads=6, parameters=700)
TOKEN = 3 * 2 * 2 * 8 * 2  # layers, K and V, heads, width, bf16
H100, LLAMA = "H100 SXM", "Llama-3.1-8B"
PCIE5 = 64e9  # 16 lanes, one direction, nominal

new_tokens, cached_tokens = st.integers(1, 200), st.integers(0, 300)


def test_a_chunk_after_a_prefix_by_hand():
    """4 tokens after 5 meet 6, 7, 8 and 9 keys: 30 pairs, of 6 heads x (8 + 8) x 2 each, in 3 layers."""
    step = prefill(DENSE, 4, DEVICE, cached=5)
    assert step.flops == 4 * 2 * 700 + 3 * 30 * 6 * 16 * 2
    assert (step.weights_read, step.kv_read) == (1400, 5 * TOKEN)
    more = prefill(DENSE, 4, DEVICE, sequences=3, cached=5, dtype="fp8", weights_dtype="fp8", tp=2)
    assert more.kv_read == 3 * 5 * TOKEN // 2 // 2 and more.weights_read == 350
    assert more.flops == 3 * step.flops // 2


@pytest.mark.parametrize("cached", [0, 1, 6, 7, 20])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_chunk_is_the_sum_over_its_queries(kind, cached):
    layer = LAYERS[kind]
    pairs = sum(layer.visible(t) for t in range(cached + 1, cached + 9 + 1))
    step = prefill(toy(layer, query_heads=6, parameters=100), 9, DEVICE, cached=cached)
    assert step.flops == 2 * 100 * 9 + pairs * layer.row_flops(6, prefill=True)


@few
@given(specs.specs(parameters=1000), new_tokens, new_tokens, cached_tokens)
def test_two_chunks_compute_what_one_does(spec, first, second, cached):
    """And read the weights twice, which is why a chunk is not made too small."""
    whole = prefill(spec, first + second, DEVICE, cached=cached)
    parts = (
        prefill(spec, first, DEVICE, cached=cached),
        prefill(spec, second, DEVICE, cached=cached + first),
    )
    assert sum(step.flops for step in parts) == whole.flops
    assert sum(step.weights_read for step in parts) == 2 * whole.weights_read


def test_a_chunk_of_one_token_is_a_decode_step():
    """But for its own key and value, which a decode step has read and a prefill has not."""
    one, step = prefill(DENSE, 1, DEVICE, cached=10), decode(DENSE, 11, DEVICE)
    assert (one.flops, one.weights_read) == (step.flops, step.weights_read)
    assert one.kv_read + TOKEN == step.kv_read == read_bytes(DENSE, 11)


def test_break_even_by_hand():
    """100 tokens after 40: their bytes, over the longer of reading and computing."""
    flops = 100 * 2 * 700 + 3 * 6 * 16 * 2 * (100 * 40 + 100 * 101 // 2)
    read = 1400 + 40 * TOKEN
    assert break_even(DENSE, 100, DEVICE, 40) == pytest.approx(100 * TOKEN / (flops / 50_000))
    quick = replace(DEVICE, flops={"bf16": 10**12})
    assert break_even(DENSE, 100, quick, 40) == pytest.approx(100 * TOKEN / (read / 1000))


def test_formats_and_ranks():
    """Half the bytes to load; each rank loads its share over a link of its own, and computes its share."""
    assert load_seconds(DENSE, 100, 10.0) == 100 * TOKEN / 10
    assert (
        load_seconds(DENSE, 100, 10.0, dtype="fp8") == load_seconds(DENSE, 100, 10.0, tp=2) == 50 * TOKEN / 10
    )
    one = break_even(DENSE, 100, DEVICE)
    assert break_even(DENSE, 100, DEVICE, dtype="fp8") == pytest.approx(one / 2)
    assert break_even(DENSE, 100, DEVICE, tp=2) == pytest.approx(one)
    slow = replace(DEVICE, bandwidth=1)
    weights, rows = 350, 40 * TOKEN // 2
    asked = {"dtype": "fp8", "weights_dtype": "int4"}
    assert break_even(DENSE, 100, slow, 40, **asked) == pytest.approx(50 * TOKEN / (weights + rows))


@few
@given(specs.specs(parameters=1000), new_tokens, cached_tokens)
def test_at_break_even_loading_takes_as_long(spec, new, cached):
    link = break_even(spec, new, DEVICE, cached)
    seconds = prefill(spec, new, DEVICE, cached=cached).floor_s
    assume(link > 0)  # a model without a cache has nothing to load
    assert load_seconds(spec, new, link) == pytest.approx(seconds)
    assert load_seconds(spec, new, 1.01 * link) < seconds < load_seconds(spec, new, 0.99 * link)


@few
@given(specs.specs(parameters=1000), new_tokens, cached_tokens, st.integers(1, 100))
def test_the_bytes_are_those_of_a_text(spec, new, cached, more):
    assert load_seconds(spec, new, 1.0) == kv_bytes(spec, new)
    assert load_seconds(spec, new + more, 1.0) >= load_seconds(spec, new, 1.0)
    assert load_seconds(spec, new, 2.0) == load_seconds(spec, new, 1.0) / 2


@few
@given(specs.attentions, new_tokens, cached_tokens, st.integers(1, 100))
def test_the_further_back_a_text_reaches_the_slower_a_link_may_be(layer, new, cached, more):
    near = break_even(toy(layer, parameters=1000), new, DEVICE, cached)
    far = break_even(toy(layer, parameters=1000), new, DEVICE, cached + more)
    assert far < near if layer.window is None else far <= near


@pytest.mark.parametrize("window", [1, 7])
def test_beyond_a_window_nothing_becomes_dearer(window):
    spec = toy(Attention(2, 8, 6, window=window), parameters=1000)
    assert break_even(spec, 50, DEVICE, window) == break_even(spec, 50, DEVICE, 1000)


@few
@given(specs.specs(parameters=1000), new_tokens, cached_tokens)
def test_a_faster_device_asks_for_a_faster_link(spec, new, cached):
    twice = Device("twice", 10**6, bandwidth=2000, flops={"bf16": 100_000})
    once = break_even(spec, new, DEVICE, cached)
    assert break_even(spec, new, twice, cached) == pytest.approx(2 * once)


@pytest.mark.parametrize("cached", [0, 5000, 100_000])
def test_the_formula_for_full_attention(cached):
    """k x R / (2 P + A x (cached + (new + 1) / 2)): k is 128 KiB, and A 32 layers x 32 heads x 256 x 2."""
    below = 2 * 8_030_261_248 + 32 * 32 * 256 * 2 * (cached + 2049 / 2)
    assert break_even(LLAMA, 2048, H100, cached) == pytest.approx(131072 * 989e12 / below, rel=1e-9)


def test_on_real_hardware_loading_wins_over_pcie():
    """By eight times for an 8B model with grouped heads, and by more in a long text; without grouped heads by
    less than two, and over a fourth of the lanes not at all."""
    assert PCIE5 / break_even(LLAMA, 2048, H100) == pytest.approx(8.2, abs=0.1)
    assert PCIE5 / break_even(LLAMA, 2048, H100, 100_000) > 30
    assert PCIE5 / 4 < break_even("Llama-2-7B", 1024, H100) < PCIE5
    assert break_even("Llama-2-7B", 1024, H100) / break_even("Llama-2-7B", 1024, H100, 3000) > 1.1
    assert break_even("DeepSeek-V3", 8192, H100) < break_even("Llama-3.1-70B", 8192, H100)


def test_few_tokens_are_dear_to_compute():
    """All weights are read for them: a block of 16 alone is worth loading over a slow link."""
    assert break_even(LLAMA, 16, H100) < 0.1 * break_even(LLAMA, 1024, H100)


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TokenLimitWarning)
        break_even(LLAMA, 1024, H100, 128 * 1024)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("new", 0),
        ("new", True),
        ("cached", -1),
        ("cached", 1.5),
        ("tp", 4),
        ("dtype", "bf17"),
        ("device", "no"),
    ],
)
def test_what_is_asked_is_checked(name, value):
    asked = {"model": DENSE, "new": 5, "device": DEVICE} | {name: value}
    with pytest.raises((TypeError, ValueError), match=name):
        break_even(**asked)


@pytest.mark.parametrize("link", [0, -1.0, float("nan")])
def test_a_link_that_carries_nothing_is_refused(link):
    with pytest.raises(ValueError, match="more than 0 bytes a second"):
        load_seconds(DENSE, 5, link)


def test_what_is_not_known_is_refused():
    with pytest.raises(ValueError, match="no bf16 rate is known for toy"):
        break_even(DENSE, 5, replace(DEVICE, flops={"bf16": None}))
    with pytest.raises(ValueError, match="parameters .* not known"):
        break_even(replace(DENSE, parameters=None), 5, DEVICE)
    with pytest.raises(ValueError, match="new is 0"):
        load_seconds(DENSE, 0, 1.0)
