"""A pool of equally large blocks: which are free, and how many owners each of the others has.

(PagedAttention, Kwon et al. 2023, sections 4.1 to 4.3.)
"""

from collections import Counter
from operator import index


class OutOfBlocks(RuntimeError):
    """The pool has fewer free blocks than were asked for. Nothing was taken."""


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` slots each, one slot a token. Every operation takes constant
    time.

    A block is *free*; or *held*, by as many owners as its count says; or *kept*: without an owner, but with
    contents that a prefix cache may want again. free + held + kept == num_blocks, always.

    A block is a number from 0 on. Raises ValueError for one that the pool does not have, and where a block is
    not in the state that an operation needs; the state is then unchanged.
    """

    def __init__(self, num_blocks, block_size):
        for name, size in (("num_blocks", num_blocks), ("block_size", block_size)):
            if index(size) < 1:
                raise ValueError(f"{name} is {size}; a pool has at least one block of at least one slot")
        self.num_blocks, self.block_size = index(num_blocks), index(block_size)
        self.log = None  # a Log, where somebody wants to see what happens
        self.most_held = 0  # at any time so far
        self._counts = [0] * self.num_blocks  # owners of each block
        self._cached = [0] * self.num_blocks  # 1 where a prefix cache wants the contents
        self._numbers = list(range(self.num_blocks))
        self._free = self._numbers[::-1]  # what was released last is given first: warm
        self._num_kept = 0

    def __repr__(self):
        return (
            f"BlockPool({self.num_blocks} blocks of {self.block_size}: {self.num_free} free, "
            f"{self.num_held} held, {self.num_kept} kept)"
        )

    @property
    def num_free(self):
        return len(self._free)

    @property
    def num_kept(self):
        return self._num_kept

    @property
    def num_held(self):
        return self.num_blocks - len(self._free) - self._num_kept

    def count(self, block):
        """How many owners the block has."""
        return self._counts[self._known(block)]

    def cached(self, block):
        """Does a prefix cache want the contents of this block?"""
        return bool(self._cached[self._known(block)])

    def writable(self, block):
        """May the one who holds the block write into it? Not if others read it, now or later."""
        return self._counts[self._known(block)] == 1 and not self._cached[block]

    def allocate(self):
        """A free block, which the caller now holds -> int. Raises OutOfBlocks."""
        if not self._free:
            raise OutOfBlocks(self.shortage(1))
        block = self._free.pop()
        self._counts[block] = 1
        held = self.num_blocks - len(self._free) - self._num_kept
        if held > self.most_held:
            self.most_held = held
        return block

    def shortage(self, needed):
        """What to say where there are not enough free blocks."""
        kept = f", {self._num_kept} kept for prefixes" if self._num_kept else ""
        verb = "blocks are" if needed > 1 else "block is"
        return (
            f"{needed} {verb} needed and {self.num_free} of {self.num_blocks} are free ({self.num_held} "
            f"held{kept}): release a sequence, or make a pool of more blocks"
        )

    def share(self, block):
        """One owner more, of a block that is held or kept."""
        count = self._counts[self._known(block)]
        if not count:
            if not self._cached[block]:
                raise ValueError(f"block {block} is free: there is nothing in it to share; allocate one")
            self._num_kept -= 1
        self._counts[block] = count + 1
        self.most_held = max(self.most_held, self.num_held)

    def release(self, block):
        """One owner less. The last one leaves it free, or kept where a prefix cache wants it."""
        count = self._counts[self._known(block)]
        if not count:
            raise ValueError(f"block {block} has no owner: it was released already")
        self._counts[block] = count - 1
        if count == 1:
            if self._cached[block]:
                self._num_kept += 1
            else:
                self._free.append(block)

    def keep(self, block):
        """From now on a prefix cache wants the contents of this block, which somebody holds."""
        if not self._counts[self._known(block)]:
            raise ValueError(f"block {block} has no owner: there is nothing in it to keep")
        self._cached[block] = 1

    def drop(self, block):
        """The prefix cache no longer wants it: without an owner it becomes free."""
        if not self._cached[self._known(block)]:
            raise ValueError(f"block {block} is not wanted by a prefix cache: keep it first")
        self._cached[block] = 0
        if not self._counts[block]:
            self._num_kept -= 1
            self._free.append(block)

    def numbers(self, blocks):
        """Several blocks as plain numbers -> list, which the operations below take as ``known``: it is not
        looked at again. ValueError for one that the pool does not have, TypeError for what is no number.
        """
        numbers, blocks = self._numbers, blocks if isinstance(blocks, list) else list(blocks)
        try:
            found = [numbers[block] for block in blocks]
        except IndexError:
            found = None
        if found != blocks:  # a negative one finds another
            for block in blocks:
                self._known(index(block))
        return found

    def share_all(self, blocks, known=False):
        """``share`` each of several blocks; or none, where one of them is free."""
        blocks = blocks if known else self.numbers(blocks)
        counts, cached, idle, free = self._counts, self._cached, 0, None
        for block in blocks:
            count = counts[block]
            counts[block] = count + 1
            if not count:
                idle += 1
                if not cached[block]:
                    free = block
        if free is not None:
            for block in blocks:
                counts[block] -= 1
            raise ValueError(f"block {free} is free: there is nothing in it to share; allocate one")
        self._num_kept -= idle
        self.most_held = max(self.most_held, self.num_held)

    def release_all(self, blocks, known=False):
        """``release`` each of several blocks, in their order; or none, where one has too few owners."""
        blocks = blocks if known else self.numbers(blocks)
        counts, cached, kept, free, wrong = self._counts, self._cached, 0, [], None
        for block in blocks:
            counts[block] = left = counts[block] - 1
            if not left:
                if cached[block]:
                    kept += 1
                else:
                    free.append(block)
            elif left < 0:
                wrong = block
        if wrong is not None:
            for block in blocks:
                counts[block] += 1
            raise ValueError(f"block {wrong} has no owner, or too few: it was released already")
        self._num_kept += kept
        self._free += free

    def keep_all(self, blocks, known=False):
        """``keep`` each of several blocks; or none, where one is kept already, or has no owner."""
        blocks = blocks if known else self.numbers(blocks)
        counts, cached, wrong = self._counts, self._cached, None
        for block in blocks:
            cached[block] = times = cached[block] + 1
            if times > 1 or not counts[block]:
                wrong = block
        if wrong is not None:
            for block in blocks:
                cached[block] -= 1
            why = "is kept already, or comes twice" if counts[wrong] else "has no owner"
            raise ValueError(f"block {wrong} {why}: keep each once, while somebody holds it")

    def drop_all(self, blocks, known=False):
        """``drop`` each of several blocks, in their order; or none, where one is not kept, or comes twice."""
        blocks = blocks if known else self.numbers(blocks)
        counts, cached, idle, wrong = self._counts, self._cached, [], None
        for block in blocks:
            cached[block] = left = cached[block] - 1
            if left:
                wrong = block
            elif not counts[block]:
                idle.append(block)
        if wrong is not None:
            for block in blocks:
                cached[block] += 1
            raise ValueError(f"block {wrong} is not wanted by a prefix cache, or comes twice: keep it first")
        self._num_kept -= len(idle)
        self._free += idle

    def check(self, tables=None):
        """Verify every invariant; with ``tables``, all owners that there are, also that each is counted once.

        Raises AssertionError that names the broken one.
        """
        idle = [block for block, count in enumerate(self._counts) if not count]
        kept = sum(self._cached[block] for block in idle)
        free = set(self._free)
        require(min(self._counts) >= 0, "a count is below zero")
        require(len(free) == len(self._free), "a block is free twice")
        require(kept == self._num_kept, f"{kept} blocks are kept, and {self._num_kept} were counted")
        right = {block for block in idle if not self._cached[block]}
        require(free == right, f"blocks {sorted(free ^ right)} are free and used, or neither")
        held = len(self._counts) - len(idle)
        total = self.num_free + held + kept
        require(total == self.num_blocks, f"{total} blocks are accounted for, of {self.num_blocks}")
        if tables is not None:
            owners = Counter(block for table in tables for block in table.owned)
            counts = Counter(dict(enumerate(self._counts)))
            wrong = sorted(block for block in owners | counts if owners[block] != counts[block])
            require(not wrong, f"blocks {wrong} have other numbers of owners than their counts say")
            read = {block for table in tables for block in getattr(table, "borrows", ())}
            lost = sorted(block for block in read if not self._cached[block])
            require(not lost, f"blocks {lost} were given away, and a table still reads them")

    def _known(self, block):
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"there is no block {block}: this pool has 0 to {self.num_blocks - 1}")
        return block


def require(condition, broken):
    if not condition:
        raise AssertionError(broken)
