"""Latent attention's three forms: by counting in loops, and against the layer that computes them."""

from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import GrowingCache
from kvlab.memory import Device, Latent, ModelSpec, expand_from, latent_step
from kvlab.model.attention import attention
from kvlab.training.publish import hf_config
from tests.memory.specs import toy
from tests.models import ABSORBED, random_model

H, RANK, NOPE, ROPE, VALUE = 3, 5, 7, 9, 11
ODD = ModelSpec.uniform_latent(
    layers=2, kv_lora_rank=RANK, rope_dim=ROPE, query_heads=H, nope_dim=NOPE, value_dim=VALUE, name="odd"
)
FORMS = ["expanded cache", "expanded each step", "absorbed"]
NEW_AND_CACHED = [(1, 0), (1, 13), (4, 0), (3, 13), (17, 2)]


def counted(form, new, cached):
    """(multiply-adds, numbers held), one entry of one product at a time."""
    work, rows = 0, cached + new
    expanded = {"expanded cache": new, "expanded each step": rows, "absorbed": 0}[form]
    for _ in range(expanded):
        for _ in range(H):
            work += sum(RANK for _ in range(NOPE)) + sum(RANK for _ in range(VALUE))
    for query in range(new):
        for _ in range(H):
            if form == "absorbed":
                work += sum(NOPE for _ in range(RANK)) + sum(RANK for _ in range(VALUE))
            for key in range(rows):
                if key <= cached + query:
                    score, mix = (RANK + ROPE, RANK) if form == "absorbed" else (NOPE + ROPE, VALUE)
                    work += score + mix
    held = sum(H * (NOPE + ROPE + VALUE) if form == "expanded cache" else RANK + ROPE for _ in range(rows))
    return work, held


@pytest.mark.parametrize(("new", "cached"), NEW_AND_CACHED)
def test_every_form_by_loops(new, cached):
    steps = latent_step(ODD, new, cached, "fp32")
    assert list(steps) == FORMS
    for form, step in steps.items():
        work, held = counted(form, new, cached)
        assert (step.flops, step.read, step.held) == (2 * work, 4 * held, 4 * held)
        assert all(type(number) is int for number in (step.flops, step.read, step.held))


def test_formats_count_rows():
    """A scale a row: one for a latent with its rope key, two a head for what is expanded."""
    steps = latent_step(ODD, 2, 3, "fp8-per-token-head")
    assert steps["absorbed"].held == steps["expanded each step"].held == 5 * (RANK + ROPE + 4)
    assert steps["expanded cache"].held == 5 * H * (NOPE + ROPE + 4 + VALUE + 4)
    assert latent_step(ODD, 2, 3) == latent_step(ODD, 2, 3, "bf16")


CONFIG = replace(ABSORBED, num_layers=1)
SPEC = ModelSpec.from_config(hf_config(CONFIG))
SIZES, HEADS = CONFIG.latent, CONFIG.num_heads


def masked(form, new):
    """FLOPs of the pairs that kvlab computes and then hides."""
    width = {"expanded": SIZES.nope_dim + SIZES.rope_dim + SIZES.value_dim}
    width["absorbed"] = 2 * SIZES.rank + SIZES.rope_dim
    return 2 * HEADS * width[form] * new * (new - 1) // 2


