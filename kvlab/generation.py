"""The one generation loop: feed what the cache does not hold yet, pick a token, repeat."""

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

    Arguments are checked here, at the call, and not at the first token: ValueError or TypeError.
    """
    tokens = _checked_prompt(model, prompt_ids)
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens!r}; it must be an integer of 0 or more")
    cache = GrowingCache(model.config) if cache is None else cache
    _check_room(model, cache, len(tokens), max_new_tokens)
    _check_sampling(temperature, top_k, top_p)
    stop = {stop} if isinstance(stop, int) else set(stop)
    random = torch.Generator(model.device)
    if seed is None:
        random.seed()
    else:
        random.manual_seed(seed)

    def pick(logits):
        if temperature == 0:
            return int(logits.argmax())
        probabilities = sampling_probabilities(logits, temperature, top_k, top_p)
        return int(torch.multinomial(probabilities, 1, generator=random))

    return _loop(model, tokens, max_new_tokens, cache, pick, stop)


def _loop(model, tokens, max_new_tokens, cache, pick, stop):
    for _ in range(max_new_tokens):
        if cache.length >= len(tokens):
            cache.truncate(len(tokens) - 1)
        new = torch.tensor(tokens[cache.length :], device=model.device)
        with torch.no_grad():  # around the call alone: the caller's own code runs between two tokens
            token = pick(model(new, cache, rows="last")[0])
        if token in stop:
            return
        tokens.append(token)
        yield token


def sampling_probabilities(logits, temperature, top_k=None, top_p=None):
    """The distribution that a token is drawn from: logits [vocab] -> probabilities [vocab].

    top-p: Holtzman et al. 2020, section 3.1; the token that crosses ``top_p`` is still in.
    """
    probabilities = (logits / temperature).softmax(dim=-1)
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


def _checked_prompt(model, prompt_ids):
    if isinstance(prompt_ids, str):
        raise TypeError("prompt_ids is text; encode it first: tokenizer.encode(text)")
    tokens = prompt_ids.tolist() if isinstance(prompt_ids, torch.Tensor) else list(prompt_ids)
    if not tokens:
        raise ValueError("the prompt is empty; there must be at least one token to continue from")
    vocab = model.config.vocab_size
    for position, token in enumerate(tokens):
        if not isinstance(token, int):
            raise TypeError(f"prompt_ids[{position}] is {token!r}; a prompt is a flat list of int")
        if not 0 <= token < vocab:
            raise ValueError(
                f"token id {token} at position {position} is outside the vocabulary: 0 to {vocab - 1}"
            )
    return tokens


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
            f"has room for {cache.capacity}: shorten the prompt, ask for fewer or make the cache larger"
        )
    limit = model.config.max_positions
    if int(cache.positions(fed - cache.length).max()) >= limit:
        raise ValueError(
            f"a prompt of {prompt} and {max_new_tokens} new tokens need {fed} positions, but the model has "
            f"{limit}: shorten the prompt or ask for fewer"
        )


def _check_sampling(temperature, top_k, top_p):
    if temperature < 0:
        raise ValueError(f"temperature is {temperature}; it is 0 for greedy or above")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k is {top_k!r}; it is an integer of at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; it lies above 0 and at most at 1")
    if temperature == 0 and (top_k is not None or top_p is not None):
        raise ValueError("top_k and top_p shape a draw, and temperature 0 draws nothing: give a temperature")
