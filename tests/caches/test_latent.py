"""Caches under latent attention: what is kept, what it costs, and keys that contain the values."""

import pytest
import torch

import kvlab
from kvlab.caches import AttentionMaps, GrowingCache, NoCache, PagedCache, StaticCache
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model

IDS = random_ids(11)
SIZES, LAYERS, HEADS = ABSORBED.latent, ABSORBED.num_layers, ABSORBED.num_heads
ONE_LATENT = LAYERS * (SIZES.rank + SIZES.rope_dim) * 8  # bytes a token, float64
ALL_HEADS = LAYERS * HEADS * (SIZES.nope_dim + SIZES.rope_dim + SIZES.value_dim) * 8
KEPT = [(ABSORBED, ONE_LATENT), (NAIVE, ALL_HEADS)]


@pytest.mark.parametrize("cache_type", [GrowingCache, StaticCache])
@pytest.mark.parametrize(("config", "one_token"), KEPT)
def test_the_bill(config, one_token, cache_type):
    """Written and read once: the absorbed form's values are not read again beside the keys they are in."""
    model, cache = random_model(config), cache_type(config)
    with kvlab.Ledger() as prefill:
        model(IDS[:8], cache)
    assert (prefill.kv_written, prefill.kv_read) == (8 * one_token, 8 * one_token)
    with kvlab.Ledger() as decode:
        model(IDS[8:9], cache)
    assert (decode.kv_written, decode.kv_read) == (one_token, 9 * one_token)
    assert decode.copied == (8 * one_token if cache_type is GrowingCache else 0)
    assert decode.kv_held == cache.nbytes == one_token * (9 if cache_type is GrowingCache else 300)


@pytest.mark.parametrize(("config", "one_token"), KEPT)
def test_truncating_and_forking_move_what_is_kept_and_no_more(config, one_token):
    model, cache = random_model(config), StaticCache(config, capacity=20)
    model(IDS, cache)
    with kvlab.Ledger() as bill:
        fork = cache.fork()
    assert bill.copied == 11 * one_token
    cache.truncate(4)
    expected = model(torch.cat([IDS[:4], IDS[:3]]), NoCache(config))[-3:]
    assert (model(IDS[:3], cache) - expected).abs().max() < 1e-12
    expected = model(torch.cat([IDS, IDS[:3]]), NoCache(config))[-3:]
    assert (model(IDS[:3], fork) - expected).abs().max() < 1e-12
    growing = GrowingCache(config)
    model(IDS, growing)
    growing.truncate(4)
    assert growing.nbytes == 4 * one_token


@pytest.mark.parametrize("config", [ABSORBED, NAIVE])
def test_rows_are_independent_texts(config):
    model, ids = random_model(config), random_ids(15)
    together = model(ids, NoCache(config, rows=3))
    alone = torch.cat([model(row, NoCache(config)) for row in ids.split(5)])
    assert (together - alone).abs().max() < 1e-12


@pytest.mark.parametrize("sizes", [[11], [5, 1, 1, 4]])
@pytest.mark.parametrize("config", [ABSORBED, NAIVE])
def test_attention_maps(config, sizes):
    """Both forms give every key the same share, whatever it is made of."""
    expected = AttentionMaps(NoCache(NAIVE))
    random_model(NAIVE)(IDS, expected)
    model, watched = random_model(config), AttentionMaps(GrowingCache(config))
    logits = torch.cat([model(chunk, watched) for chunk in IDS.split(sizes)])
    assert (logits - model(IDS, NoCache(config))).abs().max() < 1e-12
    for got, right in zip(watched.maps, expected.maps, strict=True):
        assert got.shape == (HEADS, 11, 11)
        assert (got.sum(dim=-1) - 1).abs().max() < 1e-12
        assert (got - right).abs().max() < 1e-12
    watched.truncate(6)
    model(IDS[6:], watched)
    assert (watched.maps[1] - expected.maps[1]).abs().max() < 1e-12


@pytest.mark.parametrize("cache_type", [NoCache, GrowingCache, StaticCache, PagedCache])
def test_values_come_where_they_belong_and_nowhere_else(cache_type):
    cache = cache_type(ABSORBED)
    q, k = torch.zeros(2, HEADS, 16), torch.zeros(2, 1, 16)
    with pytest.raises(
        ValueError, match="v is given, but this layer's values are the first entries of its k"
    ):
        cache.attend(0, q, k, k[..., :12])
    assert (cache.attend(0, q, k, None).shape, cache.length) == ((2, HEADS, 12), 0)
    with pytest.raises(TypeError, match="v is NoneType; it must be a tensor"):
        cache_type(NAIVE).attend(0, torch.zeros(2, HEADS, 14), torch.zeros(2, HEADS, 14), None)
    with pytest.raises(TypeError, match="v is NoneType; it must be a tensor"):
        cache_type(SMALL).attend(0, torch.zeros(2, 6, 8), torch.zeros(2, 2, 8), None)


@pytest.mark.parametrize("cache_type", [NoCache, GrowingCache, StaticCache, PagedCache])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("k", [2, 1, 12]), ("k", [2, HEADS, 16]), ("q", [2, HEADS, 14]), ("q", [3, HEADS, 16]), ("k", [1, 16])],
)
def test_wrong_shapes_are_named(cache_type, name, shape):
    """A latent without its rope key, a latent a head, queries that were not absorbed."""
    right = {"q": torch.zeros(2, HEADS, 16), "k": torch.zeros(2, 1, 16), "v": None}
    with pytest.raises(ValueError, match=f"{name} has shape"):
        cache_type(ABSORBED).attend(0, **(right | {name: torch.zeros(shape)}))


@pytest.mark.parametrize("cache_type", [GrowingCache, StaticCache, PagedCache])
def test_a_cache_owns_its_latents(cache_type):
    q = torch.randn(2, HEADS, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, again, cache = cache_type(ABSORBED).attend(0, q, k, None), k.clone(), cache_type(ABSORBED)
    for layer in range(LAYERS):
        cache.attend(layer, q[:1], k[:1], None)
    cache.advance(1)
    k.zero_()
    assert (cache.attend(0, q[1:], again[1:], None) - expected[1:]).abs().max() < 1e-12


def test_a_cache_of_the_other_form_is_refused():
    with pytest.raises(ValueError, match="made for a model of another shape"):
        random_model(ABSORBED)(IDS, GrowingCache(NAIVE))


def test_both_forms_write_the_same_text():
    texts = [
        list(kvlab.generate(random_model(config), IDS.tolist(), 12, cache=cache_type(config)))
        for config in (ABSORBED, NAIVE)
        for cache_type in (NoCache, GrowingCache, StaticCache, PagedCache)
    ]
    assert len(texts[0]) == 12 and all(text == texts[0] for text in texts)