def billed(config, new, cached):
    """The layer's ledger without the projections that all forms share, and its cache."""
    module, cache = random_model(config, torch.float32).layers[0].self_attn, GrowingCache(config)

    def step(n):
        angles = torch.zeros(n, SIZES.rope_dim // 2)
        module(torch.randn(n, config.hidden_size), angles.cos(), angles.sin(), cache)
        cache.advance(n)

    if cached:
        step(cached)
    with kvlab.Ledger() as bill:
        step(new)
    hidden, key = config.hidden_size, SIZES.nope_dim + SIZES.rope_dim
    shared = hidden * SIZES.query_rank + SIZES.query_rank * HEADS * key
    shared += hidden * (SIZES.rank + SIZES.rope_dim) + HEADS * SIZES.value_dim * hidden
    return bill.flops - 2 * new * shared, bill, cache


@pytest.mark.parametrize(("new", "cached"), NEW_AND_CACHED)
@pytest.mark.parametrize("absorbed", [True, False])
def test_the_layer_is_billed_the_same(absorbed, new, cached):
    flops, bill, cache = billed(replace(CONFIG, absorbed=absorbed), new, cached)
    step = latent_step(SPEC, new, cached, "fp32")["absorbed" if absorbed else "expanded cache"]
    assert flops == step.flops + masked("absorbed" if absorbed else "expanded", new)
    assert (bill.kv_read, cache.nbytes) == (step.read, step.held)


@pytest.mark.parametrize(("new", "cached"), NEW_AND_CACHED)
def test_expanding_each_step_is_billed_the_same(new, cached):
    """The layer's own expansion of all latents, then the course's attention over what comes out."""
    module, rows = random_model(CONFIG, torch.float32).layers[0].self_attn, cached + new
    q = torch.randn(new, HEADS, SIZES.nope_dim + SIZES.rope_dim)
    k_rope = torch.randn(rows, 1, SIZES.rope_dim).expand(-1, HEADS, -1)
    positions = torch.arange(rows)
    with kvlab.Ledger() as bill:
        expanded = module.kv_b_proj(torch.randn(rows, SIZES.rank)).unflatten(-1, (HEADS, -1))
        k, v = expanded.split([SIZES.nope_dim, SIZES.value_dim], dim=-1)
        attention(q, torch.cat([k, k_rope], dim=-1), v, positions[cached:], positions, scale=1.0)
    step = latent_step(SPEC, new, cached, "fp32")["expanded each step"]
    assert bill.flops == step.flops + masked("expanded", new)


def first_by_search(model, cached, most=1000):
    for new in range(1, most):
        steps = latent_step(model, new, cached)
        if steps["expanded each step"].flops < steps["absorbed"].flops:
            return new
    return None


def shaped(rank, rope, nope, value, heads=3):
    return toy(Latent(1, rank + rope, rank, naive_dims=(nope + rope, value)), query_heads=heads)


@pytest.mark.parametrize("cached", [0, 1, 2, 13, 500, 4096])
@pytest.mark.parametrize(
    "model",
    ["DeepSeek-V3", shaped(20, 3, 5, 7), shaped(21, 3, 19, 22), shaped(9, 3, 9, 9), ODD],
    ids=["DeepSeek-V3", "narrow", "nearly as wide", "as wide", "wider"],
)
def test_expand_from_is_the_first(model, cached):
    assert expand_from(model, cached) == first_by_search(model, cached)


def test_deepseek_v3():
    """512 x 256 / (1088 - 320), which is 170.67, in a long text; its first paper's widths."""
    assert [expand_from("DeepSeek-V3", cached) for cached in (0, 4096, 131072, 10**9)] == [1, 168, 171, 171]
    decode = latent_step("DeepSeek-V3", 1, 4096)
    assert decode["absorbed"].read == 4097 * 576 * 2
    assert decode["expanded cache"].read == 4097 * 128 * 320 * 2
    assert decode["absorbed"].flops == 2 * 128 * (512 * 256 + 1088 * 4097)
    assert expand_from(ODD, 10) is None


def test_the_least_time_on_a_device():
    device = Device("toy", memory_bytes=10**6, bandwidth=1000, flops={"bf16": 50_000})
    step = latent_step(ODD, 2, 3)["absorbed"]
    floor = step.on(device)
    assert (floor.read_s, floor.compute_s) == (step.read / 1000, step.flops / 50_000)
    assert floor.floor_s == max(floor.read_s, floor.compute_s)
    assert (floor.flops, floor.kv_read, floor.weights_read) == (step.flops, step.read, 0)
    assert step.on(replace(device, flops={})).compute_s == 0


UNKNOWN = ModelSpec.uniform_latent(layers=1, kv_lora_rank=4, rope_dim=2, query_heads=3, name="half known")
REFUSED = {
    "no latent": ("Llama-3.1-8B", "Llama-3.1-8B has no latent layers.*choose a model"),
    "an indexer": ("DeepSeek-V3.2", "layers of DeepSeek-V3.2 have a window or an indexer.*choose a model"),
    "a window": (toy(Latent(1, 6, 4, window=7, naive_dims=(5, 3))), "latent layers of toy have a window"),
    "unknown widths": (UNKNOWN, "widths of the heads of half known.*give nope_dim and value_dim"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_model_whose_forms_cannot_be_counted(why):
    model, says = REFUSED[why]
    for ask in (lambda: latent_step(model, 1, 5), lambda: expand_from(model, 5)):
        with pytest.raises(ValueError, match=says):
            ask()


def test_numbers_of_tokens_are_checked():
    with pytest.raises(ValueError, match="new is 0; it must be 1 or more"):
        latent_step(ODD, 0)
    with pytest.raises(ValueError, match="cached is -1"):
        latent_step(ODD, 1, -1)
    with pytest.raises(ValueError, match="cached is -1"):
        expand_from(ODD, -1)
    with pytest.raises(TypeError, match="new is 1.5; it must be a whole number"):
        latent_step(ODD, 1.5)
