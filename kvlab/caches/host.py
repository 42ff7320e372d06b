"""A second, slower memory behind the pages: blocks go out to it, and come back, while the caller goes on.

What got lost on the way, or came back as something else, is not served: the caller computes it again.
(As the offloading of vLLM and LMCache, and SGLang's HiCache.)
"""

import zlib
from collections import deque
from itertools import takewhile
from threading import Condition, Event, Thread

import torch

from kvlab import ledger
from kvlab.paging import BlockHashes, BlockPool
from kvlab.paging.pool import require
from kvlab.paging.prefix import check_filled


class Transfer:
    """Blocks of one text that go over the link. ``prefix`` is locked until they have."""

    def __init__(self, prefix, todo):
        self.prefix, self.todo, self.ended = prefix, deque(todo), Event()


class Load(Transfer):
    """Blocks on their way to the pages. When ``done``, ``blocks`` have arrived: [block_bytes] uint8 each, in
    the order of the text, up to the first that was not to be had.
    """

    def __init__(self, tier, prefix, todo):
        super().__init__(prefix, todo)
        self.tier, self.blocks = tier, []

    @property
    def done(self):
        return self.ended.is_set()

    def wait(self, timeout=None):
        """Until it is done, or so many seconds -> is it?"""
        return self.ended.wait(timeout)

    def into(self, blocks):
        """Write what has arrived to these blocks of the pages, the first to the first.

        Raises RuntimeError before it is done; ValueError for more blocks than have arrived, and for one that
        others may read; TypeError where the pages were made anew for another dtype. Nothing is written then.
        """
        pages = self.tier.pages
        if not self.done:
            raise RuntimeError("these blocks are still on their way: wait for them")
        if len(blocks) > len(self.blocks):
            raise ValueError(f"{len(self.blocks)} blocks have arrived, and not {len(blocks)}")
        for block in blocks:
            if not pages.pool.writable(block):
                raise ValueError(f"block {block} has no owner, or others read it: allocate one")
        if blocks:
            self.tier.check_dtype()
            layers = [each for layer in pages.layers for each in layer]
            rows = torch.stack(self.blocks[: len(blocks)])  # [blocks, block_bytes]
            for each, part in zip(layers, rows.split([each[0].nbytes for each in layers], 1), strict=True):
                each[blocks] = part.contiguous().view(each.dtype).unflatten(1, each.shape[1:])
            ledger.copied(rows.nbytes)


