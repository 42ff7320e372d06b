"""A device's memory: what is left for caches, how much fits into that, when caches outgrow the weights."""

from dataclasses import dataclass, replace
from operator import index

from kvlab.memory.catalogue import device as device_named
from kvlab.memory.errors import whole
from kvlab.memory.formats import format_named
from kvlab.memory.ideal import asked, cost
from kvlab.memory.pool import allocation

_END = 2**62  # tokens; beyond it a cache counts as one that never fills the memory


def weight_bytes(model, dtype=None, tp=1):
    """Bytes of weights on one rank, an even share, rounded up -> int.

    Exact for the catalogue's rows whose parameters were counted (``parameters_rounded`` says where not, and
    why), else as exact as the number that was given. dtype: of all weights, each part in the model's own
    unless given. Raises ValueError where the parameters are not known.
    """
    spec, _, tp = asked(model, None, tp)
    if spec.parameters is None:
        raise ValueError(
            f"how many parameters {spec.name} has is not known: say it with spec.with_parameters(7 * 10**9), "
            f"or --parameters 7e9 in a terminal"
        )
    forms = expert_form(spec, dtype), format_named(dtype or spec.weights_dtype or spec.dtype)
    experts = spec.expert_parameters
    if experts is None:  # all of it as if it were experts, which most of it is where they have a format
        experts = spec.parameters if spec.expert_dtype else 0
    parts = zip(forms, (experts, spec.parameters - experts), strict=True)
    return -(-sum(form.bytes_for(count) for form, count in parts) // tp)


def expert_form(spec, dtype=None):
    """The Format of a model's routed experts; dtype as in :func:`weight_bytes`."""
    return format_named(dtype or spec.expert_dtype or spec.weights_dtype or spec.dtype)


def free_bytes(model, device, weights_dtype=None, tp=1, reserve=0):
    """Bytes of one rank's device that are left for caches -> int, negative where the weights do not fit.

    reserve: what is kept back for activations and the engine itself, as a share of the device (0.1) or in
    bytes (2**30). Engines keep back about a tenth by default.
    """
    device = device_named(device)
    if isinstance(reserve, float):
        if not 0 <= reserve < 1:
            raise ValueError(
                f"reserve {reserve} is no share of the device: give 0.1 for a tenth, or whole bytes"
            )
        reserve = round(reserve * device.memory_bytes)
    return device.memory_bytes - weight_bytes(model, weights_dtype, tp) - whole(reserve, "reserve")


@dataclass(frozen=True)
class Budget:
    """Bytes on one rank. weights + reserve + states + keys_and_values + pool + free - too_much = capacity.

    ``reserve``          what is kept back for activations and the engine itself
    ``states``           of layers that keep a state in place of rows
    ``keys_and_values``  rows that are alive
    ``pool``             what an engine with blocks sets aside beyond these
    ``free``             what is left, and ``too_much`` what is lacking: one of them is 0
    """

    capacity: int
    weights: int
    reserve: int
    states: int
    keys_and_values: int
    pool: int
    free: int
    too_much: int


def budget(
    model,
    tokens,
    device,
    sequences=1,
    dtype=None,
    weights_dtype=None,
    tp=1,
    block_size=None,
    reserve=0,
):
    """One rank's device with the model and the caches of ``sequences`` texts on it -> :class:`Budget`.

    block_size: tokens a block of the pool, None for the ideal bytes. reserve: as in :func:`free_bytes`.
    Raises ValueError where the number of parameters is not known.
    """
    device, (spec, form, tp) = device_named(device), asked(model, dtype, tp)
    weights = weight_bytes(spec, weights_dtype, tp)
    free = free_bytes(spec, device, weights_dtype, tp, reserve)
    if block_size is None:
        live = total = cost(spec, tokens, sequences, form, tp).bytes_per_rank
    else:
        pool = allocation(spec, tokens, sequences, form, tp, block_size)
        live, total = pool.live, pool.total
    states = sequences * sum(layer.state_bytes(tp) for layer in spec.layers)
    return Budget(
        capacity=device.memory_bytes,
        weights=weights,
        reserve=device.memory_bytes - weights - free,
        states=states,
        keys_and_values=live - states,
        pool=total - live,
        free=max(0, free - total),
        too_much=max(0, total - free),
    )


def fits_sequences(model, tokens, free, dtype=None, tp=1, block_size=None):
    """How many sequences of ``tokens`` tokens fit into ``free`` bytes on each rank -> int.

    By the ideal bytes, or by what a pool of ``block_size`` allocates. None where a sequence takes nothing.
    """
    if block_size is None:
        one, fixed = cost(model, tokens, 1, dtype, tp).bytes_per_rank, 0
    else:
        pool = allocation(model, tokens, 1, dtype, tp, block_size)
        one, fixed = pool.total - pool.spare, pool.spare
    return None if one == 0 else max(0, index(free) - fixed) // one


def longest(model, free, sequences=1, dtype=None, tp=1, block_size=None):
    """The longest text of which ``sequences`` fit into ``free`` bytes on each rank -> int.

    By memory alone: the model may have been made for less. None where no length fills the memory; 0 where
    even the states do not fit.
    """
    spec, form, tp = asked(model, dtype, tp)
    sequences, any_length = whole(sequences, "sequences", least=1), replace(spec, max_tokens=None)

    def fits(tokens):
        if block_size is None:
            return cost(any_length, tokens, sequences, form, tp).bytes_per_rank <= free
        return allocation(any_length, tokens, sequences, form, tp, block_size).total <= free

    return last(fits)


def outgrows(model, sequences=1, dtype=None, weights_dtype=None, tp=1):
    """The length from which the cache of ``sequences`` texts takes more than the weights -> int, or None."""
    spec, form, tp = asked(model, dtype, tp)
    weights = weight_bytes(spec, weights_dtype, tp)
    before = longest(spec, weights, sequences, form, tp)
    return None if before is None else before + 1


def last(holds):
    """The last number for which ``holds``, which is true up to there and false beyond -> int.

    None where it holds to the end of all lengths; 0 where it holds for no number above 0.
    """
    if holds(_END):
        return None
    low, high = 0, 1
    while holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
