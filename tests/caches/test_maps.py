"""Attention maps: rows sum to one, nothing of the future, the same in chunks, the model undisturbed."""

from dataclasses import replace

import pytest
import torch

from kvlab.caches import AttentionMaps, GrowingCache, NoCache
from tests.models import SMALL, random_ids, random_model

IDS = random_ids(11)


def maps_of(model, cache, sizes):
    watched = AttentionMaps(cache)
    logits = torch.cat([model(chunk, watched) for chunk in IDS.split(sizes)])
    return torch.stack(watched.maps), logits


@pytest.mark.parametrize("window", [None, 4])
def test_maps(window):
    config = replace(SMALL, windows=(window,) * 3)
    model = random_model(config)
    maps, logits = maps_of(model, NoCache(config), [11])
    assert maps.shape == (3, SMALL.num_heads, 11, 11)
    assert (maps.sum(dim=-1) - 1).abs().max() < 1e-12
    assert maps.triu(diagonal=1).abs().max() == 0
    assert torch.equal(logits, model(IDS, NoCache(config)))
    chunked, _ = maps_of(model, GrowingCache(config), [5, 1, 1, 4])
    assert (chunked - maps).abs().max() < 1e-12


def test_weights_times_values_are_the_heads_outputs():
    """The map is what attention did: applied to the values it gives back attend's answer, head by head."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(5, 6, 8, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 5, 2, 8, generator=generator, dtype=torch.float64)
    watched = AttentionMaps(GrowingCache(SMALL))
    out = watched.attend(0, q, k, v)
    for head in range(6):
        assert (watched.maps[0][head] @ v[:, head // 3] - out[:, head]).abs().max() < 1e-12


def test_it_is_the_wrapped_cache_in_all_else():
    model, cache = random_model(), GrowingCache(SMALL)
    watched = AttentionMaps(cache)
    model(IDS, watched)
    assert watched.length == cache.length == 11
    assert watched.nbytes == cache.nbytes
