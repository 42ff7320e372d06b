"""A device's memory, divided: every byte of it has one use, and no use has another's."""

import warnings

import pytest

from kvlab.memory import (
    ModelSpec,
    allocation,
    budget,
    cost,
    device,
    devices,
    fits_sequences,
    free_bytes,
    models,
    weight_bytes,
)

H100 = device("H100 SXM")


def quiet_budget(*arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return budget(*arguments, **more)


def total(parts):
    used = parts.weights + parts.reserve + parts.states + parts.keys_and_values + parts.pool
    return used + parts.free - parts.too_much


@pytest.mark.parametrize("name", [row["name"] for row in models().values() if row["parameters"]])
def test_the_parts_are_the_whole(name):
    for tokens, sequences, block_size, reserve in (
        (1, 1, None, 0),
        (5000, 3, 16, 0.1),
        (2**20, 64, 128, 2**30),
    ):
        parts = quiet_budget(name, tokens, H100, sequences, block_size=block_size, reserve=reserve)
        assert total(parts) == parts.capacity == H100.memory_bytes
        assert min(parts.free, parts.too_much) == 0 and all(
            type(each) is int for each in vars(parts).values()
        )


@pytest.mark.parametrize("name", devices())
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_on_every_device(name, tp):
    parts = budget("Llama-3.1-70B", 5000, name, 7, "fp8", "nvfp4", tp, 32, 0.05)
    assert total(parts) == parts.capacity == device(name).memory_bytes
    assert parts.reserve == round(0.05 * parts.capacity)
    assert parts.weights == weight_bytes("Llama-3.1-70B", "nvfp4", tp)
    pool = allocation("Llama-3.1-70B", 5000, 7, "fp8", tp, 32)
    assert (parts.keys_and_values, parts.pool, parts.states) == (pool.live, pool.total - pool.live, 0)


def test_states_are_told_from_rows():
    parts, one = budget("Qwen3.5-27B", 5000, H100, 3), cost("Qwen3.5-27B", 5000, 3)
    assert parts.states == 3 * one.bytes_constant > 0 and parts.pool == 0
    assert parts.states + parts.keys_and_values == one.bytes_per_rank
    assert budget("Qwen3.5-27B", 0, H100, 3).keys_and_values == 0


def test_what_is_lacking_is_counted_with_the_weights():
    parts = budget("Llama-3.1-405B", 1, H100)
    assert parts.free == 0
    assert parts.too_much == cost("Llama-3.1-405B", 1).bytes_per_rank - free_bytes("Llama-3.1-405B", H100)


def test_as_many_as_fit_fit():
    free = free_bytes("Llama-3.1-8B", H100, reserve=0.1)
    most = fits_sequences("Llama-3.1-8B", 8192, free, block_size=16)
    for sequences in (most, most + 1):
        parts = budget("Llama-3.1-8B", 8192, H100, sequences, block_size=16, reserve=0.1)
        assert (parts.too_much == 0) == (sequences == most)


def test_weights_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="how many parameters by hand has is not known"):
        budget(ModelSpec.uniform(layers=1, kv_heads=1, head_dim=1), 1, H100)
