"""Requests replayed on a prefix cache, for what it finds of them: blocks and tables, and no tensor."""

from collections import deque
from operator import index

from kvlab.paging.prefix_table import PrefixTable
from kvlab.paging.table import BlockTable


class Replay:
    """So many requests run at a time; the oldest ends when the next one comes, or before that where the pool
    has no room for both.

    kind: RadixTree, BlockHashes, or None, where nothing is found. ``asked`` counts the tokens of all prompts;
    ``found`` has, for each request, how many of them were there already.
    """

    def __init__(self, pool, kind=None, running=1):
        if index(running) < 1:
            raise ValueError(f"running is {running}; at least one request runs at a time")
        self.pool, self.cache = pool, None if kind is None else kind(pool)
        self.at_once, self.running = running, deque()  # (table, text, priority), the oldest first
        self.asked, self.found = 0, []

    @property
    def evicted(self):
        """How many blocks were, so far."""
        return 0 if self.cache is None else self.cache.blocks_evicted

    def run(self, requests):
        """Add all, and end all -> ``found``. requests: (prompt, answer), or (prompt, answer, priority)."""
        try:
            for request in requests:
                self.add(*request)
        finally:
            while self.running:
                self.end()
        return self.found

    def add(self, prompt, answer=(), priority=0):
        """The next request -> how many tokens of its prompt were found. The blocks for its answer are its own
        from now on, so that it can always end.

        prompt, answer: token ids. priority: for the cache. Raises OutOfBlocks where the pool is too small for
        it even when nobody else runs, ValueError for what are no ids; nothing of the request is left then.
        """
        while len(self.running) >= self.at_once:
            self.end()
        text = [*prompt, *answer]
        table = self.find(prompt)
        found = table.length
        try:
            self._make_room(table, len(text) - found)
            table.reserve(len(text) - found)
            table.advance(len(prompt) - found)
            self.store(table, prompt, priority)
        except Exception:
            self.release(table)
            raise
        self.running.append((table, text, priority))
        self.asked += len(prompt)
        self.found.append(found)
        return found

    def end(self):
        """The oldest request has its answer, and gives it to the cache."""
        table, text, priority = self.running.popleft()
        try:
            table.advance(len(text) - table.length)
            self.store(table, text, priority)
        finally:
            self.release(table)

    def find(self, prompt):
        """A table that has what is stored of a prompt. Its last token is always computed."""
        if self.cache is None:
            return BlockTable(self.pool)
        return PrefixTable(self.cache, prompt, most=len(prompt) - 1)

    def store(self, table, tokens, priority):
        if self.cache is not None:
            table.store(tokens, priority)

    def release(self, table):
        table.release()

    def evict(self, n):
        """-> how many blocks became free."""
        return 0 if self.cache is None else self.cache.evict(n)

    def _make_room(self, table, n):
        """For n tokens: evict what nobody uses, and only then let others end."""
        while (short := table.needed(n) - self.pool.num_free) > 0:
            if not self.evict(short):
                if not self.running:
                    break
                self.end()
