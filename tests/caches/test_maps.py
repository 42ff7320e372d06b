"""Attention maps: rows sum to one, nothing of the future, the same in chunks, the model undisturbed."""

import copy
from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import AttentionMaps, GrowingCache, NoCache, PagedCache, StaticCache
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


OPERATIONS = [
    ("truncate", lambda w, m: (w.truncate(4), m(IDS[4:8], w))),
    ("fail half-way, then again", lambda w, m: (fail(w), m(IDS[8:11], w))),
    ("generate into it", lambda w, m: list(kvlab.generate(m, IDS[:8].tolist(), 3, cache=w))),
]


def fail(watched):
    """A step that ends after its first layer: nothing of it may show."""
    n = torch.zeros(3, 6, 8, dtype=torch.float64)
    watched.attend(0, n, n[:, :2], n[:, :2])


@pytest.mark.parametrize("cache_type", [GrowingCache, StaticCache, PagedCache, NoCache])
@pytest.mark.parametrize(("name", "operation"), OPERATIONS)
def test_maps_follow_the_cache_through_everything(cache_type, name, operation):
    """Whatever was done, the maps are those of the tokens that the cache holds, read in one go."""
    model, watched = random_model(), AttentionMaps(cache_type(SMALL))
    model(IDS[:8], watched)
    if cache_type is NoCache:
        model(IDS[:5], watched)  # keeps nothing: the maps are those of the last text
        held = IDS[:5]
    else:
        operation(watched, model)
        held = {"truncate": IDS[:8], "generate into it": None}.get(name, IDS)
    if held is None:
        new = list(kvlab.generate(model, IDS[:8].tolist(), 3))
        held = torch.cat([IDS[:8], torch.tensor(new[:-1])])
    expected = AttentionMaps(NoCache(SMALL))
    model(held, expected)
    for got, right in zip(watched.maps, expected.maps, strict=True):
        assert got.shape == right.shape
        assert (got - right).abs().max() < 1e-12


def test_a_fork_goes_on_watching_by_itself():
    model, watched = random_model(), AttentionMaps(GrowingCache(SMALL))
    model(IDS[:5], watched)
    fork = watched.fork()
    model(IDS[5:], fork)
    assert watched.maps[0].shape == (6, 5, 5)
    assert fork.maps[0].shape == (6, 11, 11)


def test_watching_costs_nothing_on_the_bill_and_can_be_copied():
    model = random_model()
    with kvlab.Ledger() as plain:
        model(IDS, NoCache(SMALL))
    with kvlab.Ledger() as watched:
        model(IDS, AttentionMaps(NoCache(SMALL)))
    assert watched.flops == plain.flops
    copied = copy.deepcopy(AttentionMaps(NoCache(SMALL)))
    model(IDS, copied)
    assert copied.maps[2].shape == (6, 11, 11)


def test_a_cache_in_use_cannot_be_watched_from_now_on():
    model, cache = random_model(), GrowingCache(SMALL)
    model(IDS, cache)
    with pytest.raises(ValueError, match="holds 11 tokens already"):
        AttentionMaps(cache)
