"""The one generation loop: feed what the cache does not hold yet, pick a token, repeat."""

import torch

from kvlab.caches.growing import GrowingCache
from kvlab.generation.arguments import check_room, checked_prompt, stop_ids, whole
from kvlab.generation.sampling import Sampler


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
    tokens, cache = prepared(model, prompt_ids, cache)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, at_least=0)
    check_room(model, cache, len(tokens), max_new_tokens)
    sampler = Sampler(temperature, top_k, top_p, seed)
    stop = stop_ids(stop, model.config.vocab_size)
    return _loop(model, tokens, max_new_tokens, cache, cache.length, sampler, stop)


def prepared(model, prompt_ids, cache):
    """The prompt as a list, and a cache. Raises TypeError or ValueError for what is neither."""
    if not hasattr(model, "config"):
        raise TypeError(f"model is {type(model).__name__}; kvlab.load gives two things: model, tokenizer")
    tokens = checked_prompt(model, prompt_ids)
    cache = GrowingCache(model.config) if cache is None else cache
    if not hasattr(cache, "attend"):
        raise TypeError(f"cache is {type(cache).__name__}; give one of kvlab.caches, made from model.config")
    return tokens, cache


def fed(model, tokens, cache, rows=None):
    """Logits of what the cache does not hold yet of these tokens. rows: as the model's."""
    new = torch.tensor(tokens[cache.length :], device=model.device)
    with torch.no_grad():  # around the call alone: the caller's own code runs between two tokens
        return model(new, cache, rows=rows)


def check_undisturbed(cache, length):
    if cache.length != length:
        raise RuntimeError(
            f"the cache held {length} tokens of this text and now holds {cache.length}: something else "
            "used it in between. One text, one cache; fork it for another"
        )


def _loop(model, tokens, max_new_tokens, cache, length, sampler, stop):
    for _ in range(max_new_tokens):
        check_undisturbed(cache, length)
        if cache.length >= len(tokens):
            cache.truncate(len(tokens) - 1)
        token = sampler.pick(fed(model, tokens, cache, rows="last")[0])
        length = cache.length
        if token in stop:
            return
        tokens.append(token)
        yield token
