"""Rotary positions: what they promise, not how they are computed."""

import math

import torch

from kvlab.model.config import RopeScaling
from kvlab.model.rope import rope_cos_sin, rope_frequencies, rotate


def scores_at(shift):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 5, 3, 8, generator=generator, dtype=torch.float64)
    cos, sin = rope_cos_sin(torch.arange(5) * 3 + shift, rope_frequencies(8, 10_000.0))
    return torch.einsum("nhd,thd->hnt", rotate(q, cos, sin), rotate(k, cos, sin))


def test_scores_depend_on_distance_alone():
    assert (scores_at(0) - scores_at(1000)).abs().max() < 1e-10


def test_scores_do_depend_on_distance():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 8, generator=generator, dtype=torch.float64)
    frequencies = rope_frequencies(8, 10_000.0)

    def score(distance):
        at_zero = rope_cos_sin(torch.tensor([0]), frequencies)
        there = rope_cos_sin(torch.tensor([distance]), frequencies)
        return float((rotate(q, *there) * rotate(k, *at_zero)).sum())

    assert len({round(score(distance), 6) for distance in range(20)}) == 20


def test_a_rotation_keeps_lengths_and_position_zero_keeps_everything():
    x = torch.randn(4, 3, 8, dtype=torch.float64)
    cos, sin = rope_cos_sin(torch.arange(4), rope_frequencies(8, 10_000.0))
    turned = rotate(x, cos, sin)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-12)
    assert torch.equal(turned[0], x[0])
    assert not torch.allclose(turned[1], x[1])


def test_pairs_are_half_split():
    """A quarter turn of pair 0 moves entry 0 to entry D/2 and nothing else."""
    x = torch.zeros(1, 1, 8, dtype=torch.float64)
    x[..., 0] = 1
    turned = rotate(x, torch.tensor([[0.0, 1, 1, 1]]), torch.tensor([[1.0, 0, 0, 0]]))
    assert turned.flatten().tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_linear_scaling_divides_positions():
    plain, scaled = rope_frequencies(8, 1e4), rope_frequencies(8, 1e4, RopeScaling("linear", 4.0))
    assert torch.equal(scaled * 4, plain)


def test_llama3_scaling_slows_only_the_slow():
    scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    plain, scaled = rope_frequencies(128, 5e5), rope_frequencies(128, 5e5, scaling)
    turns = 8192 * plain / (2 * math.pi)
    assert torch.equal(scaled[turns > 4], plain[turns > 4])
    assert torch.allclose(scaled[turns < 1] * 8, plain[turns < 1], rtol=1e-12)
    between = (turns > 1) & (turns < 4)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


def test_yarn_keeps_the_fast_divides_the_slow_and_blends_between():
    """DeepSeek-V2's own numbers: the bounds are pair numbers, rounded outwards."""
    scaling = RopeScaling("yarn", 40.0, original_max_positions=4096, beta_fast=32, beta_slow=1)
    plain, scaled = rope_frequencies(64, 1e4), rope_frequencies(64, 1e4, scaling)
    turns = 4096 * plain / (2 * math.pi)
    first, last = int((turns >= 32).sum()) - 1, int((turns > 1).sum())
    assert (first, last) == (10, 23)
    assert torch.equal(scaled[: first + 1], plain[: first + 1])
    assert torch.allclose(scaled[last:] * 40, plain[last:], rtol=1e-12)
    kept = (scaled / plain * 40 - 1) / 39  # 1 at `first`, 0 at `last`, straight between
    assert torch.allclose(kept[first : last + 1], torch.linspace(1, 0, 14, dtype=torch.float64), atol=1e-12)


def test_amplitude_multiplies_both():
    positions, frequencies = torch.arange(5), rope_frequencies(8, 1e4)
    plain, larger = rope_cos_sin(positions, frequencies), rope_cos_sin(positions, frequencies, 1.25)
    assert all(torch.equal(b, 1.25 * a) for a, b in zip(plain, larger, strict=True))
