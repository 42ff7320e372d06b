"""Multi-head latent attention: the paper's equations, and two forms of them that must agree."""

import math
from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import GrowingCache, NoCache, base, none
from kvlab.model import config as config_module
from kvlab.model import latent
from kvlab.model.config import LatentSizes, LayerKV, RopeScaling
from kvlab.model.rope import rope_frequencies
from tests.models import ABSORBED, NAIVE, random_ids, random_model

IDS = random_ids(9)
UNSQUEEZED = LatentSizes(rank=12, nope_dim=10, rope_dim=4, value_dim=7)
YARN = RopeScaling("yarn", 4.0, original_max_positions=16, beta_fast=2.0, mscale=1.3, mscale_all_dim=0.6)
VARIANTS = {
    "squeezed queries": ABSORBED,
    "queries as they are": replace(ABSORBED, latent=UNSQUEEZED),
    "yarn": replace(ABSORBED, rope_scaling=YARN),
    "a window": replace(ABSORBED, windows=(4, None, 4)),
}


def logits(config):
    return random_model(config)(IDS, NoCache(config))


@pytest.mark.parametrize("variant", VARIANTS)
def test_absorbed_is_naive(variant):
    config = VARIANTS[variant]
    naive = logits(replace(config, absorbed=False))
    assert naive.abs().max() > 1
    assert (logits(config) - naive).abs().max() < 1e-12


def test_gradients_agree_too():
    gradients = []
    for config in (ABSORBED, NAIVE):
        model = random_model(config).requires_grad_(True)
        model(IDS, NoCache(config)).square().mean().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for absorbed, naive in zip(*gradients, strict=True):
        assert absorbed.abs().max() > 0
        assert (absorbed - naive).abs().max() < 1e-9 * naive.abs().max()


@torch.no_grad()
def by_the_paper(module, config, x):
    """Equations 9 to 19 of arXiv:2405.04434, one token and one head at a time -> [N, hidden]."""
    sizes, weights = config.latent, module.state_dict()
    frequencies = rope_frequencies(sizes.rope_dim, config.rope_theta, config.rope_scaling)
    width, rope = sizes.nope_dim + sizes.rope_dim, config.rope_scaling

    def w(name):
        return weights[name + ".weight"]

    def norm(vector, name):
        return vector / torch.sqrt(vector @ vector / len(vector) + 1e-6) * w(name)

    def rotated(vector, position):
        pairs = torch.complex(*vector.chunk(2)) * torch.polar(
            torch.full_like(frequencies, rope.amplitude), position * frequencies
        )
        return torch.cat([pairs.real, pairs.imag])

    def query(token):
        if sizes.query_rank is None:
            return (w("q_proj") @ x[token]).split(width)
        return (w("q_b_proj") @ norm(w("q_a_proj") @ x[token], "q_a_layernorm")).split(width)

    queries, keys, values = [], [], []
    for token in range(len(x)):
        c, k_rope = (w("kv_a_proj_with_mqa") @ x[token]).split([sizes.rank, sizes.rope_dim])
        c, k_rope = norm(c, "kv_a_layernorm"), rotated(k_rope, token)
        expanded = (w("kv_b_proj") @ c).split(sizes.nope_dim + sizes.value_dim)
        keys.append([torch.cat([head[: sizes.nope_dim], k_rope]) for head in expanded])
        values.append([head[sizes.nope_dim :] for head in expanded])
        heads = [head.split([sizes.nope_dim, sizes.rope_dim]) for head in query(token)]
        queries.append([torch.cat([q, rotated(q_rope, token)]) for q, q_rope in heads])
    rows = []
    for t in range(len(x)):
        outputs = []
        for h in range(config.num_heads):
            scores = torch.stack([queries[t][h] @ keys[s][h] for s in range(t + 1)])
            shares = (scores * rope.score_factor / math.sqrt(width)).softmax(dim=0)
            outputs.append(sum(share * values[s][h] for s, share in enumerate(shares)))
        rows.append(w("o_proj") @ torch.cat(outputs))
    return torch.stack(rows)


