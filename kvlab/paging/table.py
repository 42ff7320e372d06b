"""A block table: which blocks hold a sequence, in the order of its tokens."""

from copy import copy
from operator import index

from kvlab.paging.pool import OutOfBlocks


class BlockTable:
    """Token t of a sequence lies in block ``blocks[t // block_size]``, slot ``t % block_size`` of it.

    ``length`` counts tokens that are stored. To store more: ``reserve`` room, write to ``slots``,
    ``advance``.
    Tables may share blocks; one that writes into a shared block gets a copy of its own first (copy-on-write).
    (PagedAttention, Kwon et al. 2023, sections 4.2 to 4.4.)

    After ``release`` nothing works any more: RuntimeError. name: for the pool's log.
    """

    def __init__(self, pool, name=None):
        self.pool, self.blocks, self.length = pool, [], 0
        self.borrowed = 0  # so many blocks at the beginning are a prefix cache's, which is their owner
        self.released = False
        self.name = name
        if pool.log is not None:
            pool.log.born(self)

    def __repr__(self):
        return f"BlockTable({self.length} tokens in blocks {self.blocks})"

    @property
    def owned(self):
        """The blocks that it is an owner of."""
        return self.blocks[self.borrowed :]

    @property
    def borrows(self):
        """The blocks that a prefix cache is the owner of."""
        return self.blocks[: self.borrowed]

    def borrow(self, blocks):
        """The first, or next, tokens are in these full blocks of a prefix cache, which is their owner as long
        as they are locked there. Other blocks of the table's own in their places are let go of."""
        self._check_alive()
        if not blocks:
            return
        end = self.borrowed + len(blocks)
        mine = self.blocks[self.borrowed : end]
        changed = []
        if mine != blocks:
            changed = [(old, new) for old, new in zip(mine, blocks, strict=False) if old != new]
            self.pool.release_all([old for old, _ in changed])
            self.blocks[self.borrowed : end] = blocks
        self.borrowed, self.length = end, max(self.length, end * self.pool.block_size)
        if self.pool.log is not None:
            events = [("copied", *pair) for pair in changed] + [
                ("shared", new) for new in blocks[len(mine) :]
            ]
            for event in [*events, ("length", self.length)]:
                self._note(*event)

    def needed(self, n):
        """How many free blocks it takes to store ``n`` more tokens -> int."""
        self._check_alive()
        n = index(n)
        if n < 0:
            raise ValueError(f"{n} tokens cannot be stored; give 0 or more")
        missing = -(-(self.length + n) // self.pool.block_size) - len(self.blocks)
        return max(missing, 0) + bool(n and self._place_to_copy() is not None)

    def shared_block(self):
        """The block that has to be copied before the next token is written -> int or None."""
        place = self._place_to_copy()
        return None if place is None else self.blocks[place]

    def reserve(self, n):
        """Make room for ``n`` more tokens -> the copies to make first, a list of (from, to) blocks.

        There is at most one: of a partly filled last block that others use, too. Raises OutOfBlocks; nothing
        has happened then.
        """
        needed = self.needed(n)
        if not needed:
            return []
        pool = self.pool
        if needed > pool.num_free:
            raise OutOfBlocks(pool.shortage(needed))
        copies, place = [], self._place_to_copy()
        if place is not None:
            old, new = self.blocks[place], pool.allocate()
            if place < self.borrowed:
                self.borrowed = place  # truncate left it partly filled; its owner keeps it
            else:
                pool.release(old)
            self.blocks[place] = new
            copies.append((old, new))
            self._note("copied", old, new)
            needed -= 1
        for _ in range(needed):
            self.blocks.append(pool.allocate())
            self._note("allocated", self.blocks[-1])
        return copies

    def slots(self, n):
        """Where the next ``n`` tokens go: block * block_size + place in it, for each -> list of int."""
        self._check_room(n)
        if n and self._place_to_copy() is not None:
            raise ValueError(f"others read block {self.shared_block()}, where the next token goes: reserve")
        size, blocks = self.pool.block_size, self.blocks
        return [blocks[t // size] * size + t % size for t in range(self.length, self.length + n)]

    def advance(self, n):
        """``n`` more tokens are stored."""
        self._check_room(n)
        self.length += index(n)
        self._note("length", self.length)

    def truncate(self, n):
        """Keep the first ``n`` tokens, and let go of the blocks that hold none of them."""
        self._check_alive()
        if not 0 <= index(n) <= self.length:
            raise ValueError(f"cannot keep {n} tokens of the {self.length} stored")
        self.length = index(n)
        self._note("length", self.length)
        self._keep_blocks(-(-self.length // self.pool.block_size))

    def fork(self, name=None):
        """A second table for the same tokens, which shares all blocks that hold any -> BlockTable."""
        self._check_alive()
        other = copy(self)
        other.name, other.blocks, other.length = name, [], 0
        if self.pool.log is not None:
            self.pool.log.born(other)
        for place, block in enumerate(self.blocks[: -(-self.length // self.pool.block_size)]):
            if place >= self.borrowed:
                self.pool.share(block)
            other.blocks.append(block)
            other._note("shared", block)
        other.length = self.length
        other._note("length", self.length)
        return other

    def release(self):
        """Let go of everything. A second time: RuntimeError."""
        self._check_alive()
        self._keep_blocks(0)
        self.length, self.released = 0, True
        if self.pool.log is not None:
            self.pool.log.note(self, "ended")

    def _keep_blocks(self, n):
        """Let go of the others, the last one first."""
        if self.pool.log is None:
            self.pool.release_all(self.blocks[max(self.borrowed, n) :][::-1])
            del self.blocks[n:]
        while len(self.blocks) > n:
            block = self.blocks.pop()
            if len(self.blocks) >= self.borrowed:
                self.pool.release(block)
            self._note("freed" if not self.pool.count(block) else "left", block)
        self.borrowed = min(self.borrowed, n)

    def _place_to_copy(self):
        """Index of the block that the next token goes to, where others may read it -> int or None."""
        if self.length % self.pool.block_size == 0:
            return None  # it goes to a new block
        place = self.length // self.pool.block_size
        return None if self.pool.writable(self.blocks[place]) else place

    def _note(self, *event):
        if self.pool.log is not None:
            self.pool.log.note(self, *event)

    def _check_room(self, n):
        self._check_alive()
        if not 0 <= index(n) <= len(self.blocks) * self.pool.block_size - self.length:
            raise ValueError(f"there is no room for {n} more tokens: reserve it first")

    def _check_alive(self):
        if self.released:
            raise RuntimeError("this table was released: its blocks belong to others now; make a new one")
