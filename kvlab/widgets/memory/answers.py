"""What the calculator is asked, and everything it answers: calls of ``kvlab.memory``, collected."""

from dataclasses import asdict, dataclass, replace

from kvlab import memory
from kvlab.widgets.memory.words import cautions

PARTS = {  # what their picture calls a budget's parts
    "keys_and_values": "keys and values",
    "pool": "page padding",
    "reserve": "kept back",
    "too_much": "too much",
}


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
    """All of it on one rank, but ``exact``, which is all ranks together, and ``once``, what the same cache
    takes without a copy. None where nothing can be said.
    """

    question: Question
    spec: object
    cost: object
    once: int
    budget: object
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

    @property
    def weights_fit(self):
        return self.budget.weights <= self.budget.capacity

    @property
    def room(self):
        """Whether anything is left for caches."""
        return self.budget.weights + self.budget.reserve < self.budget.capacity

    @property
    def parts(self):
        """The bytes of the device's memory by the names that its picture has for them."""
        sizes = asdict(self.budget)
        return {PARTS.get(name, name): size for name, size in sizes.items() if name != "capacity"}


def answer(question):
    """Raises ValueError, in words, for what has no answer."""
    spec = memory.spec_of(question.model)
    tokens, sequences, dtype, tp = question.tokens, question.sequences, question.dtype, question.tp
    said, quiet = cautions(spec, tokens, dtype, tp), replace(spec, max_tokens=None)  # said once
    cost = memory.cost(quiet, tokens, sequences, dtype, tp)
    page, weights_dtype = question.page_size, question.weights_dtype
    pool = memory.allocation(quiet, tokens, sequences, dtype, tp, page) if page else None
    weighed = quiet if spec.parameters is not None else replace(quiet, parameters=0)  # drawn without weights
    parts = memory.budget(
        weighed, tokens, question.device, sequences, dtype, weights_dtype, tp, page, question.reserve
    )
    fits = longest = outgrows = step = None
    if spec.parameters is None:
        said.append("How many parameters it has is not known, so its weights are left out: say how many.")
    else:
        several = max(1, sequences)
        free = memory.free_bytes(spec, question.device, weights_dtype, tp, question.reserve)
        fits = memory.fits_sequences(quiet, tokens, free, dtype, tp, page)
        longest = memory.longest(spec, free, several, dtype, tp, page) if free > 0 else 0
        outgrows = memory.outgrows(spec, several, dtype, weights_dtype, tp)
        step = memory.decode(spec, tokens, question.device, several, dtype, weights_dtype, tp)
    once, naive = (ask(quiet, tokens, sequences, dtype) for ask in (memory.kv_bytes, memory.naive_bytes))
    return Answer(question, spec, cost, once, parts, pool, fits, longest, outgrows, step, naive, tuple(said))
