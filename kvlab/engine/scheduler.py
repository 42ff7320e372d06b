"""Who computes how many tokens in the next step: iteration-level scheduling with chunked prefill.

(Orca, Yu et al. 2022, section 3; chunked prefill: Sarathi-Serve, Agrawal et al. 2024, section 4.)
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from kvlab.caches.paged import blocks_needed
from kvlab.paging import BlockTable, PrefixTable


@dataclass
class Plan:
    """What the next step computes, and who was let in or sent back for it."""

    steps: list  # (sequence, new tokens)
    admitted: list = field(default_factory=list)
    loaded: list = field(default_factory=list)  # (sequence, tokens that came from the host's memory)
    preempted: list = field(default_factory=list)  # (sequence, stored tokens given up)
    short: int = 0  # blocks that were missing before anybody was preempted
    because: str = ""  # why the next who waits was not admitted: a key of trace.REASONS
    evicted: int = 0  # blocks of the prefix cache


class Scheduler:
    """Two queues of sequences. ``plan`` forms a step of at most ``max_batch_tokens`` tokens.

    Running sequences that decode come first, one token each; then chunks of prompts that have begun; then
    whoever waits, first come first served, if the pool has room for all tokens of theirs and ``spare_blocks``
    more for each that runs. When running sequences need more blocks than there are, the one that came last
    gives all of its own back and waits in front of the queue, to be computed again (preemption).

    cache: a prefix cache, or None. What it keeps counts as room, and is evicted when that is needed.
    overtaking: with a cache, whoever waits may be overtaken so many times by others that came later and find
    more of their text in it. ``host``: a tier behind the cache, or None. Who lets go of full blocks offers
    them to it; who finds more of its text there than in the cache is let in when that has come.
    """

    def __init__(self, pool, max_batch_tokens, spare_blocks, cache=None, overtaking=0):
        self.pool, self.max_batch_tokens, self.spare_blocks = pool, max_batch_tokens, spare_blocks
        self.cache, self.overtaking, self.host = cache, overtaking, None
        self.waiting, self.running = deque(), []  # running: in the order in which they came
        self.planned = Plan([])  # the latest plan, as far as it came

    def plan(self):
        """Form the next step -> :class:`Plan`."""
        plan = self.planned = Plan([])
        plan.steps = self._running_steps()
        while (short := self._needed(plan.steps) - self.room) > 0:
            plan.short = plan.short or short
            last = self.running.pop()
            self.waiting.appendleft(last)
            plan.preempted.append((last, last.stored))
            self._let_go(last)
            plan.steps = self._running_steps()
        self._admit(plan)
        if self.cache is not None:
            plan.evicted += self.cache.evict(max(0, self._needed(plan.steps) - self.pool.num_free))
        return plan

    @property
    def room(self):
        """Blocks that are free, or would be after an eviction."""
        return self.pool.num_free + self.pool.num_kept

    def _needed(self, steps):
        return blocks_needed(self.pool, [(each.table, n) for each, n in steps])

    def _running_steps(self):
        """Decodes, then chunks, as far as the budget goes."""
        decoding = [each for each in self.running if each.decodes]
        budget = self.max_batch_tokens - len(decoding)
        steps = [(each, 1) for each in decoding]
        for each in self.running:
            if not each.decodes and budget:
                steps.append((each, min(each.missing, budget)))
                budget -= steps[-1][1]
        return steps

    def _admit(self, plan):
        """Let those who wait run, in their order, and add their first chunk to the step."""
        budget = self.max_batch_tokens - sum(n for _, n in plan.steps)
        taken = sum(each.table.needed(each.missing) for each in self.running)
        while self.waiting:
            first = self._next()
            spare = self.spare_blocks * len(self.running)
            if plan.preempted:
                plan.because = "preemption"
            elif sum(each.places for each in self.running) + first.places > self.max_batch_tokens:
                plan.because = "texts"  # all who run may decode in one step
            elif not budget:
                plan.because = "budget"
            elif self._awaited(first, wait=not plan.steps):
                plan.because = "loading"
            elif not self._opened(first, taken + spare):
                plan.because = "blocks"
            else:
                self._bring_in(first, plan)
                self._let_in(first)
                plan.admitted.append(first)
                taken += first.table.needed(first.missing)
                plan.steps.append((first, min(first.missing, budget)))
                budget -= plan.steps[-1][1]
                continue
            break

    def _next(self):
        """Of the first who waits and those that may overtake it, the one that finds most in the cache."""
        if not self.overtaking:
            return self.waiting[0]
        candidates = []
        for each in islice(self.waiting, self.overtaking + 1):
            candidates.append(each)
            if each.overtaken == self.overtaking:
                break
        return max(candidates, key=lambda each: self.cache.peek(each.tokens, each.request.namespace))

    def _let_in(self, sequence):
        place = self.waiting.index(sequence)
        for each in islice(self.waiting, place):
            each.overtaken += 1
        del self.waiting[place]
        self.running.append(sequence)

    def _opened(self, sequence, taken):
        """Give it a table, if there is room for all its tokens besides what is taken -> bool."""
        if self.cache is None:
            sequence.table = BlockTable(self.pool)
        else:
            most = len(sequence.tokens) - 1  # the last one is computed: its logits are not stored
            sequence.table = PrefixTable(self.cache, sequence.tokens, sequence.request.namespace, most)
        if taken + sequence.table.needed(sequence.missing) > self.room:
            sequence.let_go()
        return sequence.table is not None

    def _awaited(self, sequence, wait):
        """Is something of its text on its way from the host? It is sent for the first time we ask."""
        if self.host is None:
            return False
        if sequence.load is None:
            tokens, namespace = sequence.tokens, sequence.request.namespace
            start = self.cache.peek(tokens[:-1], namespace)
            sequence.load = start, self.host.fetch(tokens, namespace, start, len(tokens) - 1)
        load = sequence.load[1]
        return not (load.wait() if wait else load.done)

    def _bring_in(self, sequence, plan):
        """Put what has come from the host behind what was found in the cache."""
        if sequence.load is None:
            return
        (start, load), sequence.load = sequence.load, None
        table, size = sequence.table, self.pool.block_size
        if start <= table.length:  # else what stood before it was evicted meanwhile
            del load.blocks[: (table.length - start) // size]
            n = len(load.blocks) * size
            plan.evicted += self.cache.evict(max(0, table.needed(n) - self.pool.num_free))
            try:
                table.reserve(n)
                load.into(table.blocks[table.length // size :])
            except RuntimeError:
                return  # there is no memory to bring them in: they are computed
            except BaseException:
                sequence.let_go()  # it still waits
                raise
            table.advance(n)
            sequence.store()
            plan.loaded.append((sequence, n))

    def _let_go(self, sequence):
        sequence.load = None
        try:
            if self.host is not None and sequence.table is not None:
                blocks = sequence.table.blocks[: sequence.stored // self.pool.block_size]
                self.host.offer(sequence.tokens, blocks, sequence.request.namespace)
        finally:
            sequence.let_go()

    def step_back(self):
        """A step failed part of the way: what was stored without a token written after it, is to be computed
        again, and room that was made is given back."""
        for each in self.running:
            each.table.truncate(min(each.stored, len(each.tokens) - 1))

    def remove(self, sequence):
        """Ended or cancelled: out of whichever queue, and its blocks go back."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._let_go(sequence)
