"""The calculator's answer in words and facts."""

import re
import warnings

from kvlab import memory
from kvlab.viz.memory import Fact, duration, per_second, times

_LARGE = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}


def parameters_of(text):
    """'8.03B' or '8030000000' -> int; None for nothing. Raises ValueError."""
    plain = text.strip().replace(",", "").replace("_", "")
    if not plain:
        return None
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\s*([KMBT])|e\+?(\d{1,2}))?", plain, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is no number of parameters: write 8030000000, 8.03B or 8.03e9")
    before, after, letter, power = found.groups(default="")
    unit = int(power) if power else _LARGE[letter.upper()]
    if len(after) > unit:
        raise ValueError(f"{text!r} is no whole number of parameters")
    return int(before + after + "0" * (unit - len(after)))


def many(count, one):
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def about(found):
    """What the cache is for."""
    question, ranks = found.question, found.question.tp
    together = f", {ranks} ranks together" if ranks > 1 else ""
    return (
        f"for {many(question.sequences, 'sequence')} of {many(question.tokens, 'token')}: "
        f"{found.spec.name} in {found.cost.dtype}{together}"
    )


def facts(found, size):
    """The cards below the pictures; size: bytes -> words."""
    cost, question = found.cost, found.question
    rank = " and rank" if question.tp > 1 else ""
    fixed = cost.bytes_constant
    cards = [
        Fact(
            "one more token takes",
            size(cost.bytes_per_token),
            f"in each sequence{rank}, at this length",
            "slope",
        ),
        Fact(
            "fixed part, at this length",
            size(fixed) if fixed else "none",
            f"states and full windows, in each sequence{rank}" if fixed else "all of it grows with the text",
            "constant",
        ),
    ]
    if found.pool:
        pool = found.pool
        beyond = f"{size(pool.rounding)} in blocks not full, {size(pool.windows)} beyond windows"
        more = f"{beyond}, {size(pool.spare)} spare"
        where = "a pool sets aside" + (" on each rank" if question.tp > 1 else "")
        cards.append(Fact(where, size(pool.total), more, "pool"))
    if found.knows_weights:
        cards += _on_the_device(found)
    cards.append(_textbook(found, size))
    return cards


def cautions(spec, tokens, dtype, tp):
    """What speaks against an answer: a text longer than the model's, heads that are copied -> sentences."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", memory.TokenLimitWarning)
        memory.cost(spec, tokens, 1, dtype, tp)
    said, copies = [f"{each.message}." for each in caught], memory.replicated(spec, tp)
    if copies > 1:
        said.append(
            f"There are fewer KV heads than ranks: {copies} ranks keep copies of the same keys and values, "
            "and each copy takes memory."
        )
    return said


def remarks(found, size):
    """What a reader should know before the numbers."""
    said = list(found.warnings)
    if not found.weights_fit:
        said.insert(
            0, too_heavy(found.spec, found.budget.weights, found.budget.capacity, found.question.tp, size)
        )
    return said


def too_heavy(spec, weights, capacity, tp, size):
    rank = " a rank" if tp > 1 else ""
    return (
        f"The weights alone do not fit: {spec.name} has {size(weights)} of them{rank}, and the device "
        f"{size(capacity)}. So there is no speed to give; more ranks (tp), a smaller weights dtype or a "
        "larger device would help."
    )


def _textbook(found, size):
    name = "the textbook formula says"
    if not found.naive:
        return Fact(name, "nothing", "it knows no such layers", "naive")
    what = "the true size" if found.once == found.exact else "what one copy of the cache takes"
    factor = times(found.naive, found.once, what)
    return Fact(name, size(found.naive), f"{factor}; it is 2 × layers × query heads × width", "naive")


def _on_the_device(found):
    together = f"with {many(max(1, found.question.sequences), 'sequence')}"
    never = found.outgrows is None
    outgrown = Fact(
        "the cache outgrows the weights",
        "never" if never else f"from {found.outgrows:,}",
        together if never else f"tokens, {together}",
        "outgrows",
    )
    if not found.room:
        full = "the weights and what is kept back fill the device"
        why = full if found.weights_fit else "the weights alone do not fit"
        return [Fact("fits beside the weights", "nothing", why, "fits"), outgrown]
    return [_fit(found), _longest(found, together), outgrown, _speed(found)]


def _fit(found):
    name, key = "fits beside the weights", "fits"
    if found.fits is None:
        return Fact(name, "any number", "a sequence takes nothing", key)
    return Fact(name, many(found.fits, "sequence"), f"of {many(found.question.tokens, 'token')} each", key)


def _longest(found, together):
    name, key, most = "the longest text that fits", "longest", found.spec.max_tokens
    if found.longest is None:
        return Fact(name, "without end", f"memory never fills {together}", key)
    made = f"; made for {most:,}" if most and found.longest > most else ""
    return Fact(name, many(found.longest, "token"), together + made, key)


def _speed(found):
    """Of the bytes that a step reads; a real one takes longer, and reads a little less of the weights."""
    seconds = found.step.floor_s
    rate = f"{per_second(max(1, found.question.sequences), seconds)} tokens a second, by the roofline"
    lacking = ", if all of it fitted" if found.budget.too_much else ""
    return Fact("a decode step takes about", duration(seconds), rate + lacking, "floor")


def kind_words(found, size):
    """{kind: how many layers of it there are, and what they keep}, in the model's order."""
    words = {}
    for kind, count in found.spec.kinds().items():
        same = [layer for layer in found.spec.layers if layer.kind == kind]
        words[kind] = f"{count} {_KEEPS[kind](same, size, found.question.tp)}"
    return words


def _windows(layers):
    return " or ".join(f"{window:,}" for window in sorted({layer.window for layer in layers}))


def _compressed(layers, size, tp):
    ratios = " or ".join(f"{ratio:,}" for ratio in sorted({each.ratio for each in layers if each.ratio}))
    return f"compressed: {_windows(layers)} tokens, then a row for every {ratios}"


def _states(layers, size, tp):
    one = sorted({layer.state_bytes(tp) for layer in layers})
    return f"state: {' or '.join(map(size, one))} at any length"


_KEEPS = {
    "full": lambda layers, size, tp: "full: grows with every token",
    "latent": lambda layers, size, tp: "latent: one for all heads, grows with every token",
    "sliding": lambda layers, size, tp: f"sliding window: {_windows(layers)} tokens at most",
    "chunked": lambda layers, size, tp: f"chunked: {_windows(layers)} tokens at most",
    "compressed": _compressed,
    "state": _states,
    "shared": lambda layers, size, tp: "shared: reads an earlier layer's, keeps nothing",
    "no attention": lambda layers, size, tp: "without attention: keeps nothing",
}
