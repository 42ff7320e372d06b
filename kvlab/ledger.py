"""The bill of a computation: FLOPs, and the bytes of keys and values that it read, wrote, held and copied.

Everything is an exact integer that follows from shapes and dtypes, so the same run gives the same bill
on every machine. Modules report to whatever ledgers are open; with none open a report costs a loop over
an empty list.
"""

import weakref

_open = []


class Ledger:
    """Counts what happens inside its ``with`` block (blocks may nest; each counts everything in it).

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
        self._held_at_end = None
        _open.append(self)
        return self

    def __exit__(self, *exception):
        _open.remove(self)
        self._held_at_end = self.kv_held
        return False

    def __repr__(self):
        return (
            f"Ledger(flops={self.flops:,}, kv_read={self.kv_read:,}, kv_written={self.kv_written:,}, "
            f"kv_held={self.kv_held:,}, copied={self.copied:,})"
        )


def matmul(rows, inner, columns):
    """Bill a product ``[rows, inner] @ [inner, columns]``."""
    for ledger in _open:
        ledger.flops += 2 * rows * inner * columns


def read(nbytes):
    """Bill bytes of keys and values read by attention."""
    for ledger in _open:
        ledger.kv_read += nbytes


def written(nbytes):
    """Bill bytes of new keys and values stored by a cache."""
    for ledger in _open:
        ledger.kv_written += nbytes


def copied(nbytes):
    """Bill bytes of stored keys and values that were moved."""
    for ledger in _open:
        ledger.copied += nbytes


def used(cache):
    """Note a cache whose ``nbytes`` belong on the bill as held."""
    for ledger in _open:
        ledger._caches.add(cache)
