"""Which program of a kernel reads and writes what: seen in Triton's interpreter, and in plain Python."""

from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from kvlab.kernels.backend import installed


class Access(NamedTuple):
    """One load or store of one program."""

    program: tuple[int, ...]  # its place in the grid
    kind: str  # "load" or "store"
    name: str  # of the tensor
    offsets: object  # array [n], of the numbers in the tensor as it lies in memory; none that is masked


class OutsideAccess(IndexError):
    """A program went beyond the tensors that it was given."""


_open = []  # ([(name, tensor)], seen) of each ``watch`` block


@contextmanager
def watch(**tensors):
    """Records what kernels do inside the ``with`` block -> a list of Access, in the order of execution.

    tensors: all that kernels are given, by name; kvlab's own launches add theirs, such as parts and out.
    An access outside of them all raises OutsideAccess before it happens; unwatched, it would read strange
    numbers or end the process. RuntimeError where Triton compiles: a GPU keeps no record.
    """
    seen = []
    watched = nullcontext() if _open else _interpreter_watched()
    _open.append((list(tensors.items()), seen))
    try:
        with watched:
            yield seen
    except Exception as error:
        inner = error
        while inner.__cause__ is not None:  # each kernel on the way has wrapped it once more
            inner = inner.__cause__
        if isinstance(inner, OutsideAccess) and inner is not error:
            raise inner from None
        raise
    finally:
        _open.pop()


def pages_read(accesses, **pages):
    """What each program read -> {program: {page: bytes}}. pages: tensors of pages, named as in ``watch``."""
    import numpy as np

    found = {}
    for access in accesses:
        if access.kind == "load" and access.name in pages:
            x = pages[access.name]
            row = found.setdefault(access.program, {})
            for page, count in zip(
                *np.unique(access.offsets // x[0].numel(), return_counts=True), strict=True
            ):
                row[int(page)] = row.get(int(page), 0) + int(count) * x.element_size()
    return found


def also(**tensors):
    """What a launch made for its kernels beside what it was given: for those that watch."""
    for known, _ in _open:
        known.extend((name, x) for name, x in tensors.items() if x is not None)


def note(program, kind, addresses):
    """Record that a program is about to access numbers at these addresses, an integer array [n]."""
    for tensors, seen in _open:
        left = addresses
        for name, x in tensors:
            here = (left >= x.data_ptr()) & (left < x.data_ptr() + x.nbytes)
            if here.any():
                seen.append(Access(program, kind, name, (left[here] - x.data_ptr()) // x.element_size()))
                left = left[~here]
        if len(left):
            raise OutsideAccess(_outside(program, kind, int(left[0]), len(left), tensors))


def _outside(program, kind, address, count, tensors):
    """What to say of ``count`` accesses beyond all tensors, the first at ``address``."""

    def distance(x):
        return min(abs(address - x.data_ptr()), abs(address - x.data_ptr() - x.nbytes))

    name, x = min(tensors, key=lambda item: distance(item[1]))
    offset = (address - x.data_ptr()) // x.element_size()
    names = ", ".join(dict(tensors))
    return (
        f"program {program} would {kind} {count} numbers outside of {names}; the first is offset {offset:,} "
        f"of {name}, which has {x.numel():,}: is a mask missing or wrong, or a tensor not named to watch?"
    )


@contextmanager
def _interpreter_watched():
    """Have the interpreter note what it does."""
    if not installed():
        yield
        return
    from kvlab.kernels.language import interpreted

    if not interpreted:
        raise RuntimeError("a GPU keeps no record: start Python with TRITON_INTERPRET=1 to watch kernels")
    import numpy as np  # not above: on a GPU nobody watches, and it may not be installed
    from triton.runtime.interpreter import InterpreterBuilder

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def told(builder, kind, pointers, mask):
        there = mask.data.astype(bool)  # masks made by arithmetic are integers
        note(builder.grid_idx, kind, np.broadcast_to(pointers.data, there.shape)[there].astype(np.int64))

    def watched_load(builder, pointers, mask, *more):
        told(builder, "load", pointers, mask)
        return load(builder, pointers, mask, *more)

    def watched_store(builder, pointers, value, mask, *more):
        told(builder, "store", pointers, mask)
        return store(builder, pointers, value, mask, *more)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = (
        watched_load,
        watched_store,
    )
    try:
        yield
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store
