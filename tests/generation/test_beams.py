"""Beam search against the same search without caches, and against all texts there are."""

import itertools
from dataclasses import replace

import pytest
import torch

from kvlab.caches import GrowingCache, NoCache, PagedCache, StaticCache
from kvlab.generation import beam_search
from tests.models import SMALL, random_ids, random_model

PROMPT = random_ids(7).tolist()
FEW = replace(SMALL, vocab_size=5)


def score(model, prompt, new, stop=None):
    """Log-probability of these tokens, and of the stop token after them where one is given."""
    text = [*prompt, *new, *([] if stop is None else [stop])]
    logits = model(torch.tensor(text), NoCache(model.config)).log_softmax(dim=-1)
    return sum(float(logits[t - 1, text[t]]) for t in range(len(prompt), len(text)))


def by_hand(model, prompt, width, steps, stop):
    """The search without caches: (score, tokens, ended), likeliest first."""
    beams = [(0.0, [], False)]
    for _ in range(steps):
        found = [beam for beam in beams if beam[2]]
        for total, new, ended in beams:
            if not ended:
                logits = model(torch.tensor([*prompt, *new]), NoCache(model.config))[-1].log_softmax(dim=-1)
                for token, each in enumerate(logits.tolist()):
                    found.append((total + each, new if token == stop else [*new, token], token == stop))
        beams = sorted(found, key=lambda beam: -beam[0])[:width]
    return beams


@pytest.mark.parametrize("stop", [None, 3])
@pytest.mark.parametrize("cache_type", [GrowingCache, StaticCache, PagedCache])
def test_it_is_the_search_without_caches(cache_type, stop):
    model = random_model()
    for width in (1, 2, 5):
        found = beam_search(model, PROMPT, width, 6, cache_type(SMALL), stop=() if stop is None else stop)
        right = by_hand(model, PROMPT, width, 6, stop)
        assert [(beam.tokens, beam.ended) for beam in found] == [(new, ended) for _, new, ended in right]
        for beam in found:
            total = score(model, PROMPT, beam.tokens, stop if beam.ended else None)
            assert beam.score == pytest.approx(total, abs=1e-9)


def test_wide_enough_it_finds_the_likeliest_of_all_texts():
    model, prompt = random_model(FEW), [1, 4, 2]
    best = max(itertools.product(range(5), repeat=4), key=lambda new: score(model, prompt, new))
    assert beam_search(model, prompt, 5**3, 4)[0].tokens == list(best)


def test_a_width_of_one_is_greedy():
    model = random_model()
    from kvlab import generate

    assert beam_search(model, PROMPT, 1, 9)[0].tokens == list(generate(model, PROMPT, 9))


def test_blocks_are_shared_and_all_come_back():
    model, cache = random_model(), PagedCache(SMALL, block_size=4, num_blocks=40)
    beam_search(model, PROMPT, 4, 12, cache)
    pool = cache.pages.pool
    assert cache.length == len(PROMPT) - 1 and pool.num_held == 2
    pool.check([cache.table])
    apart = 4 * -(-(len(PROMPT) + 12) // 4)
    assert pool.most_held < apart + 2  # what four beams would take if they shared nothing


def test_a_pool_that_is_too_small_ends_the_search_and_loses_nothing():
    model, cache = random_model(), PagedCache(SMALL, block_size=2, num_blocks=9)
    with pytest.raises(ValueError, match="needed and 0 of 9 are free"):
        beam_search(model, PROMPT, 4, 12, cache)
    cache.pages.pool.check([cache.table])
    assert cache.pages.pool.num_held == len(cache.table.blocks) == 3


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="width is 0"):
        beam_search(random_model(), PROMPT, 0)
    assert [beam.tokens for beam in beam_search(random_model(), PROMPT, 3, 0)] == [[]]
