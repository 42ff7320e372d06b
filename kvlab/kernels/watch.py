"""Which program of a kernel reads and writes what, seen in Triton's interpreter."""

from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from kvlab.kernels.language import interpreted


class Access(NamedTuple):
    """One load or store of one program."""

    program: tuple[int, int, int]  # its place in the grid
    kind: str  # "load" or "store"
    name: str  # of the tensor
    offsets: np.ndarray  # [n], of the numbers in the tensor as it lies in memory; what is masked is not here


class OutsideAccess(IndexError):
    """A program went beyond the tensors that it was given."""


@contextmanager
def watch(**tensors):
    """Records what kernels do inside the ``with`` block -> a list of Access, in the order of execution.

    tensors: every tensor that the kernels get, by name. An access outside of all of them raises OutsideAccess
    before it happens; left unwatched, it reads strange numbers or ends the process. RuntimeError where Triton
    compiles: a GPU keeps no record.
    """
    if not interpreted:
        raise RuntimeError("only the interpreter can be watched: start Python with TRITON_INTERPRET=1")
    from triton.runtime.interpreter import InterpreterBuilder, InterpreterError

    seen, load, store = [], InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def note(builder, kind, pointers, mask):
        addresses = np.broadcast_to(pointers.data, mask.data.shape)[mask.data].astype(np.int64)
        for name, x in tensors.items():
            here = (addresses >= x.data_ptr()) & (addresses < x.data_ptr() + x.nbytes)
            if here.any():
                offsets = (addresses[here] - x.data_ptr()) // x.element_size()
                seen.append(Access(builder.grid_idx, kind, name, offsets))
                addresses = addresses[~here]
        if len(addresses):
            raise OutsideAccess(_outside(builder.grid_idx, kind, int(addresses[0]), len(addresses), tensors))

    def watched_load(builder, pointers, mask, *more):
        note(builder, "load", pointers, mask)
        return load(builder, pointers, mask, *more)

    def watched_store(builder, pointers, value, mask, *more):
        note(builder, "store", pointers, mask)
        return store(builder, pointers, value, mask, *more)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = (
        watched_load,
        watched_store,
    )
    try:
        yield seen
    except InterpreterError as error:
        if isinstance(error.__cause__, OutsideAccess):
            raise error.__cause__ from None
        raise
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store


def _outside(program, kind, address, count, tensors):
    """What to say of ``count`` accesses beyond all tensors, the first at ``address``."""

    def distance(x):
        return min(abs(address - x.data_ptr()), abs(address - x.data_ptr() - x.nbytes))

    name, x = min(tensors.items(), key=lambda item: distance(item[1]))
    offset = (address - x.data_ptr()) // x.element_size()
    return (
        f"program {program} would {kind} {count} numbers outside of {', '.join(tensors)}; the first is "
        f"offset {offset:,} of {name}, which has {x.numel():,}: is there a mask, and is it the right one?"
    )
