"""Bytes of a row in every format, by hand; and names."""

from fractions import Fraction

import pytest
import torch

from kvlab.memory import FORMATS, UnknownName, cost, format_named, kv_bytes
from kvlab.memory.layers import Attention
from tests.memory.specs import toy

# Bytes of a row of 64 values, computed by hand from each format's definition.
ROW_OF_64 = {
    "fp32": 64 * 4,
    "bf16": 64 * 2,
    "fp16": 64 * 2,
    "fp8": 64,
    "int8": 64,
    "int4": 64 // 2,
    "q8_0": 64 // 32 * (32 + 2),  # 32 bytes of values and an fp16 scale
    "q4_0": 64 // 32 * (16 + 2),
    "nvfp4": 64 // 2 + 64 // 16,  # half a byte a value, a byte of scale for 16
    "mxfp4": 64 // 2 + 64 // 32,
    "fp8-per-token-head": 64 + 4,
    "int8-per-token-head": 64 + 4,
}
BITS = {"q8_0": 8.5, "q4_0": 4.5, "nvfp4": 4.5, "mxfp4": 4.25, "int4": 4, "bf16": 16, "fp32": 32, "fp8": 8}


def test_all_formats_are_checked_here():
    assert ROW_OF_64.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_row(name):
    form = FORMATS[name]
    assert form.row_bytes(64) == ROW_OF_64[name]
    assert form.row_bytes(0) == form.row_bytes_more
    assert form.bits == BITS.get(name, form.bits)
    assert isinstance(form.row_bytes(64), int) and form.name == name and form.what


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_cache_of_one_layer(name):
    """Three heads, keys of 64 and values of 96, seven tokens: rows, and nothing shared between them."""
    row = FORMATS[name].row_bytes(64) + FORMATS[name].row_bytes(96)
    assert kv_bytes(toy(Attention(3, 64, 96), query_heads=6), 7, dtype=name) == 7 * 3 * row


def test_scales_of_each_token_and_head_are_counted_for_keys_and_for_values():
    layer = toy(Attention(3, 64, 64), query_heads=6)
    plain, scaled = kv_bytes(layer, 7, dtype="fp8"), kv_bytes(layer, 7, dtype="fp8-per-token-head")
    assert scaled - plain == 7 * 3 * 2 * 4


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.block > 1])
def test_a_broken_block_is_refused(name):
    form = FORMATS[name]
    for values in (1, form.block - 1, form.block + 1, 10 * form.block + form.block // 2):
        with pytest.raises(ValueError, match=f"{name} packs blocks of {form.block} values.*{values}: choose"):
            form.row_bytes(values)
    with pytest.raises(ValueError, match=f"blocks of {form.block} values"):
        kv_bytes(toy(Attention(2, form.block + 1, 64)), 5, dtype=name)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_weights_are_rounded_up_once(name):
    form = FORMATS[name]
    for values in (0, 1, 31, 32, 33, 10**9 + 7):
        exact = Fraction(values * form.block_bytes, form.block)
        assert exact <= form.bytes_for(values) < exact + 1


SPELLINGS = {
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
    "BF16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "torch.float8_e4m3fn": "fp8",
    "Q8_0": "q8_0",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_names(spelling):
    assert format_named(spelling) is FORMATS[SPELLINGS[spelling]]
    assert cost(toy(Attention(2, 64, 64)), 1, dtype=spelling).dtype == SPELLINGS[spelling]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn])
def test_a_torch_dtype_is_as_wide_as_torch_says(dtype):
    assert format_named(dtype).row_bytes(64) == 64 * dtype.itemsize


def test_a_format_names_itself():
    assert format_named(FORMATS["q4_0"]) is FORMATS["q4_0"]


@pytest.mark.parametrize("name", ["bf17", "float64", "fp4", "torch.int64", "", 16, b"bf16", ["bf16"]])
def test_what_is_not_known_is_refused_with_what_is(name):
    with pytest.raises(UnknownName, match="unknown dtype .*; known: fp32, bf16, .*q8_0"):
        format_named(name)


@pytest.mark.parametrize("name", ["bf17", "nvfp5"])
def test_a_cost_in_an_unknown_format(name):
    with pytest.raises(UnknownName, match=f"'{name}'"):
        kv_bytes("Llama-3.1-8B", 5, dtype=name)
