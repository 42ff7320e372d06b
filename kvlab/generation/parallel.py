"""Several answers to one prompt, which is computed once and shared."""

from itertools import zip_longest

from kvlab.generation.arguments import check_room, whole
from kvlab.generation.loop import fed, generate, prepared


def parallel_samples(
    model, prompt_ids, n, max_new_tokens=32, cache=None, *, temperature=1.0, seed=None, **more
):
    """n texts after one prompt, drawn independently -> iterator of tuples of n tokens, one a text.

    A text that has met a stop token gives None. Text number i is what ``generate`` writes with ``seed + i``.
    cache: afterwards it holds the prompt but for its last token; each text continues in a fork of it, which
    is released at the end. more: as for :func:`~kvlab.generation.generate`.
    """
    tokens, cache = prepared(model, prompt_ids, cache)
    n = whole("n", n, at_least=1)
    check_room(model, cache, len(tokens), whole("max_new_tokens", max_new_tokens, at_least=0))
    seeds = [None if seed is None else whole("seed", seed, at_least=0) + i for i in range(n)]
    read_prompt(model, tokens, cache)
    forks = [cache.fork() for _ in range(n)]
    texts = [
        generate(model, tokens, max_new_tokens, fork, temperature=temperature, seed=each, **more)
        for fork, each in zip(forks, seeds, strict=True)
    ]
    return _together(texts, forks)


def read_prompt(model, tokens, cache):
    """Let the cache hold all but the last token, whose logits start a text."""
    if cache.length > len(tokens) - 1:
        cache.truncate(len(tokens) - 1)
    if cache.length < len(tokens) - 1:
        fed(model, tokens[:-1], cache, rows="last")


def _together(texts, forks):
    try:
        yield from zip_longest(*texts)
    finally:
        for fork in forks:
            fork.release()
