"""Every lossless cache equals no cache at all: the same logits in float64, however the tokens are split."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlab
from kvlab.caches import GrowingCache, NoCache, PagedCache, StaticCache
from kvlab.training.variants import VARIANTS
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model

LOSSLESS = [GrowingCache, StaticCache, PagedCache]
TOLERANCE = 1e-10  # float64 sums of a few hundred terms, taken in another order


def logits_in_chunks(model, ids, cache, sizes):
    return torch.cat([model(chunk, cache) for chunk in ids.split(sizes)])


def compositions(n):
    """Every way to write n as a sum of positive integers, order counting: 2**(n - 1) of them."""
    for cuts in itertools.product([False, True], repeat=n - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        yield [b - a for a, b in itertools.pairwise(bounds)]


@pytest.mark.parametrize("cache_type", LOSSLESS)
@pytest.mark.parametrize("config", [ABSORBED, NAIVE])
def test_every_split_of_8_tokens_with_a_latent(config, cache_type):
    model, ids = random_model(config), random_ids(8)
    expected = model(ids, NoCache(config))
    for split in compositions(8):
        got = logits_in_chunks(model, ids, cache_type(config), split)
        assert (got - expected).abs().max() < TOLERANCE


@pytest.fixture(scope="module", params=[*((name, True) for name in VARIANTS), ("tiny-mla", False)], ids=str)
def tiny(request):
    name, absorbed = request.param
    return kvlab.load(name, dtype=torch.float64, absorbed=absorbed)[0]


@pytest.mark.parametrize("cache_type", LOSSLESS)
def test_every_split_of_7_tokens_on_the_trained_model(tiny, cache_type):
    ids = torch.tensor([0, 41, 300, 41, 7, 1279, 5])
    expected = tiny(ids, NoCache(tiny.config))
    splits = list(compositions(7))
    assert len(splits) == 64
    worst = max(
        (logits_in_chunks(tiny, ids, cache_type(tiny.config), split) - expected).abs().max()
        for split in splits
    )
    assert worst < TOLERANCE


@pytest.mark.parametrize("cache_type", LOSSLESS)
def test_random_splits_of_200_tokens_on_the_trained_model(tiny, cache_type):
    ids = random_ids(200, tiny.config.vocab_size)
    expected = tiny(ids, NoCache(tiny.config))
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        cuts = torch.randperm(199, generator=generator)[: int(torch.randint(1, 40, (), generator=generator))]
        bounds = [0, *sorted((cuts + 1).tolist()), 200]
        split = [b - a for a, b in itertools.pairwise(bounds)]
        assert (
            logits_in_chunks(tiny, ids, cache_type(tiny.config), split) - expected
        ).abs().max() < TOLERANCE


GROUPINGS = [replace(SMALL, num_kv_heads=heads) for heads in (6, 3, 2, 1)]


@pytest.mark.parametrize("cache_type", LOSSLESS)
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    config=st.sampled_from([*GROUPINGS, ABSORBED, NAIVE]),
    window=st.sampled_from([None, 1, 2, 5, 64]),
)
def test_any_split_any_grouping_any_window(cache_type, sizes, config, window):
    config = replace(config, windows=() if window is None else (window, None, window))
    model, ids = random_model(config), random_ids(sum(sizes))
    expected = model(ids, NoCache(config))
    got = logits_in_chunks(model, ids, cache_type(config), sizes)
    assert (got - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("cache_type", LOSSLESS)
@pytest.mark.parametrize("config", [SMALL, ABSORBED, NAIVE])
@settings(max_examples=30, deadline=None)
@given(
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("feed"), st.integers(0, 5), st.integers(1, 4)),
            st.tuples(st.just("truncate"), st.integers(0, 5), st.floats(0, 1)),
            st.tuples(st.just("fork"), st.integers(0, 5)),
            st.tuples(st.just("fail half-way"), st.integers(0, 5), st.integers(1, 4)),
        ),
        max_size=12,
    )
)
def test_any_order_of_feeding_truncating_and_forking(config, cache_type, operations):
    """A model of plain token lists: each branch must answer as if its own tokens had been fed to no cache."""
    model, spec = random_model(config), config.layer_kv(0)
    branches = [(cache_type(config), [])]
    fresh = itertools.count()
    for name, index, *rest in operations:
        cache, tokens = branches[index % len(branches)]
        if name == "feed":
            tokens.extend(next(fresh) % SMALL.vocab_size for _ in range(rest[0]))
            got = model(torch.tensor(tokens[cache.length :]), cache)
            expected = model(torch.tensor(tokens), NoCache(config))
            assert (got - expected[-rest[0] :]).abs().max() < TOLERANCE
        elif name == "truncate":
            keep = int(rest[0] * cache.length)
            cache.truncate(keep)
            del tokens[keep:]
        elif name == "fork":
            branches.append((cache.fork(), list(tokens)))
        else:  # the first layer stores, then the step ends in an error: nothing of it may count
            n = rest[0]
            q = torch.zeros(n, config.num_heads, spec.key_dim, dtype=torch.float64)
            k = torch.ones(n, spec.num_kv_heads, spec.key_dim, dtype=torch.float64)
            cache.attend(0, q, k, None if spec.values_in_keys else k[..., : spec.value_dim])
        for each_cache, each_tokens in branches:
            assert each_cache.length == len(each_tokens)
