"""The bill of a computation: FLOPs, and the bytes of keys and values that it read, wrote, held and copied.

Everything is an exact integer that follows from shapes and dtypes, so the same run gives the same bill
on every machine. Modules report to whatever ledgers are open; with none open a report costs a loop over
an empty list.
"""

import weakref
from contextlib import contextmanager
from contextvars import ContextVar

_open = ContextVar("open ledgers", default=())  # of this thread: another one's work is not on the bill


class Ledger:
    """Counts what its thread does inside its ``with`` block. Ledgers may nest; each counts everything.

    Attributes, all ``int``:

    ``flops``
        floating-point operations of matrix products, a multiply and an add counted as two:
        ``2 * rows * inner * columns``. Softmax, norms and activations are left out, as is usual.
    ``kv_read``
        bytes of keys and values that attention read. One call reads each visible token once per **KV**
        head, however many query heads or new tokens use it: that is the least that memory must deliver.
    ``kv_written``
        bytes of new keys and values that a cache stored.
    ``kv_held``
        bytes that the caches used in the block occupy, unused room included: now while the block is open,
        and as it was at its end afterwards.
    ``copied``
        bytes of keys and values that were stored already and were moved: a growing cache that moves to
        larger memory, a fork that duplicates, a gather of scattered pages. Apart from the four above.
    """

    def __init__(self):
        self.flops = self.kv_read = self.kv_written = self.copied = 0
        self._caches = weakref.WeakSet()
        self._held_at_end = None

    @property
    def kv_held(self):
        if self._held_at_end is not None:
            return self._held_at_end
        return sum(cache.nbytes for cache in self._caches)

    def __enter__(self):
        if self in _open.get():
            raise RuntimeError("this ledger is open already: nest another one inside it")
        self._held_at_end = None
        _open.set((*_open.get(), self))
        return self

    def __exit__(self, *exception):
        _open.set(tuple(ledger for ledger in _open.get() if ledger is not self))
        self._held_at_end = self.kv_held
        return False

    def __repr__(self):
        return (
            f"Ledger(flops={self.flops:,}, kv_read={self.kv_read:,}, kv_written={self.kv_written:,}, "
            f"kv_held={self.kv_held:,}, copied={self.copied:,})"
        )


def matmul(rows, inner, columns):
    """Bill a product ``[rows, inner] @ [inner, columns]``."""
    for ledger in _open.get():
        ledger.flops += 2 * rows * inner * columns


def read(nbytes):
    """Bill bytes of keys and values read by attention."""
    for ledger in _open.get():
        ledger.kv_read += nbytes


def written(nbytes):
    """Bill bytes of new keys and values stored by a cache."""
    for ledger in _open.get():
        ledger.kv_written += nbytes


def copied(nbytes):
    """Bill bytes of stored keys and values that were moved."""
    for ledger in _open.get():
        ledger.copied += nbytes


def used(cache):
    """Note a cache whose ``nbytes`` belong on the bill as held."""
    for ledger in _open.get():
        ledger._caches.add(cache)


@contextmanager
def off():
    """Bill nothing: for work that is done to look at something, and not part of what is looked at."""
    before = _open.get()
    _open.set(())
    try:
        yield
    finally:
        _open.set(before)
