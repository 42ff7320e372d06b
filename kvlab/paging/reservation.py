"""What serving systems did before pages: one run of slots for each request, reserved when it starts.

The simulation of a full server that compares this with pages. A step gives every running request one token;
whoever waits starts as soon as there is room, first come, first served. (PagedAttention, Kwon et al. 2023,
section 3 and figure 2.)
"""

from collections import deque
from dataclasses import dataclass
from functools import cache
from operator import index
from pathlib import Path
from random import Random

from kvlab.paging.pool import BlockPool, OutOfBlocks
from kvlab.paging.table import BlockTable

CONVERSATIONS = Path(__file__).with_name("conversations.csv")


@cache
def conversations():
    """(prompt, answer) lengths of real requests in tokens, as they came; their source stands in the file."""
    lines = [line for line in CONVERSATIONS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return tuple(tuple(map(int, line.split(","))) for line in lines[1:])


def lognormal(prompt, answer, n, seed=0, spread=0.8):
    """n drawn (prompt, answer) lengths with these means; ``spread`` is that of the logarithms."""
    random = Random(seed)

    def draw(mean):
        return max(1, round(mean * random.lognormvariate(-(spread**2) / 2, spread)))

    return [(draw(prompt), draw(answer)) for _ in range(n)]


class BuddyAllocator:
    """Runs of slots whose sizes are powers of two: halved until they fit, joined with their other half when
    both are free (Knowlton 1965). ``slots`` is a power of two.
    """

    def __init__(self, slots):
        if index(slots) < 1 or slots & (slots - 1):
            raise ValueError(f"slots is {slots}; a buddy allocator divides a power of two")
        self.slots, self.taken = slots, {}  # start -> size
        self.free = {slots: {0}}  # size -> starts

    @property
    def num_free(self):
        return self.slots - sum(self.taken.values())

    def allocate(self, n):
        """A run of at least n slots -> its start, or None where no run is large enough."""
        if index(n) < 1:
            raise ValueError(f"{n} slots were asked for; ask for at least one")
        size = power_of_two(n)
        large = min((each for each, starts in self.free.items() if starts and each >= size), default=None)
        if large is None:
            return None
        start = min(self.free[large])
        self.free[large].remove(start)
        while large > size:
            large //= 2
            self.free.setdefault(large, set()).add(start + large)
        self.taken[start] = size
        return start

    def release(self, start):
        if start not in self.taken:
            raise ValueError(f"no run starts at {start}: it was released already, or never taken")
        size = self.taken.pop(start)
        while size < self.slots and (buddy := start ^ size) in self.free.get(size, ()):
            self.free[size].remove(buddy)
            start, size = min(start, buddy), 2 * size
        self.free.setdefault(size, set()).add(start)


class FirstFit:
    """Runs of any size: the first gap that is large enough."""

    def __init__(self, slots):
        self.slots, self.taken = slots, {}  # start -> size, in order

    def allocate(self, n):
        """A run of n slots -> its start, or None where no gap is large enough."""
        end = 0
        for start, size in [*sorted(self.taken.items()), (self.slots, 0)]:
            if start - end >= n:
                self.taken[end] = n
                return end
            end = start + size
        return None

    def release(self, start):
        del self.taken[start]


def power_of_two(n):
    """The smallest one that is not below n."""
    return 1 << (n - 1).bit_length()


POLICIES = {
    "maximum": lambda prompt, answer, longest: longest,
    "power of two": lambda prompt, answer, longest: min(prompt + power_of_two(answer), longest),
    "oracle": lambda prompt, answer, longest: prompt + answer,
}
"""Slots to reserve for a request: for the longest text there may be; for its prompt and an answer guessed to
within a factor of two; or for exactly what it will need, which nobody knows."""


@dataclass
class Shares:
    """Where the slots of a full server were, as parts of all of them, averaged over its steps."""

    tokens: float  # keys and values of tokens
    reserved: float  # for tokens that will come
    internal: float  # for tokens that will never come
    external: float  # free, and of no use to the one who waits
    running: float  # requests at a time
    steps: int  # until all were done
    preempted: int = 0  # times that a request gave its blocks back
    recomputed: int = 0  # tokens that it then had to compute again


def contiguous(lengths, slots, longest, policy, allocator=BuddyAllocator):
    """Serve all requests, each in a run of slots -> Shares. policy: a key of ``POLICIES``."""
    reserve = POLICIES[policy]
    memory, waiting, running, full = allocator(slots), deque(map(_fitting(longest), lengths)), [], []
    steps = 0
    while waiting or running:
        while waiting:
            start = memory.allocate(reserve(*waiting[0], longest))
            if start is None:
                break
            running.append([start, *waiting.popleft(), 0])  # start, prompt, answer, answered
        if waiting:
            if not running:
                raise ValueError(f"a request of {waiting[0]} tokens does not fit into {slots} slots")
            tokens = sum(prompt + answered for _, prompt, _, answered in running)
            needed = sum(prompt + answer for _, prompt, answer, _ in running)
            taken = sum(memory.taken.values())
            full.append((tokens, needed - tokens, taken - needed, slots - taken, len(running)))
        steps += 1
        for request in running:
            request[3] += 1
        for start, *_ in [request for request in running if request[3] == request[2]]:
            memory.release(start)
        running = [request for request in running if request[3] < request[2]]
    return _shares(full, slots, steps)


def paged(lengths, slots, longest, block_size=16, spare=0):
    """Serve all requests from a pool of blocks -> Shares.

    A block is taken when its first token comes. When there is none left, the request that came last gives
    all of its own back, and later computes its tokens again. spare: free blocks that have to be left for each
    running request, when another one wants to start.
    """
    pool = BlockPool(slots // block_size, block_size)
    waiting, running, full = deque([(*pair, 0) for pair in map(_fitting(longest), lengths)]), [], []
    steps = preempted = recomputed = 0
    while waiting or running:
        while waiting and _start(pool, waiting, running, spare * len(running)):
            pass
        if waiting:
            if not running:
                raise ValueError(f"a request of {waiting[0][:2]} tokens does not fit into {slots} slots")
            tokens = sum(table.length for table, *_ in running)
            held = pool.num_held * block_size
            full.append((tokens, 0, held - tokens, slots - held, len(running)))
        steps += 1
        for request in list(running):
            while request in running:
                try:
                    request[0].reserve(1)
                    break
                except OutOfBlocks:
                    table, *rest = running.pop()
                    recomputed += table.length
                    table.release()
                    waiting.appendleft(tuple(rest))
                    preempted += 1
            if request in running:
                request[0].advance(1)
                request[3] += 1
        for table, *_ in [request for request in running if request[3] == request[2]]:
            table.release()
        running = [request for request in running if request[3] < request[2]]
    return _shares(full, slots, steps, preempted, recomputed)


def _start(pool, waiting, running, spare):
    """Let the first one in the queue run, if its tokens so far and one more have room -> bool."""
    prompt, answer, answered = waiting[0]
    table = BlockTable(pool)
    if table.needed(prompt + answered + 1) > pool.num_free - spare:
        return False
    waiting.popleft()
    table.reserve(prompt + answered)
    table.advance(prompt + answered)
    running.append([table, prompt, answer, answered])
    return True


def _fitting(longest):
    """Cut what is too long for the model, the prompt last."""

    def fit(pair):
        prompt = min(pair[0], longest - 1)
        return prompt, min(pair[1], longest - prompt)

    return fit


def _shares(full, slots, steps, *counts):
    if not full:
        raise ValueError("nobody ever waited: the server was never full; give it more requests or less room")
    means = [sum(column) / len(full) for column in zip(*full, strict=True)]
    return Shares(*(mean / slots for mean in means[:4]), means[4], steps, *counts)
