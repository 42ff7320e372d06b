"""What the ledger counts is what the calculator says, for the same model, to the byte."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlab
from kvlab.caches import GrowingCache
from kvlab.memory import ModelSpec, kv_bytes, read_bytes
from kvlab.model.config import LatentSizes
from kvlab.model.load import WEIGHTS
from kvlab.training.publish import hf_config
from kvlab.training.variants import VARIANTS
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model

size = st.integers(1, 9)
LATENT_SIZES = st.builds(LatentSizes, size, size, size.map(lambda n: 2 * n), size, st.none() | size)


@st.composite
def configs(draw):
    """MHA, GQA, MQA, and MLA in its absorbed form, of any small widths."""
    heads = draw(st.integers(1, 6))
    config = replace(SMALL, num_heads=heads, num_kv_heads=heads, num_layers=draw(st.integers(1, 4)))
    if draw(st.booleans()):
        sizes = draw(LATENT_SIZES)
        return replace(config, head_dim=sizes.nope_dim + sizes.rope_dim, latent=sizes)
    divisors = [n for n in range(1, heads + 1) if heads % n == 0]
    return replace(config, num_kv_heads=draw(st.sampled_from(divisors)), head_dim=2 * draw(size))


def bills(config, tokens, dtype):
    """Of a prompt and of the next token -> (prompt's ledger, next token's ledger, cache)."""
    model, cache = random_model(config, dtype), GrowingCache(config)
    with kvlab.Ledger() as prompt:
        model(random_ids(tokens), cache)
    with kvlab.Ledger() as step:
        model(random_ids(1), cache)
    return prompt, step, cache


def agrees(config, spec, tokens=7, dtype=torch.float32, name="fp32"):
    prompt, step, cache = bills(config, tokens, dtype)
    at = {n: kv_bytes(spec, n, dtype=name) for n in (tokens, tokens + 1)}
    return (
        (prompt.kv_written, step.kv_written) == (at[tokens], at[tokens + 1] - at[tokens])
        and step.kv_read == read_bytes(spec, tokens + 1, dtype=name)
        and prompt.kv_held == at[tokens]
        and step.kv_held == cache.nbytes == at[tokens + 1]
    )


@settings(max_examples=60, deadline=None)
@given(config=configs(), tokens=st.integers(1, 12), dtype=st.sampled_from(["fp32", "bf16", "fp16"]))
def test_written_read_and_held(config, tokens, dtype):
    spec = ModelSpec.from_config(hf_config(config))
    assert len(spec.layers) == config.num_layers
    torch_dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    assert agrees(config, spec, tokens, torch_dtype, dtype)


@settings(max_examples=30, deadline=None)
@given(config=configs(), tokens=st.integers(1, 12))
def test_each_new_token_reads_the_same_more(config, tokens):
    """The calculator's slope is the ledger's: what one more token adds to what a step reads."""
    spec, reads = ModelSpec.from_config(hf_config(config)), []
    for n in (tokens, tokens + 1):
        _, step, _ = bills(config, n, torch.float32)
        reads.append(step.kv_read)
    assert reads[1] - reads[0] == kv_bytes(spec, 1, dtype="fp32")
    assert reads[1] - reads[0] == read_bytes(spec, tokens + 2, "fp32") - read_bytes(spec, tokens + 1, "fp32")


def test_the_naive_form_costs_what_it_expands_to():
    """The file of both forms is one and says the latent; the naive form is billed as what it keeps."""
    by_hand = ModelSpec.uniform(layers=3, kv_heads=6, head_dim=14, value_dim=7)
    assert agrees(NAIVE, by_hand)
    assert hf_config(NAIVE) == hf_config(ABSORBED)
    assert not agrees(NAIVE, ModelSpec.from_config(hf_config(NAIVE)))


WRONG = {
    "MLA times two": ModelSpec.uniform(layers=3, kv_heads=1, head_dim=16),
    "MLA without the rope key": ModelSpec.uniform(layers=3, kv_heads=1, head_dim=6),  # 6 + 6 numbers
    "MLA by heads": ModelSpec.uniform(layers=3, kv_heads=6, head_dim=14, value_dim=7),
    "values beside the latent": ModelSpec.uniform(layers=3, kv_heads=1, head_dim=16, value_dim=12),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_the_comparison_notices(mistake):
    assert agrees(ABSORBED, ModelSpec.from_config(hf_config(ABSORBED)))
    assert not agrees(ABSORBED, WRONG[mistake])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_decode_step_of_each_shipped_model_reads_what_the_calculator_says(name):
    model, spec = kvlab.load(name)[0], ModelSpec.from_config(WEIGHTS / name)
    cache = GrowingCache(model.config)
    model(random_ids(9), cache)
    with kvlab.Ledger() as step:
        model(random_ids(1), cache)
    assert step.kv_read == read_bytes(spec, 10, dtype="fp32") == 10 * kv_bytes(spec, 1, dtype="fp32")
