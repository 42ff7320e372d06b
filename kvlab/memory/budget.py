"""Where a device's memory goes: the bytes of one rank's device, divided by what they are for."""

from dataclasses import dataclass

from kvlab.memory.capacity import free_bytes, weight_bytes
from kvlab.memory.catalogue import device as device_named
from kvlab.memory.cost import asked, cost
from kvlab.memory.pool import allocation


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
