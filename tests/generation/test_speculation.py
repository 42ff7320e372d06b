"""Speculation writes what plain generation writes, whatever the draft guesses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlab
from kvlab.caches import GrowingCache, NoCache, PagedCache, StaticCache
from kvlab.generation import prompt_lookup, sampling_probabilities, speculate
from tests.models import SMALL, random_ids, random_model

PROMPT = random_ids(9).tolist()


@pytest.fixture(scope="module")
def model():
    return random_model()


def joined(steps):
    return [token for step in steps for token in step]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), k=st.integers(0, 6), n=st.integers(0, 14))
def test_greedy_text_is_the_same_for_any_draft(model, data, k, n):
    plain = list(kvlab.generate(model, PROMPT, n))

    def draft(tokens, k):
        """Right, then wrong, at random; sometimes more than was asked for."""
        right = plain[len(tokens) - len(PROMPT) :][: data.draw(st.integers(0, 7))]
        return right + data.draw(st.lists(st.integers(0, SMALL.vocab_size - 1), max_size=3))

    cache = data.draw(st.sampled_from([GrowingCache, StaticCache, PagedCache, NoCache]))(SMALL)
    assert joined(speculate(model, PROMPT, n, cache, draft=draft, k=k)) == plain
    if n and cache.length:
        assert cache.length == len(PROMPT) + n - 1


def test_good_guesses_save_calls_and_bad_ones_cost_none(model):
    plain = list(kvlab.generate(model, PROMPT, 12))
    guesses = {
        "right": lambda tokens, k: plain[len(tokens) - len(PROMPT) :][:k],
        "wrong": lambda tokens, k: [
            (token + 1) % SMALL.vocab_size for token in plain[len(tokens) - len(PROMPT) :][:k]
        ],
    }
    steps = {name: list(speculate(model, PROMPT, 12, draft=draft, k=3)) for name, draft in guesses.items()}
    assert [len(step) for step in steps["right"]] == [4, 4, 4]
    assert [len(step) for step in steps["wrong"]] == [1] * 12
    assert joined(steps["right"]) == joined(steps["wrong"]) == plain


def test_a_stop_token_ends_the_text_wherever_it_stands(model):
    plain = list(kvlab.generate(model, PROMPT, 12))
    for place in range(12):
        stop, first = plain[place], plain.index(plain[place])
        cache = GrowingCache(SMALL)
        draft = lambda tokens, k: plain[len(tokens) - len(PROMPT) :][:k]  # noqa: E731
        assert joined(speculate(model, PROMPT, 12, cache, draft=draft, stop=stop)) == plain[:first]
        assert cache.length <= len(PROMPT) + first


@pytest.mark.parametrize("guess", ["likely", "unlikely"])
def test_sampled_tokens_have_the_models_distribution(model, guess):
    """The first two tokens of many texts, against the exact joint distribution (a chi-squared statistic)."""
    options = {"temperature": 0.7, "top_k": 4}
    first = sampling_probabilities(model(torch.tensor(PROMPT), NoCache(SMALL))[-1], 0.7, 4)
    joint = {}
    for one in first.nonzero().flatten().tolist():
        second = sampling_probabilities(model(torch.tensor([*PROMPT, one]), NoCache(SMALL))[-1], 0.7, 4)
        for two in second.nonzero().flatten().tolist():
            joint[one, two] = float(first[one] * second[two])
    wanted = (max if guess == "likely" else min)(joint, key=joint.get)
    cache, n, counts = GrowingCache(SMALL), 1200, dict.fromkeys(joint, 0)
    model(torch.tensor(PROMPT[:-1]), cache)

    def draft(tokens, k):
        return list(wanted[len(tokens) - len(PROMPT) :])

    for seed in range(n):
        cache.truncate(len(PROMPT) - 1)
        counts[tuple(joined(speculate(model, PROMPT, 2, cache, draft=draft, seed=seed, **options)))] += 1
    kept = {pair: p for pair, p in joint.items() if n * p >= 5}
    statistic = sum((counts[pair] - n * p) ** 2 / (n * p) for pair, p in kept.items())
    degrees = len(kept)
    assert degrees >= 5 and statistic < degrees + 5 * (2 * degrees) ** 0.5  # five standard deviations


def test_look_up_finds_the_latest_longest_match():
    text = [7, 1, 2, 3, 9, 2, 3, 5, 2, 3]
    assert prompt_lookup(text, 4) == [5, 2, 3]
    assert prompt_lookup(text, 1) == [5]
    assert prompt_lookup([1, 2, 3, 8, 1, 2, 3], 2) == [8, 1]
    assert prompt_lookup([4, 5, 6], 3) == prompt_lookup([4], 3) == []
    assert prompt_lookup([6, 6, 6], 2) == [6]


def test_on_a_text_that_repeats_itself_look_up_saves_calls():
    model, tokenizer = kvlab.load("tiny-gqa")
    ids = tokenizer.encode("All the world's a stage, and all the men and women merely players. " * 6)
    steps = list(speculate(model, ids, 40))
    assert joined(steps) == list(kvlab.generate(model, ids, 40))
    assert len(steps) < 20


def test_nobody_else_may_use_the_cache_meanwhile(model):
    cache = GrowingCache(SMALL)
    steps = speculate(model, PROMPT, 8, cache)
    next(steps)
    cache.truncate(3)
    with pytest.raises(RuntimeError, match="something else used it"):
        next(steps)


def test_arguments_are_checked_at_the_call(model):
    for name, value in {"k": -1, "max_new_tokens": -1, "temperature": -1.0, "stop": 99}.items():
        with pytest.raises(ValueError):
            speculate(model, PROMPT, **{name: value})
