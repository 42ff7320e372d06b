"""The calculator's answer in words and facts."""

import re

from kvlab.viz.memory import Fact, milliseconds, per_second, times

_LARGE = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}


def parameters_of(text):
    """'8.03B' or '8030000000' -> int; None for nothing. Raises ValueError."""
    plain = text.strip().replace(",", "").replace("_", "")
    if not plain:
        return None
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?\s*([KMBT]?)", plain, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is no number of parameters: write 8030000000, or 8.03B")
    before, after, unit = found.group(1), found.group(2) or "", _LARGE[found.group(3).upper()]
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
    cards = [
        Fact(
            "one more token takes",
            size(cost.bytes_per_token),
            f"in each sequence{rank}, at this length",
            "slope",
        ),
        Fact("and whatever the length", size(cost.bytes_constant), f"in each sequence{rank}", "constant"),
    ]
    if found.pool:
        pool = found.pool
        beyond = f"{size(pool.rounding)} in blocks not full, {size(pool.windows)} behind windows"
        more = f"{beyond}, {size(pool.spare)} spare"
        where = "a pool sets aside" + (" on each rank" if question.tp > 1 else "")
        cards.append(Fact(where, size(pool.total), more, "pool"))
    if found.knows_weights:
        cards += _on_the_device(found)
    cards.append(_textbook(found, size))
    return cards


def _textbook(found, size):
    name = "the textbook formula says"
    if not found.naive:
        return Fact(name, "nothing", "it knows no such layers", "naive")
    factor = times(found.naive, found.exact)
    return Fact(name, size(found.naive), f"{factor}; it is 2 × layers × query heads × width", "naive")


def _on_the_device(found):
    sequences, step = max(1, found.question.sequences), found.step
    together = f"with {many(sequences, 'sequence')}"
    rate = f"{per_second(sequences, step.floor_s)} tokens a second at most"
    never = found.outgrows is None
    return [
        _fit(found),
        _longest(found, together),
        Fact(
            "the cache outgrows the weights",
            "never" if never else f"from {found.outgrows:,}",
            together if never else f"tokens, {together}",
            "outgrows",
        ),
        Fact("a decode step takes at least", milliseconds(step.floor_s), rate, "floor"),
    ]


def _fit(found):
    name, key = "sequences that fit", "fits"
    if found.fits is None:
        return Fact(name, "any number", "one takes nothing", key)
    full = "the weights and what is kept back fill the device"
    each = f"of {many(found.question.tokens, 'token')} each"
    return Fact(name, f"{found.fits:,}", each if found.free > 0 else full, key)


def _longest(found, together):
    name, key, most = "the longest text that fits", "longest", found.spec.max_tokens
    if found.longest is None:
        return Fact(name, "without end", f"memory never fills {together}", key)
    made = f"; made for {most:,}" if most and found.longest > most else ""
    return Fact(name, many(found.longest, "token"), together + made, key)


def kind_words(found, size):
    """{kind: how many layers of it there are, and what they keep}, in the model's order."""
    words = {}
    for kind, count in found.spec.kinds().items():
        same = [layer for layer in found.spec.layers if layer.kind == kind]
        words[kind] = f"{count} {_KEEPS[kind](same, size)}"
    return words


def _windows(layers):
    return " or ".join(f"{window:,}" for window in sorted({layer.window for layer in layers}))


def _compressed(layers, size):
    ratios = " or ".join(f"{ratio:,}" for ratio in sorted({each.ratio for each in layers if each.ratio}))
    return f"compressed: {_windows(layers)} tokens, then a row for every {ratios}"


def _states(layers, size):
    one = sorted({layer.state_bytes() for layer in layers})
    return f"state: {' or '.join(map(size, one))} whatever the length"


_KEEPS = {
    "full": lambda layers, size: "full: grows with every token",
    "latent": lambda layers, size: "latent: one for all heads, grows with every token",
    "sliding": lambda layers, size: f"sliding window: {_windows(layers)} tokens at most",
    "chunked": lambda layers, size: f"chunked: {_windows(layers)} tokens at most",
    "compressed": _compressed,
    "state": _states,
    "shared": lambda layers, size: "shared: reads an earlier layer's, keeps nothing",
    "no attention": lambda layers, size: "without attention: keeps nothing",
}
