"""Several samples of one prompt: each is what it would be alone, and the prompt is computed once."""

import pytest

import kvlab
from kvlab.caches import GrowingCache, NoCache, PagedCache, StaticCache
from kvlab.generation import parallel_samples
from tests.models import SMALL, random_ids, random_model

PROMPT = random_ids(9).tolist()


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.mark.parametrize("cache_type", [GrowingCache, StaticCache, PagedCache, NoCache])
def test_each_is_what_generate_writes_with_its_seed(model, cache_type):
    steps = list(parallel_samples(model, PROMPT, 3, 8, cache_type(SMALL), seed=5, top_k=20))
    texts = [list(text) for text in zip(*steps, strict=True)]
    alone = [list(kvlab.generate(model, PROMPT, 8, temperature=1.0, seed=5 + i, top_k=20)) for i in range(3)]
    assert texts == alone and len({tuple(text) for text in texts}) == 3


def test_the_prompt_is_computed_once_and_stays(model):
    cache = PagedCache(SMALL, block_size=4)
    lengths = []
    model.embed_tokens.register_forward_pre_hook(lambda module, args: lengths.append(len(args[0])))
    for number, _ in enumerate(parallel_samples(model, PROMPT, 3, 4, cache, seed=0)):
        shared = 2  # of four tokens each
        assert cache.pages.pool.num_held == shared + 3 * (1 + (number > 3))
    assert lengths == [8] + [1] * 12
    assert cache.length == 8 and cache.pages.pool.num_held == shared
    cache.pages.pool.check([cache.table])


def test_one_that_has_ended_gives_none(model):
    plain = list(kvlab.generate(model, PROMPT, 8, temperature=1.0, seed=3))
    steps = list(parallel_samples(model, PROMPT, 2, 8, seed=3, stop=plain[2]))
    assert [step[0] for step in steps] == plain[:2] + [None] * (len(steps) - 2)


def test_left_half_way_it_gives_everything_back(model):
    cache = PagedCache(SMALL, block_size=4)
    steps = parallel_samples(model, PROMPT, 3, 8, cache, seed=0)
    next(steps)
    steps.close()
    cache.pages.pool.check([cache.table])
    assert cache.length == 8


def test_arguments_are_checked_at_the_call(model):
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"n is {n}"):
            parallel_samples(model, PROMPT, n)
    with pytest.raises(ValueError, match="need 408 positions"):
        parallel_samples(model, PROMPT, 2, 400, NoCache(SMALL))
