"""The one loop: same tokens through every cache, arguments checked at the call, honest sampling."""

import numpy as np
import pytest
import torch

import kvlab
from kvlab.caches import GrowingCache, NoCache, StaticCache
from kvlab.generation import sampling_probabilities
from tests.models import SMALL, random_ids, random_model

PROMPT = random_ids(9).tolist()


@pytest.fixture(scope="module")
def model():
    return random_model()


def tokens(model, prompt=PROMPT, n=12, **options):
    return list(kvlab.generate(model, prompt, n, **options))


def test_every_cache_writes_the_same_text(model):
    expected = tokens(model, cache=NoCache(SMALL))
    assert len(expected) == 12
    for cache in (None, GrowingCache(SMALL), StaticCache(SMALL), StaticCache(SMALL, capacity=20)):
        assert tokens(model, cache=cache) == expected
        assert tokens(model, torch.tensor(PROMPT), cache=cache and type(cache)(SMALL)) == expected


def test_greedy_takes_the_likeliest(model):
    text = list(PROMPT)
    for token in tokens(model, n=4):
        assert token == int(model(torch.tensor(text), NoCache(SMALL))[-1].argmax())
        text.append(token)


def test_a_conversation_continues_in_its_cache(model):
    """A second turn computes only what is new, and answers as if the whole text had been read anew."""
    cache = GrowingCache(SMALL)
    text = PROMPT + tokens(model, cache=cache, n=5) + [3, 1, 4]
    assert cache.length == len(PROMPT) + 4
    with kvlab.Ledger() as bill:
        again = tokens(model, text, cache=cache, n=5)
    assert again == tokens(model, text, cache=NoCache(SMALL), n=5)
    token_bytes = 2 * SMALL.num_layers * SMALL.num_kv_heads * SMALL.head_dim * 8
    assert (
        bill.kv_written == (4 + 4) * token_bytes
    )  # the answer's last token, 3, 1, 4; then 4 of the new answer


def test_a_prompt_cached_whole_computes_its_last_token_again(model):
    cache = GrowingCache(SMALL)
    model(torch.tensor(PROMPT), cache)
    assert tokens(model, cache=cache) == tokens(model)


def test_stop_ends_the_text_and_is_not_part_of_it(model):
    whole = tokens(model, temperature=1.0, seed=5)
    place = next(i for i in range(3, 12) if whole[i] not in whole[:i])
    for stop in (whole[place], [whole[place]], (whole[place], 36), torch.tensor([whole[place]])):
        assert tokens(model, temperature=1.0, seed=5, stop=stop) == whole[:place]


def test_the_callers_loop_may_stop_early(model):
    seen = [token for token, _ in zip(kvlab.generate(model, PROMPT, 10), range(3), strict=False)]
    assert seen == tokens(model, n=3)


def test_gradients_are_left_alone(model):
    trainable = random_model(dtype=torch.float32).requires_grad_(True)
    cache = GrowingCache(SMALL)
    stream = kvlab.generate(trainable, PROMPT, 3, cache=cache)
    next(stream)
    assert torch.is_grad_enabled()
    assert not cache._kv[0][0].requires_grad


def test_a_seed_repeats_and_no_seed_does_not(model):
    first = tokens(model, temperature=1.0, seed=3)
    assert first == tokens(model, temperature=1.0, seed=3)
    assert first != tokens(model, temperature=1.0, seed=4)
    before = torch.random.get_rng_state()
    assert len({tuple(tokens(model, temperature=1.0)) for _ in range(4)}) > 1
    assert torch.equal(before, torch.random.get_rng_state())  # the reader's own random numbers are untouched


