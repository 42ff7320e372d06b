"""The questions backwards are the inverse of the questions forwards, and weights are as large as they are."""

import warnings
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.memory import (
    Attention,
    Device,
    Layer,
    ModelSpec,
    allocation,
    cost,
    fits_sequences,
    free_bytes,
    kv_bytes,
    longest,
    outgrows,
    weight_bytes,
)
from tests.memory import specs
from tests.memory.specs import few, toy

DEVICE = Device("toy", memory_bytes=10**6, bandwidth=10**4, flops={"bf16": 10**5})
free = st.integers(0, 10**7)
block_sizes = st.none() | st.integers(1, 40)
FAR = 2**40  # tokens; a cache that still fits there never fills the memory


def taken(spec, tokens, sequences, form, tp, block_size):
    """Bytes on one rank, forwards."""
    if block_size is None:
        return cost(spec, tokens, sequences, form, tp).bytes_per_rank
    return allocation(spec, tokens, sequences, form, tp, block_size).total


@few
@given(specs.specs(), free, specs.sequences, specs.formats, specs.ranks, block_sizes)
def test_longest_is_the_last_length_that_fits(spec, free, sequences, form, tp, block_size):
    last = longest(spec, free, sequences, form, tp, block_size)
    if last is None:
        assert taken(spec, FAR, sequences, form, tp, block_size) <= free
        return
    assert type(last) is int
    assert taken(spec, last + 1, sequences, form, tp, block_size) > free
    assert last == 0 or taken(spec, last, sequences, form, tp, block_size) <= free


@few
@given(specs.specs(), st.integers(1, 300), free, specs.formats, specs.ranks, block_sizes)
def test_as_many_sequences_as_fit(spec, tokens, free, form, tp, block_size):
    most = fits_sequences(spec, tokens, free, form, tp, block_size)
    if most is None:
        assert cost(spec, tokens, 1, form, tp).bytes_per_rank == 0
        return
    assert type(most) is int
    assert taken(spec, tokens, most + 1, form, tp, block_size) > free
    assert most == 0 or taken(spec, tokens, most, form, tp, block_size) <= free


@few
@given(specs.specs(parameters=40_000), specs.sequences, specs.formats, specs.formats, specs.ranks)
def test_the_length_at_which_a_cache_outgrows_the_weights(spec, sequences, form, weights_dtype, tp):
    length, weights = (
        outgrows(spec, sequences, form, weights_dtype, tp),
        weight_bytes(spec, weights_dtype, tp),
    )
    if length is None:
        assert cost(spec, FAR, sequences, form, tp).bytes_per_rank <= weights
        return
    assert cost(spec, length, sequences, form, tp).bytes_per_rank > weights
    assert length == 1 or cost(spec, length - 1, sequences, form, tp).bytes_per_rank <= weights


@pytest.mark.parametrize("block_size", [None, 16])
def test_a_paged_text_is_never_longer_than_the_ideal(block_size):
    spec = toy(Attention(2, 64, 64), Attention(2, 64, 64, 10))
    for free in range(0, 300_000, 7919):
        assert longest(spec, free, block_size=16) <= longest(spec, free)


def test_by_hand():
    """A row takes 2 x 2 x 64 x 2 = 512 bytes, and a window of 10 is full at 5120."""
    spec = toy(Attention(2, 64, 64))
    assert [longest(spec, n * 512 + 511) for n in (0, 1, 77)] == [0, 1, 77]
    assert fits_sequences(spec, 10, 51_199) == 9 and fits_sequences(spec, 10, 51_200) == 10
    mixed = toy(Attention(2, 64, 64), Attention(2, 64, 64, 10))
    assert longest(mixed, 10 * 1024 + 512 * 5 + 500) == 15
    assert longest(spec, 64 * 512, block_size=16) == 48  # one of four blocks is spare
    assert fits_sequences(spec, 17, 64 * 512, block_size=16) == 1


def test_80e9_is_a_number_of_bytes_too():
    """Or is refused; what comes back is a whole number of users in any case."""
    for free in (51_200.0, 51_200):
        try:
            found = fits_sequences(toy(Attention(2, 64, 64)), 10, free)
        except TypeError:
            continue
        assert (found, type(found)) == (10, int)


def test_no_end_and_no_room():
    window, states = toy(Attention(2, 64, 64, 10)), ModelSpec.named("Granite-4.0-H-Micro")
    assert longest(window, 5119) == 9 and longest(window, 5120) is None
    assert longest(toy(Layer()), 0) is None and fits_sequences(toy(Layer()), 100, 10**6) is None
    assert longest(states, 1000) == 0 and fits_sequences(states, 100, 1000) == 0
    assert fits_sequences(window, 100, -5) == longest(toy(Attention(2, 64, 64)), -5) == 0


def test_beyond_the_models_limit_memory_alone_counts():
    spec = ModelSpec.uniform(layers=1, kv_heads=2, head_dim=64, max_tokens=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert longest(spec, 512 * 5000) == 5000


def test_weights_by_hand():
    spec = toy(Attention(2, 64, 64), parameters=1001)
    assert weight_bytes(spec) == 2002
    assert weight_bytes(spec, "fp32") == 4004 and weight_bytes(spec, "int4") == 501
    assert weight_bytes(spec, "q4_0") == -(-1001 * 18 // 32)
    assert weight_bytes(spec, tp=4) == 501
    assert weight_bytes("Llama-3-8B", "bf16") == pytest.approx(16.06e9, rel=0.01)


def test_weights_of_an_unknown_number():
    spec = toy(Attention(2, 64, 64))
    for ask in (weight_bytes, outgrows, lambda model: free_bytes(model, DEVICE)):
        with pytest.raises(ValueError, match="how many parameters toy has is not known"):
            ask(spec)


def test_what_the_weights_leave_free():
    spec = toy(Attention(2, 64, 64), parameters=100_000)
    assert free_bytes(spec, DEVICE) == 800_000
    assert free_bytes(spec, DEVICE, "fp8", tp=2) == 950_000
    assert free_bytes(spec, DEVICE, reserve=0.25) == 550_000
    assert free_bytes(spec, DEVICE, reserve=250_000) == 550_000
    assert free_bytes(replace(spec, parameters=10**6), DEVICE) == -1_000_000


@pytest.mark.parametrize(
    ("reserve", "says"),
    [(1.0, "no share"), (-0.1, "no share"), (5.0, "no share"), (-1, "reserve is -1"), (True, "whole number")],
)
def test_reserves_are_shares_or_bytes(reserve, says):
    with pytest.raises((TypeError, ValueError), match=says):
        free_bytes(toy(Layer(), parameters=5), DEVICE, reserve=reserve)


@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_the_longest_text_of_no_sequences(value):
    with pytest.raises((TypeError, ValueError), match="sequences is"):
        longest(toy(Attention(2, 64, 64)), 1000, sequences=value)


def test_a_real_question():
    """Llama-3.1-8B in bf16 on 80 GB: weights and caches of n users at 8192 tokens are within the memory."""
    left = free_bytes("Llama-3.1-8B", "H100 SXM", reserve=0.1)
    users = fits_sequences("Llama-3.1-8B", 8192, left)
    assert users * 2**30 <= left < (users + 1) * 2**30
    assert 40 < users < 60
    assert kv_bytes("Llama-3.1-8B", 8192) == 2**30
