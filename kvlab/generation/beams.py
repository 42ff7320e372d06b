"""Beam search: the likeliest few beginnings, kept side by side."""

from dataclasses import dataclass, field

from kvlab.generation.arguments import check_room, stop_ids, whole
from kvlab.generation.loop import fed, prepared
from kvlab.generation.parallel import read_prompt


@dataclass
class Beam:
    """New tokens, the sum of their log-probabilities, and whether a stop token ended them (it is not in)."""

    tokens: list
    score: float
    ended: bool = False
    cache: object = field(default=None, repr=False, compare=False)


def beam_search(model, prompt_ids, width=4, max_new_tokens=32, cache=None, *, stop=()):
    """The best ``width`` texts that a search of that width finds -> list of Beam, the likeliest first.

    In each step every beam is continued by every token, and of all that, together with the beams that have
    ended, the likeliest ``width`` are kept. A beam that is continued twice is forked, one that is not is
    released. cache: afterwards it holds the prompt but for its last token.
    """
    tokens, cache = prepared(model, prompt_ids, cache)
    width = whole("width", width, at_least=1)
    max_new_tokens = whole("max_new_tokens", max_new_tokens, at_least=0)
    check_room(model, cache, len(tokens), max_new_tokens)
    stop = stop_ids(stop, model.config.vocab_size)
    read_prompt(model, tokens, cache)
    beams = [Beam([], 0.0, cache=cache.fork())]
    try:
        for _ in range(max_new_tokens):
            if all(beam.ended for beam in beams):
                break
            beams = _step(model, tokens, beams, width, stop)
    finally:
        for beam in beams:
            _let_go(beam)
    return beams


def _step(model, prompt, beams, width, stop):
    candidates = [(beam.score, number, None) for number, beam in enumerate(beams) if beam.ended]
    for number, beam in enumerate(beams):
        if not beam.ended:
            logits = fed(model, prompt + beam.tokens, beam.cache, rows="last")[0]
            scores = beam.score + logits.double().log_softmax(dim=-1)  # [vocab]
            best = scores.topk(min(width, len(scores)))
            candidates += zip(
                best.values.tolist(), [number] * len(scores), best.indices.tolist(), strict=False
            )
    candidates.sort(key=lambda candidate: -candidate[0])
    kept = []
    for score, number, token in candidates[:width]:
        parent = beams[number]
        if token is None:
            kept.append(parent)
        elif token in stop:
            kept.append(Beam(parent.tokens, score, ended=True))
        else:
            kept.append(Beam([*parent.tokens, token], score, cache=parent.cache))
    _share_out(beams, kept)
    return kept


def _share_out(beams, kept):
    """The first child goes on in its parent's cache, others in forks; without a child it is released."""
    for parent in beams:
        children = [beam for beam in kept if beam.cache is not None and beam.cache is parent.cache]
        for child in children[1:]:
            child.cache = parent.cache.fork()
        if not children:
            _let_go(parent)


def _let_go(beam):
    if beam.cache is not None:
        beam.cache.release()
        beam.cache = None