class HostTier:
    """``num_blocks`` blocks of host memory for what stood in ``pages``, found by its text, as in
    :class:`~kvlab.paging.BlockHashes`: what was used longest ago makes room.

    A thread carries block after block, those of loads first, because somebody waits for them. queue: blocks
    on their way out, at most. link_bytes_per_second: of the link; None: as fast as memory is copied. Close
    it, or use it in a ``with``, or the thread goes on until Python ends.

    ``stored`` and ``loaded`` count blocks that went over the link; ``skipped``, offered ones that found no
    room; ``failed``, those that broke off, the last one by ``error``; ``corrupt``, those that came back as
    something else. ``bytes_out`` and ``bytes_in`` went over the link, those of corrupt blocks among them.

    Host memory is reserved when the first blocks are offered: ``rows`` [num_blocks, block_bytes] uint8.
    """

    # The pages are the caller's and the rows are the thread's; between them go copies of blocks, which belong
    # to one transfer. Everything else is both's, under the lock of _changed.

    def __init__(self, pages, num_blocks, queue=64, link_bytes_per_second=None):
        if queue < 1:
            raise ValueError(f"queue is {queue}; at least one block has to be on its way")
        if link_bytes_per_second is not None and not link_bytes_per_second > 0:
            raise ValueError(f"link_bytes_per_second is {link_bytes_per_second}; give more than 0, or None")
        self.pages, self.queue, self.link_bytes_per_second = pages, queue, link_bytes_per_second
        self.pool = BlockPool(num_blocks, pages.pool.block_size)
        self.index = BlockHashes(self.pool)
        self.rows = self.error = self._dtype = self._device = None
        self.stored = self.loaded = self.skipped = self.failed = self.corrupt = 0
        self.bytes_out = self.bytes_in = 0
        self._sums = {}  # block -> checksum; what has none is not there, wherever it has its place
        self._outgoing = set()  # blocks that wait to be written
        self._jobs = []  # transfers, the oldest first
        self._changed, self._closing = Condition(), Event()
        self._thread = Thread(target=self._work, name="kvlab host tier", daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """End the thread after the block it is at. Loads are done then, with what has arrived so far."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        self._thread.join()

    def wait(self, timeout=None):
        """Until nothing is on its way, or so many seconds -> is that so?"""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, timeout)

    def offer(self, tokens, blocks, namespace=None):
        """Blocks of the pages hold the keys and values of these tokens, from the text's beginning on
        -> how many of them go out, a copy of each: the caller does not wait, and may reuse them at once.

        What is here or on its way is left out, and what finds no room. Raises ValueError for tokens that do
        not fill the blocks, and for blocks that are free; TypeError where the pages had another dtype before.
        """
        size = self.pool.block_size
        check_filled(tokens, blocks, size)
        for block in blocks:
            if not (self.pages.pool.count(block) or self.pages.pool.cached(block)):
                raise ValueError(f"block {block} is free: there is nothing in it to store")
        if not blocks or None in self.pages.layers:  # no token has come
            return 0
        tokens = tokens[: len(blocks) * size]
        with self._changed:
            known = self.index.match(tokens, namespace)
            # Where each block goes. What failed or was corrupt still has its place, and goes there again.
            homes = known.blocks + [None] * (len(blocks) - len(known.blocks))
            missing = [
                at for at, home in enumerate(homes) if home not in self._sums and home not in self._outgoing
            ]
            sent = missing[: 0 if self._closing.is_set() else self.queue - len(self._outgoing)]
            try:
                self._reserve()
                copies = self._copied([blocks[at] for at in sent]) if sent else []
            except RuntimeError as error:  # there is no memory for copies: then these are lost, and no text
                self.failed, self.error = self.failed + len(sent), error
                return 0
            self.index.lock(known)
            new = sum(homes[at] is None for at in sent)
            self.index.evict(max(0, new - self.pool.num_free))
            fresh = [self.pool.allocate() for _ in range(min(new, self.pool.num_free))]
            for home in fresh:
                self._sums.pop(home, None)  # of what was evicted
            homes = known.blocks + fresh
            prefix = self.index.insert(tokens[known.tokens :], fresh, after=known)
            todo = [(homes[at], copy) for at, copy in zip(sent, copies, strict=True) if at < len(homes)]
            self._outgoing.update(home for home, _ in todo)
            self.skipped += len(missing) - len(todo)
            self._begin(Transfer(prefix, todo))
        return len(todo)

    def find(self, tokens, namespace=None, start=0, most=None):
        """How many tokens ``fetch`` would bring, if nothing goes wrong -> int."""
        with self._changed:
            return len(self._found(tokens, namespace, start, most)) * self.pool.block_size

    def fetch(self, tokens, namespace=None, start=0, most=None):
        """Begin to load what is here of a text from token ``start`` on, in whole blocks -> :class:`Load`.

        most: tokens of the text at most. Raises ValueError for a start within a block; whatever goes wrong on
        the way raises nothing.
        """
        with self._changed:
            todo = [] if self._closing.is_set() else self._found(tokens, namespace, start, most)
            prefix = self.index.match(tokens, namespace, start + len(todo) * self.pool.block_size)
            self.index.lock(prefix)
            load = Load(self, prefix, todo)
            self._begin(load)
        return load

    def carry(self, source, target):
        """One block over the link, either way: [block_bytes] uint8 each. For another link, override it."""
        target.copy_(source)
        if self.link_bytes_per_second is not None:
            self._closing.wait(source.nbytes / self.link_bytes_per_second)

    def check(self):
        """Verify every invariant. AssertionError names the broken one."""
        with self._changed:
            self.pool.check([self.index])
            self.index.check()
            locked = set(self.index.owned)
            moving = self._outgoing.union(*(each.todo for each in self._jobs if isinstance(each, Load)))
            require(self._jobs or not locked, "a block is locked, and nothing is on its way")
            require(moving <= locked, "a block on its way may be given away")
            require(not self._outgoing & self._sums.keys(), "a block is found before it is written")
            require(len(self._outgoing) <= self.queue, "more blocks are on their way out than may be")
            size = 0 if self.rows is None else self.rows.shape[1]
            require(self.bytes_out == self.stored * size, "bytes_out are not those of the blocks stored")
            require(self.bytes_in == (self.loaded + self.corrupt) * size, "bytes_in are not those that came")

    def check_dtype(self):
        """TypeError where the pages hold others than they did."""
        if None in self.pages.layers or self.pages.layers[0][0].dtype != self._dtype:
            raise TypeError(f"these blocks are {self._dtype}, and the pages were made anew: make a new tier")

    def _reserve(self):
        if self.rows is None:
            pages, shape = self.pages.layers[0][0], (self.pool.num_blocks, self.pages.block_bytes)
            self.rows = torch.empty(shape, dtype=torch.uint8, pin_memory=pages.is_cuda)
            self._dtype, self._device = pages.dtype, pages.device
        self.check_dtype()

    def _copied(self, blocks):
        """Blocks of the pages -> [blocks, block_bytes] uint8, where the pages are."""
        parts = [each[blocks].flatten(1).view(torch.uint8) for layer in self.pages.layers for each in layer]
        ledger.copied(sum(part.nbytes for part in parts))
        return torch.cat(parts, 1)

    def _found(self, tokens, namespace, start, most):
        """Where the text is from token ``start`` on, up to the first block that is not there."""
        size = self.pool.block_size
        if start < 0 or start % size:
            raise ValueError(f"start is {start}; blocks begin at multiples of {size}")
        blocks = self.index.match(tokens, namespace, most).blocks[start // size :]
        return list(takewhile(self._sums.__contains__, blocks))

    def _begin(self, job):
        self._jobs.append(job)
        if not job.todo:
            self._end(job)
        self._changed.notify_all()

    def _end(self, job):
        self._jobs.remove(job)
        job.ended.set()
        self.index.unlock(job.prefix)
        self._changed.notify_all()

    # ---- what the thread does

    def _work(self):
        try:
            while self._turn():
                pass
        finally:  # closed, or dead of what nobody expected: in either case nobody waits for ever
            with self._changed:
                self._closing.set()
                self._outgoing.clear()
                while self._jobs:
                    self._end(self._jobs[0])

    def _turn(self):
        """Carry the next block, once there is one -> False when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing.is_set())
            if self._closing.is_set():
                return False
            job = next((job for job in self._jobs if isinstance(job, Load)), self._jobs[0])
        (self._bring_in if isinstance(job, Load) else self._send_out)(job)
        return True

    def _send_out(self, job):
        home, copy = job.todo[0]
        _, total = self._carried(home, copy)
        with self._changed:
            self._outgoing.remove(home)
            if total is not None:
                self._sums[home] = total
                self.stored += 1
                self.bytes_out += copy.nbytes
            job.todo.popleft()
            if not job.todo:
                self._end(job)

    def _bring_in(self, job):
        home, copy, total = job.todo[0], None, None
        with self._changed:
            right = self._sums.get(home)  # None where another load has found it corrupt meanwhile
        if right is not None:
            copy, total = self._carried(home)
        with self._changed:
            if total is not None:
                self.bytes_in += copy.nbytes
                self.corrupt += total != right
            if total is not None and total == right:
                self.loaded += 1
                job.blocks.append(copy)
                job.todo.popleft()
            else:
                self._sums.pop(home, None)  # whoever computes these tokens next offers them again
                job.todo.clear()
            if not job.todo:
                self._end(job)

    def _carried(self, home, copy=None):
        """Carry a copy to its place in ``rows``, or make one from there -> it, and its checksum or None."""
        try:
            if copy is not None:
                self.carry(copy, self.rows[home])
            else:
                copy = torch.empty_like(self.rows[home], device=self._device)
                self.carry(self.rows[home], copy)
            return copy, zlib.crc32(copy.cpu().numpy())
        except Exception as error:  # however a link breaks: the block is lost, and all else goes on
            with self._changed:
                self.failed, self.error = self.failed + 1, error
            return None, None
