"""Speculative decoding: guess some tokens, let the model check all of them at once, keep what it would say.

(Leviathan et al. 2023; with the prompt itself as the draft: prompt look-up decoding, Saxena 2023.)
"""

from kvlab.generation.arguments import check_room, stop_ids, whole
from kvlab.generation.loop import check_undisturbed, fed, prepared
from kvlab.generation.parallel import read_prompt
from kvlab.generation.sampling import Sampler


def prompt_lookup(tokens, k, longest=3):
    """What came after the latest earlier place that reads like the end of the text -> up to k tokens.

    longest: how many tokens have to agree, tried from so many down to 1.
    """
    for size in range(min(longest, len(tokens) - 1), 0, -1):
        end = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == end:
                return tokens[start + size : start + size + k]
    return []


def speculate(
    model,
    prompt_ids,
    max_new_tokens=32,
    cache=None,
    *,
    draft=prompt_lookup,
    k=4,
    temperature=0.0,
    top_k=None,
    top_p=None,
    seed=None,
    stop=(),
):
    """The same text as ``generate``'s, in fewer steps -> iterator of lists, the tokens of each step.

    A step costs one call of the model and gives 1 to k + 1 tokens: the guesses that the model agrees with,
    and one of its own. At temperature 0 the text is that of ``generate``, up to rounding; above, it has the
    same distribution. draft(tokens, k) guesses what follows, up to k tokens. Wrong guesses are forgotten by
    ``cache.truncate``. The other arguments are ``generate``'s.
    """
    tokens, cache = prepared(model, prompt_ids, cache)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, at_least=0)
    k = whole("k", k, at_least=0)
    check_room(model, cache, len(tokens), max_new_tokens)
    sampler = Sampler(temperature, top_k, top_p, seed)
    stop = stop_ids(stop, model.config.vocab_size)
    return _steps(model, tokens, max_new_tokens, cache, cache.length, draft, k, sampler, stop)


def _steps(model, tokens, max_new_tokens, cache, length, draft, k, sampler, stop):
    left = max_new_tokens
    while left:
        check_undisturbed(cache, length)
        read_prompt(model, tokens, cache)
        guesses = list(draft(tokens, k))[: min(k, left - 1)]
        logits = fed(model, tokens + guesses, cache)[-len(guesses) - 1 :]  # [guesses + 1, vocab]
        new = []
        for row, guess in zip(logits, [*guesses, None], strict=True):
            new.append(sampler.pick(row) if guess is None else sampler.pick_or_take(row, guess))
            if new[-1] != guess:
                break
        ends = next((i for i, token in enumerate(new) if token in stop), None)
        new = new[:ends]
        tokens += new
        left -= len(new)
        if cache.length > len(tokens) - 1:
            cache.truncate(len(tokens) - 1)
        length = cache.length
        if new:
            yield new
        if ends is not None:
            return
