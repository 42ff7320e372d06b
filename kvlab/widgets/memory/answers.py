"""What the calculator is asked, and everything it answers: calls of ``kvlab.memory``, collected."""

import warnings
from dataclasses import dataclass, replace

from kvlab import memory


@dataclass(frozen=True)
class Question:
    """The calculator's settings. ``model`` is a ModelSpec, a name or a path; dtypes None: the model's own."""

    model: object
    tokens: int
    sequences: int = 1
    dtype: str | None = None
    weights_dtype: str | None = None
    device: str = "NVIDIA H100 SXM"
    tp: int = 1
    page_size: int | None = None
    reserve: float = 0.1


@dataclass(frozen=True)
class Answer:
    """All of it on one rank, but ``exact``, which is all ranks together. None where nothing can be said.

    ``parts`` are the bytes of a device's memory: weights, reserve, states, keys and values, pool, free,
    and what is too much for it.
    """

    question: Question
    spec: object
    cost: object
    capacity: int
    parts: dict
    free: int | None
    pool: object
    fits: int | None
    longest: int | None
    outgrows: int | None
    step: object
    naive: int
    warnings: tuple

    @property
    def exact(self):
        return self.cost.bytes_total

    @property
    def knows_weights(self):
        return self.spec.parameters is not None


def answer(question):
    """Raises ValueError, in words, for what has no answer."""
    spec = memory.spec_of(question.model)
    tokens, sequences, dtype, tp = question.tokens, question.sequences, question.dtype, question.tp
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cost = memory.cost(spec, tokens, sequences, dtype, tp)
    said = [str(each.message) for each in caught]
    copies = memory.replicated(spec, tp)
    if copies > 1:
        said.append(
            f"there are fewer KV heads than ranks: {copies} ranks keep copies of the same keys and values, "
            "and each copy takes memory"
        )
    quiet = replace(spec, max_tokens=None)  # said once
    page = question.page_size
    pool = memory.allocation(quiet, tokens, sequences, dtype, tp, page) if page else None
    naive = memory.naive_bytes(spec, tokens, sequences, dtype)
    capacity = memory.device(question.device).memory_bytes
    free = fits = longest = outgrows = step = None
    if spec.parameters is None:
        parts = _parts(question, spec, cost, pool, 0, None)
        said.append("how many parameters it has is not known, so its weights are left out: say how many")
    else:
        weights = memory.weight_bytes(spec, question.weights_dtype, tp)
        free = memory.free_bytes(spec, question.device, question.weights_dtype, tp, question.reserve)
        parts = _parts(question, spec, cost, pool, weights, free)
        fits = memory.fits_sequences(quiet, tokens, free, dtype, tp, page)
        longest = memory.longest(spec, free, max(1, sequences), dtype, tp, page) if free > 0 else 0
        outgrows = memory.outgrows(spec, max(1, sequences), dtype, question.weights_dtype, tp)
        step = memory.decode(
            spec, tokens, question.device, max(1, sequences), dtype, question.weights_dtype, tp
        )
    return Answer(
        question, spec, cost, capacity, parts, free, pool, fits, longest, outgrows, step, naive, tuple(said)
    )


def _parts(question, spec, cost, pool, weights, free):
    """The bytes of a device's memory by what they are for."""
    capacity = memory.device(question.device).memory_bytes
    states = question.sequences * sum(layer.state_bytes(question.tp) for layer in spec.layers)
    held = pool.total if pool else cost.bytes_per_rank
    if free is None:
        free = capacity - round(question.reserve * capacity)
    return {
        "weights": weights,
        "reserve": capacity - weights - free,
        "states": states,
        "keys and values": cost.bytes_per_rank - states,
        "pool": held - cost.bytes_per_rank,
        "free": max(0, free - held),
        "too much": max(0, held - free),
    }
