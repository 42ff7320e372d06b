"""Who computes how many tokens in the next step: iteration-level scheduling with chunked prefill.

(Orca, Yu et al. 2022, section 3; chunked prefill: Sarathi-Serve, Agrawal et al. 2024, section 4.)
"""

from collections import deque
from dataclasses import dataclass, field

from kvlab.caches.paged import blocks_needed
from kvlab.paging import BlockTable


@dataclass
class Plan:
    """What the next step computes, and who was let in or sent back for it."""

    steps: list  # (sequence, new tokens)
    admitted: list = field(default_factory=list)
    preempted: list = field(default_factory=list)  # (sequence, stored tokens given up)
    short: int = 0  # blocks that were missing before anybody was preempted
    because: str = ""  # why the first who waits was not admitted: a key of trace.REASONS


class Scheduler:
    """Two queues of sequences. ``plan`` forms a step of at most ``max_batch_tokens`` tokens.

    Running sequences that decode come first, one token each; then chunks of prompts that have begun; then
    whoever waits, first come first served, if the pool has room for all tokens of theirs and ``spare_blocks``
    more for each that runs. When running sequences need more blocks than there are, the one that came last
    gives all of its own back and waits in front of the queue, to be computed again (preemption).
    """

    def __init__(self, pool, max_batch_tokens, spare_blocks):
        self.pool, self.max_batch_tokens, self.spare_blocks = pool, max_batch_tokens, spare_blocks
        self.waiting, self.running = deque(), []  # running: in the order in which they came

    def plan(self):
        """Form the next step -> :class:`Plan`."""
        plan = Plan(self._running_steps())
        while (short := self._needed(plan.steps) - self.pool.num_free) > 0:
            plan.short = plan.short or short
            last = self.running.pop()
            plan.preempted.append((last, last.stored))
            last.let_go()
            self.waiting.appendleft(last)
            plan.steps = self._running_steps()
        self._admit(plan)
        return plan

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
            first = self.waiting[0]
            needed = -(-len(first.tokens) // self.pool.block_size)
            spare = self.spare_blocks * len(self.running)
            if plan.preempted:
                plan.because = "preemption"
            elif sum(each.places for each in self.running) + first.places > self.max_batch_tokens:
                plan.because = "texts"  # all who run may decode in one step
            elif taken + needed + spare > self.pool.num_free:
                plan.because = "blocks"
            elif not budget:
                plan.because = "budget"
            else:
                self.waiting.popleft()
                first.table = BlockTable(self.pool)
                self.running.append(first)
                plan.admitted.append(first)
                plan.steps.append((first, min(first.missing, budget)))
                budget -= plan.steps[-1][1]
                taken += needed
                continue
            break

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
        sequence.let_go()