def test_sampling_probabilities():
    logits = torch.tensor([1.0, 3.0, 2.0, 0.0], dtype=torch.float64)
    p = logits.softmax(0)
    assert torch.allclose(sampling_probabilities(logits, 1.0), p)
    assert torch.allclose(sampling_probabilities(logits, 0.5), (2 * logits).softmax(0))
    assert sampling_probabilities(logits, 1.0, top_k=1).tolist() == [0, 1, 0, 0]
    two = sampling_probabilities(logits, 1.0, top_k=2)
    assert torch.allclose(two, torch.tensor([0, p[1], p[2], 0]) / (p[1] + p[2]))
    assert torch.allclose(sampling_probabilities(logits, 1.0, top_k=99), p)
    # p is about .644, .237, .087, .032: the token that crosses top_p is still in
    assert torch.allclose(sampling_probabilities(logits, 1.0, top_p=0.65), two)
    assert sampling_probabilities(logits, 1.0, top_p=0.6).tolist() == [0, 1, 0, 0]
    assert torch.allclose(sampling_probabilities(logits, 1.0, top_p=1.0), p)
    assert sampling_probabilities(logits, 1.0, top_p=1e-9).tolist() == [0, 1, 0, 0]
    assert torch.allclose(sampling_probabilities(logits, 1.0, top_k=2, top_p=0.75), two)
    assert sampling_probabilities(logits, 1.0, top_k=2, top_p=0.73).tolist() == [0, 1, 0, 0]


def test_ties_keep_exactly_k():
    flat = torch.zeros(5)
    assert (sampling_probabilities(flat, 1.0, top_k=3) > 0).sum() == 3


def test_drawn_tokens_follow_the_distribution(model):
    p = sampling_probabilities(model(torch.tensor(PROMPT), NoCache(SMALL))[-1], 3.0, top_k=4)
    draws = torch.tensor([tokens(model, n=1, temperature=3.0, top_k=4, seed=seed)[0] for seed in range(400)])
    shares = draws.bincount(minlength=SMALL.vocab_size) / 400
    assert (shares - p).abs().max() < 0.1  # four standard deviations of the likeliest share


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"prompt": []}, ValueError, "the prompt is empty"),
        ({"prompt": torch.tensor([], dtype=torch.int64)}, ValueError, "the prompt is empty"),
        ({"prompt": "To be"}, TypeError, "encode it first"),
        ({"prompt": [1, 37]}, ValueError, "token id 37 at position 1 is outside the vocabulary: 0 to 36"),
        ({"prompt": [-1]}, ValueError, "token id -1 at position 0"),
        ({"prompt": [[1, 2]]}, TypeError, r"prompt_ids\[0\] is \[1, 2\]; a prompt is a flat list"),
        ({"prompt": [1.5]}, TypeError, r"prompt_ids\[0\] is 1.5"),
        ({"n": -1}, ValueError, "max_new_tokens is -1"),
        ({"n": 2.0}, TypeError, "max_new_tokens is 2.0"),
        ({"n": 293}, ValueError, "9 and 293 new tokens need room for 301 tokens, .* room for 300"),
        ({"n": 293, "cache": NoCache(SMALL)}, ValueError, "need 301 positions, but the model has 300"),
        ({"cache": StaticCache(SMALL, capacity=10)}, ValueError, "need room for 20 tokens, .* room for 10"),
        ({"prompt": 5}, TypeError, "prompt_ids is 5; a prompt is a flat list of int"),
        ({"prompt": None}, TypeError, "prompt_ids is None"),
        ({"prompt": [True]}, TypeError, r"prompt_ids\[0\] is True"),
        ({"prompt": torch.tensor([True])}, TypeError, r"prompt_ids\[0\] is True"),
        ({"cache": {}}, TypeError, "cache is dict; give one of kvlab.caches"),
        ({"stop": "."}, TypeError, "stop is '.'; it takes token ids"),
        ({"stop": 1.5}, TypeError, "float"),
        ({"stop": [1.5]}, TypeError, "a stop id is 1.5; it must be an integer"),
        ({"stop": [37]}, ValueError, "stop id 37 is outside the vocabulary: 0 to 36"),
        ({"temperature": 1.0, "seed": 1.5}, TypeError, "seed is 1.5; it must be an integer"),
        ({"temperature": float("nan")}, ValueError, "temperature is nan"),
        ({"temperature": None}, ValueError, "temperature is None"),
        ({"temperature": "1"}, TypeError, "temperature is '1'; it must be a number"),
        ({"temperature": 1.0, "top_k": 2.5}, TypeError, "top_k is 2.5; it must be an integer"),
        ({"temperature": 1.0, "top_p": "a"}, TypeError, "top_p is 'a'"),
        ({"temperature": -0.1}, ValueError, "temperature is -0.1"),
        ({"temperature": 1.0, "top_k": 0}, ValueError, "top_k is 0"),
        ({"temperature": 1.0, "top_p": 0.0}, ValueError, "top_p is 0.0"),
        ({"temperature": 1.0, "top_p": 1.1}, ValueError, "top_p is 1.1"),
        ({"top_k": 5}, ValueError, "temperature 0 draws nothing"),
    ],
)
def test_arguments_are_checked_at_the_call(model, arguments, error, says):
    arguments = {"prompt": PROMPT, "n": 12} | arguments
    prompt, n = arguments.pop("prompt"), arguments.pop("n")
    with pytest.raises(error, match=says):
        kvlab.generate(model, prompt, n, **arguments)  # not iterated: the call itself must refuse


