"""Who computes how many tokens in the next step: iteration-level scheduling with chunked prefill.

(Orca, Yu et al. 2022, section 3; chunked prefill: Sarathi-Serve, Agrawal et al. 2024, section 4.)
"""

from collections import deque

from kvlab.caches.paged import blocks_needed
from kvlab.paging import BlockTable


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
        """-> ([(sequence, new tokens)], [admitted], [preempted])"""
        preempted = []
        steps = self._running_steps()
        while blocks_needed(self.pool, [(each.table, n) for each, n in steps]) > self.pool.num_free:
            last = self.running.pop()
            last.let_go()
            self.waiting.appendleft(last)
            preempted.append(last)
            steps = self._running_steps()
        admitted = [] if preempted else self._admit(steps)
        return steps, admitted, preempted

    def _running_steps(self):
        """Decodes, then chunks, as far as the budget goes."""
        decoding = [each for each in self.running if each.missing == 1]
        budget = self.max_batch_tokens - len(decoding)
        steps = [(each, 1) for each in decoding]
        for each in self.running:
            if each.missing > 1 and budget:
                steps.append((each, min(each.missing, budget)))
                budget -= steps[-1][1]
        return steps

    def _admit(self, steps):
        """Let those who wait run, in their order, and add their first chunk to the step."""
        admitted, budget = [], self.max_batch_tokens - sum(n for _, n in steps)
        taken = sum(each.table.needed(each.missing) for each in self.running)
        while self.waiting and budget:
            first = self.waiting[0]
            needed = -(-len(first.tokens) // self.pool.block_size)
            spare = self.spare_blocks * len(self.running)
            if taken + needed + spare > self.pool.num_free:
                break
            if sum(each.places for each in self.running) + first.places > self.max_batch_tokens:
                break  # all who run may decode in one step
            self.waiting.popleft()
            first.table = BlockTable(self.pool)
            self.running.append(first)
            admitted.append(first)
            steps.append((first, min(first.missing, budget)))
            budget -= steps[-1][1]
            taken += needed
        return admitted

    def remove(self, sequence):
        """Ended or cancelled: out of whichever queue, and its blocks go back."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.let_go()
