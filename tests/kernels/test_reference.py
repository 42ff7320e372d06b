"""The torch reference of paged attention: every option against loops, whatever lies in unused places."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlab
from kvlab.kernels import paged_attention, torch_reference
from kvlab.model.attention import attention
from tests.kernels.cases import PLAIN, build, expected, problems

TOLERANCE = 1e-12  # float64, sums of at most a few dozen terms


@settings(max_examples=200, deadline=None)
@given(problem=problems(), tile=st.sampled_from([1, 400, 2**20]))
def test_it_is_the_loops(problem, tile):
    before, torch_reference.TILE_BYTES = torch_reference.TILE_BYTES, tile
    try:
        arguments, options = build(**problem)
        got = paged_attention(**arguments, **options)
    finally:
        torch_reference.TILE_BYTES = before
    right = expected(arguments, options)
    assert got.shape == right.shape
    assert (got - right).abs().max().item() < TOLERANCE if got.numel() else True


def test_one_new_token_each_is_the_default():
    arguments, options = build(**PLAIN | {"queries": [1, 1, 1]})
    explicit = paged_attention(**arguments, **options)
    del arguments["query_lens"]
    assert torch.equal(paged_attention(**arguments, **options), explicit)


def test_a_sequence_without_tokens_gives_zeros():
    arguments, options = build(**PLAIN | {"contexts": [5, 0, 2], "queries": [1, 0, 1]})
    arguments["query_lens"] = torch.tensor([1, 1, 1])
    arguments["q"] = torch.cat([arguments["q"][:1], arguments["q"][:1], arguments["q"][1:]])
    got = paged_attention(**arguments, **options)
    assert (got[1] == 0).all() and got[[0, 2]].abs().min() > 0


@pytest.mark.parametrize("form", ["number", "per head", "per token and head"])
def test_stored_integers_and_their_scales(form):
    arguments, options = build(**PLAIN)
    shape = arguments["k_pages"].shape[:3]
    factor = {
        "number": 0.013,
        "per head": torch.tensor([0.013, 0.02]),
        "per token and head": torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 0.02 + 0.005,
    }[form]
    unit = factor[..., None] if isinstance(factor, torch.Tensor) else factor
    whole = {}
    for name in ("k_pages", "v_pages"):
        stored = (arguments[name].nan_to_num(0) / 0.02).round().clamp(-127, 127).to(torch.int8)
        whole[name] = stored.double() * unit
        arguments[name] = stored
    got = paged_attention(**arguments, **options, k_scale=factor, v_scale=factor)
    right = expected(arguments | whole, options)
    assert (got - right).abs().max() < TOLERANCE


def test_it_is_the_models_own_attention_bit_by_bit_in_value_and_on_the_bill():
    """A contiguous sequence in its own pages: nothing is copied, and as many bytes and FLOPs are billed."""
    arguments, options = build(**PLAIN | {"contexts": [9], "queries": [4], "in_order": True, "window": 3})
    k, v = (arguments[name].flatten(0, 1)[:9] for name in ("k_pages", "v_pages"))
    with kvlab.Ledger() as paged:
        got = paged_attention(**arguments, **options)
    first = 9 - 4 + 1 - 3
    with kvlab.Ledger() as plain:
        right = attention(
            arguments["q"], k[first:], v[first:], torch.arange(5, 9), torch.arange(first, 9), 0.37, window=3
        )
    assert (got - right).abs().max() < TOLERANCE
    assert (paged.flops, paged.kv_read, paged.copied) == (plain.flops, plain.kv_read, 0)


def test_scattered_pages_are_copied_and_billed():
    arguments, options = build(**PLAIN | {"contexts": [8], "queries": [1], "in_order": True})
    arguments["block_tables"] = arguments["block_tables"][:, [1, 0, 2, 3]]
    with kvlab.Ledger() as bill:
        paged_attention(**arguments, **options)
    assert bill.copied == bill.kv_read == 8 * 2 * (6 + 5) * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_is_computed_in_another_dtype(dtype):
    arguments, options = build(**PLAIN)
    exact = expected(arguments, options)
    for name in ("q", "k_pages", "v_pages"):
        arguments[name] = arguments[name].to(dtype)
    got = paged_attention(**arguments, **options)
    assert got.dtype == dtype
    assert (got.double() - exact).abs().max() < 8 * torch.finfo(dtype).eps * exact.abs().max()


BAD = {
    "wrong width": ("q", lambda q: q[..., :-1], {}, "q is 5 wide and k_pages 6"),
    "heads that do not share": ("q", lambda q: q[:, :-1], {}, "5 query heads cannot share 2 KV heads"),
    "no heads": ("q", lambda q: q.flatten(1), {}, "q has shape .* it is \\[tokens, query heads, size\\]"),
    "whole numbers": ("q", lambda q: q.long(), {}, "q is torch.int64"),
    "flat pages": ("k_pages", lambda k: k.flatten(0, 1), {}, "k_pages has shape"),
    "other pages": ("v_pages", lambda v: v[1:], {}, "only the last size may differ"),
    "another dtype": ("v_pages", lambda v: v.float(), {}, "v_pages is torch.float32 and q torch.float64"),
    "no values and no width": ("v_pages", lambda v: None, {}, "v_dim is None; without v_pages"),
    "values wider than keys": ("v_pages", lambda v: None, {"v_dim": 7}, "v_dim is 7; without v_pages"),
    "two widths": ("q", lambda q: q, {"v_dim": 4}, "v_dim is 4, and v_pages are 5 wide"),
    "an outside page": (
        "block_tables",
        lambda t: t + 100,
        {},
        r"block_tables\[0, 0\] is 1\d\d; pages are 0 to",
    ),
    "a page below": ("block_tables", lambda t: t - 100, {}, r"block_tables\[0, 0\] is -\d+; pages are 0 to"),
    "a short table": (
        "block_tables",
        lambda t: t[:, :2],
        {},
        "context of sequence 1, 9 tokens, takes 3 blocks",
    ),
    "fractions": ("block_tables", lambda t: t.double(), {}, "block_tables is torch.float64"),
    "too few contexts": ("context_lens", lambda c: c[1:], {}, "context_lens has 2 rows and block_tables 3"),
    "too short a context": (
        "context_lens",
        lambda c: c - 1,
        {},
        "sequence 2 has 2 new tokens in a context of 1",
    ),
    "negative": ("context_lens", lambda c: -c, {}, "0 or more"),
    "other queries": ("query_lens", lambda n: n * 0 + 1, {}, "q has 6 tokens and query_lens add up to 3"),
    "no window": ("q", lambda q: q, {"window": 0}, "window is 0"),
    "sinks of KV heads": ("q", lambda q: q, {"sink_logits": torch.zeros(2)}, "sink_logits has shape"),
    "a scale of its own": ("q", lambda q: q, {"k_scale": torch.ones(3)}, "k_scale has shape"),
    "no parts": ("q", lambda q: q, {"num_splits": 0}, "num_splits is 0"),
    "a backend": ("q", lambda q: q, {"backend": "cuda"}, "backend is 'cuda'; known: triton, interpreter"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_named(what):
    name, change, more, message = BAD[what]
    arguments, options = build(**PLAIN)
    arguments[name] = change(arguments[name])
    with pytest.raises((ValueError, TypeError), match=message):
        paged_attention(**arguments, **options | more)


def test_a_scale_without_pages_is_refused():
    arguments, options = build(**PLAIN | {"values_in_keys": True})
    with pytest.raises(ValueError, match="v_scale is given without v_pages"):
        paged_attention(**arguments, **options, v_scale=0.5)


def test_numbers_as_wide_as_their_scales_are_not_taken_for_them():
    random = torch.Generator().manual_seed(0)
    q, k_pages = torch.randn(1, 1, 4, generator=random), torch.randn(2, 2, 1, 4, generator=random)
    v_pages, unit = torch.randn(2, 2, 1, 1, generator=random), torch.rand(2, 2, 1, generator=random)
    where = torch.tensor([[1, 0]]), torch.tensor([4])
    got = paged_attention(q, k_pages, v_pages, *where, scale=0.5, v_scale=unit, backend="reference")
    right = paged_attention(q, k_pages, v_pages * unit[..., None], *where, scale=0.5, backend="reference")
    assert (got - right).abs().max() < 1e-6