def off_from_the_paper(config):
    """How far one layer's attention is from the equations."""
    module = random_model(config).layers[1].self_attn
    x = torch.randn(9, config.hidden_size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    angles = torch.arange(9)[:, None] * rope_frequencies(4, config.rope_theta, config.rope_scaling)
    amplitude = config.rope_scaling.amplitude
    got = module(x, amplitude * angles.cos(), amplitude * angles.sin(), NoCache(config))
    return (got - by_the_paper(module, config, x)).abs().max()


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("variant", ["squeezed queries", "queries as they are", "yarn"])
def test_a_layer_is_the_papers_equations(variant, absorbed):
    assert off_from_the_paper(replace(VARIANTS[variant], absorbed=absorbed)) < 1e-12


class Forgetful(latent.RMSNorm):
    def forward(self, x):
        return x * self.weight


def scale_of_the_cached_width(num_kv_heads, key_dim, value_dim, scale, *rest, **more):
    return LayerKV(num_kv_heads, key_dim, value_dim, 1 / math.sqrt(key_dim), *rest, **more)


def scale_without_the_rope_key(num_kv_heads, key_dim, value_dim, scale, *rest, **more):
    return LayerKV(num_kv_heads, key_dim, value_dim, 1 / math.sqrt(10), *rest, **more)


sound_attention = none.attention


def values_from_the_other_end(q, k, v, *rest):
    return sound_attention(q, k, k[..., -rest[-1] :], *rest)


MUTATIONS = {
    "scale of the cached width": (config_module, "LayerKV", scale_of_the_cached_width),
    "scale without the rope key": (config_module, "LayerKV", scale_without_the_rope_key),
    "rope key not turned": (latent, "rotate", lambda x, cos, sin: x),
    "rope key forgotten": (latent, "rotate", lambda x, cos, sin: 0 * x),
    "latent norm forgotten": (latent, "RMSNorm", Forgetful),
    "the model's eps in the latent norms": (latent, "LATENT_EPS", 1e-2),
    "values from the wrong end": (none, "attention", values_from_the_other_end),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_comparison_notices(monkeypatch, mutation):
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert off_from_the_paper(ABSORBED) > 1e-3


@pytest.mark.parametrize("mutation", ["scale of the cached width", "values from the wrong end"])
def test_absorbed_differs_from_naive(monkeypatch, mutation):
    """Faults of the absorbed form alone show without the paper, too; the naive form is untouched by both."""
    expected = logits(NAIVE)
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert (logits(ABSORBED) - expected).abs().max() > 1e-3


def test_values_from_the_wrong_end_in_a_cache(monkeypatch):
    model = random_model(ABSORBED)
    expected = model(IDS, NoCache(ABSORBED))
    assert (model(IDS, GrowingCache(ABSORBED)) - expected).abs().max() < 1e-12
    monkeypatch.setattr(base, "attention", values_from_the_other_end)
    assert (model(IDS, GrowingCache(ABSORBED)) - expected).abs().max() > 1e-3


def flops(config, n, t):
    """Of the last n of t tokens, by the shapes of every product."""
    sizes, heads, hidden = config.latent, config.num_heads, config.hidden_size
    width = sizes.nope_dim + sizes.rope_dim
    q = hidden * sizes.query_rank + sizes.query_rank * heads * width
    kv, out = hidden * (sizes.rank + sizes.rope_dim), heads * sizes.value_dim * hidden
    both_ways = heads * sizes.rank * (sizes.nope_dim + sizes.value_dim)  # expand, or absorb: as many
    seen = width + sizes.value_dim if not config.absorbed else 2 * sizes.rank + sizes.rope_dim
    layer = q + kv + out + both_ways + t * heads * seen + 3 * hidden * config.mlp_size
    return 2 * n * (config.num_layers * layer + hidden * config.vocab_size)


@pytest.mark.parametrize("config", [ABSORBED, NAIVE])
def test_every_product_is_billed(config):
    model, cache = random_model(config), GrowingCache(config)
    with kvlab.Ledger() as prefill:
        model(IDS[:6], cache)
    with kvlab.Ledger() as decode:
        model(IDS[6:7], cache)
    assert (prefill.flops, decode.flops) == (flops(config, 6, 6), flops(config, 1, 7))