def test_integers_of_any_kind_will_do(model):
    expected = tokens(model, n=4, temperature=1.0, top_k=5, seed=3)
    for whole in (np.int64, lambda value: torch.tensor(value)):
        prompt = np.array(PROMPT)
        got = tokens(
            model, prompt, n=whole(4), temperature=1.0, top_k=whole(5), seed=whole(3), stop=whole(36)
        )
        assert got == expected
    assert tokens(model, n=3, stop=None) == tokens(model, n=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e-4, 1e300])
def test_any_positive_temperature_is_a_distribution(dtype, temperature):
    p = sampling_probabilities(torch.tensor([1.0, 30.0, 2.0], dtype=dtype), temperature)
    assert p.sum() == pytest.approx(1)
    if temperature < 1:
        assert p.tolist() == [0, 1, 0]


def test_a_damaged_model_is_not_a_text_of_zeros():
    broken = random_model()
    broken.norm.weight[0] = float("nan")
    with pytest.raises(ValueError, match=r"not numbers \(NaN\)"):
        tokens(broken, n=1)


def test_the_pair_that_load_gives_is_not_a_model(model):
    with pytest.raises(TypeError, match="model is tuple; kvlab.load gives two things"):
        kvlab.generate((model, None), PROMPT)


def test_one_text_one_cache(model):
    """A cache that something else uses between two tokens is noticed, and nothing wrong is written."""
    cache = GrowingCache(SMALL)
    first, second = (kvlab.generate(model, prompt, 5, cache=cache) for prompt in (PROMPT, [1, 2, 3]))
    next(first)
    with pytest.raises(RuntimeError, match="held 0 tokens of this text and now holds 9"):
        next(second)
    alone = tokens(model, n=2)
    assert next(first) == alone[1]  # the first goes on undisturbed
    cache.truncate(4)
    with pytest.raises(RuntimeError, match="held 10 tokens of this text and now holds 4"):
        next(first)


def test_a_generation_left_half_way_leaves_a_good_cache(model):
    cache = GrowingCache(SMALL)
    stream = kvlab.generate(model, PROMPT, 9, cache=cache)
    text = PROMPT + [next(stream), next(stream)]
    del stream
    assert tokens(model, text, n=3, cache=cache) == tokens(model, text, n=3)


def test_the_last_position_can_be_used(model):
    assert len(tokens(model, n=292)) == 292
    assert len(tokens(model, n=292, cache=StaticCache(SMALL, capacity=300))) == 292
    assert tokens(model, n=0) == []


def test_a_cache_that_holds_another_text_is_refused(model):
    cache = GrowingCache(SMALL)
    model(random_ids(12), cache)
    with pytest.raises(ValueError, match="the cache holds 12 tokens and the prompt has 9"):
        kvlab.generate(model, PROMPT, cache=cache)
