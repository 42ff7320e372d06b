"""The one generation loop: feed what the cache does not hold yet, pick a token, repeat."""

import math
from operator import index

import torch

from kvlab.caches.growing import GrowingCache


def generate(
    model,
    prompt_ids,
    max_new_tokens=32,
    cache=None,
    *,
    temperature=0.0,
    top_k=None,
    top_p=None,
    seed=None,
    stop=(),
):
    """New tokens, one at a time, as an iterator of int.

    prompt_ids: all of the text so far, ids [T]. What ``cache`` already holds must be its beginning and is
    not computed again; a cache that holds all of it gives its last token back, since logits are never cached.
    cache: a fresh :class:`GrowingCache` unless given; afterwards it holds all but the last new token.
    temperature: 0 takes the likeliest token; above, logits are divided by it and a token is drawn, of
    the ``top_k`` likeliest, of the fewest that together reach probability ``top_p``, or both.
    seed: makes drawing repeatable.
    stop: an id or several; the first one met ends the text and is not yielded.

    Arguments are checked here, at the call, and not at the first token: ValueError or TypeError. While it
    runs, nothing else may use the cache: RuntimeError.
    """
    if not hasattr(model, "config"):
        raise TypeError(f"model is {type(model).__name__}; kvlab.load gives two things: model, tokenizer")
    tokens = _checked_prompt(model, prompt_ids)
    max_new_tokens = _whole("max_new_tokens", max_new_tokens, at_least=0)
    cache = GrowingCache(model.config) if cache is None else cache
    if not hasattr(cache, "attend"):
        raise TypeError(f"cache is {type(cache).__name__}; give one of kvlab.caches, made from model.config")
    _check_room(model, cache, len(tokens), max_new_tokens)
    top_k = None if top_k is None else _whole("top_k", top_k, at_least=1)
    _check_sampling(temperature, top_k, top_p)
    stop = _stop_ids(stop, model.config.vocab_size)
    random = torch.Generator()  # on the CPU: a seed gives the same text wherever the model runs
    if seed is None:
        random.seed()
    else:
        random.manual_seed(_whole("seed", seed, at_least=0) % 2**63)

    def pick(logits):
        if logits.max().isnan():
            raise ValueError("the model's logits are not numbers (NaN): are its weights damaged?")
        if temperature == 0:
            return int(logits.argmax())
        probabilities = sampling_probabilities(logits, temperature, top_k, top_p)
        return int(torch.multinomial(probabilities, 1, generator=random))

    return _loop(model, tokens, max_new_tokens, cache, cache.length, pick, stop)


def _loop(model, tokens, max_new_tokens, cache, length, pick, stop):
    for _ in range(max_new_tokens):
        if cache.length != length:
            raise RuntimeError(
                f"the cache held {length} tokens of this text and now holds {cache.length}: something else "
                "used it in between. One text, one cache; fork it for another"
            )
        if cache.length >= len(tokens):
            cache.truncate(len(tokens) - 1)
        new = torch.tensor(tokens[cache.length :], device=model.device)
        with torch.no_grad():  # around the call alone: the caller's own code runs between two tokens
            token = pick(model(new, cache, rows="last")[0])
        length = cache.length
        if token in stop:
            return
        tokens.append(token)
        yield token


def sampling_probabilities(logits, temperature, top_k=None, top_p=None):
    """The distribution that a token is drawn from: logits [vocab] -> probabilities [vocab].

    top-p: Holtzman et al. 2020, section 3.1; the token that crosses ``top_p`` is still in.
    """
    logits = logits.cpu().double()  # 16 bits are too few for a sum over a vocabulary
    probabilities = ((logits - logits.max()) / temperature).softmax(dim=-1)
    order = probabilities.argsort(descending=True, stable=True)
    kept = torch.ones_like(order, dtype=torch.bool)
    if top_k is not None:
        kept[top_k:] = False
    if top_p is not None:
        ranked = probabilities[order] * kept
        ranked = ranked / ranked.sum()
        kept &= ranked.cumsum(dim=-1) - ranked < top_p  # what comes before does not reach top_p yet
    probabilities = probabilities.clone()
    probabilities[order[~kept]] = 0
    return probabilities / probabilities.sum()


def _whole(name, value, at_least):
    """An integer of any kind (Python's, numpy's, a tensor's) as int."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if isinstance(value, bool) or number < at_least:
        raise ValueError(f"{name} is {value!r}; it must be an integer of {at_least} or more")
    return number


def _stop_ids(stop, vocab):
    stop = () if stop is None else [stop] if hasattr(stop, "__index__") and not _is_list(stop) else stop
    if isinstance(stop, str):
        raise TypeError(f"stop is {stop!r}; it takes token ids, such as tokenizer.stop_ids")
    ids = {_whole("a stop id", token, at_least=0) for token in stop}
    if ids and max(ids) >= vocab:
        raise ValueError(f"stop id {max(ids)} is outside the vocabulary: 0 to {vocab - 1}")
    return ids


def _is_list(value):
    return getattr(value, "shape", ()) != ()


def _checked_prompt(model, prompt_ids):
    if isinstance(prompt_ids, str):
        raise TypeError("prompt_ids is text; encode it first: tokenizer.encode(text)")
    tokens = prompt_ids.tolist() if hasattr(prompt_ids, "tolist") else prompt_ids
    try:
        tokens = list(tokens)
    except TypeError:
        raise TypeError(f"prompt_ids is {prompt_ids!r}; a prompt is a flat list of int") from None
    if not tokens:
        raise ValueError("the prompt is empty; there must be at least one token to continue from")
    vocab = model.config.vocab_size
    for position, token in enumerate(tokens):
        if isinstance(token, bool) or not hasattr(token, "__index__") or _is_list(token):
            raise TypeError(f"prompt_ids[{position}] is {token!r}; a prompt is a flat list of int")
        if not 0 <= index(token) < vocab:
            raise ValueError(
                f"token id {token} at position {position} is outside the vocabulary: 0 to {vocab - 1}"
            )
    return [index(token) for token in tokens]


def _check_room(model, cache, prompt, max_new_tokens):
    """The last new token is never fed back, so it needs neither a position nor room."""
    if cache.length > prompt:
        raise ValueError(
            f"the cache holds {cache.length} tokens and the prompt has {prompt}: a prompt is all of the text "
            "so far; truncate the cache or use a new one"
        )
    fed = prompt + max(max_new_tokens, 1) - 1
    if fed == cache.length:
        return
    if cache.capacity is not None and fed > cache.capacity:
        raise ValueError(
            f"a prompt of {prompt} and {max_new_tokens} new tokens need room for {fed} tokens, but the cache "
            f"has room for {cache.capacity}: shorten the prompt, ask for fewer, or make a larger cache (the "
            f"model takes {model.config.max_positions})"
        )
    limit = model.config.max_positions
    if int(cache.positions(fed - cache.length).max()) >= limit:
        raise ValueError(
            f"a prompt of {prompt} and {max_new_tokens} new tokens need {fed} positions, but the model has "
            f"{limit}: shorten the prompt or ask for fewer"
        )


def _check_sampling(temperature, top_k, top_p):
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    if temperature is None or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; it is 0 for greedy or above")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; it lies above 0 and at most at 1")
    if temperature == 0 and (top_k is not None or top_p is not None):
        raise ValueError("top_k and top_p shape a draw, and temperature 0 draws nothing: give a temperature")
