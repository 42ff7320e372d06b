"""A block table that begins with what a prefix cache has, and gives it what is computed."""

from operator import index

from kvlab.paging.table import BlockTable


class PrefixTable(BlockTable):
    """The table of one text. Its longest stored beginning is there from the start, and stays locked.

    tokens: the text so far. most: tokens of it, at most, that may be found: of a text that is stored whole
    the last one has to be computed again, since logits are not stored. ``found`` tokens were.
    """

    def __init__(self, cache, tokens, namespace=None, most=None, name=None):
        prefix = cache.match(tokens, namespace, most)
        super().__init__(cache.pool, name)
        cache.lock(prefix)
        self.cache, self.prefix, self.found = cache, prefix, prefix.tokens
        self.borrow(prefix.blocks)

    def store(self, tokens, priority=0):
        """Give the cache all full blocks that it does not have yet. tokens: the text, of which ``length`` are
        stored here. Where somebody else has stored the same meanwhile, the table goes over to those blocks.

        priority: of what is new, where the cache has priorities.
        """
        self._check_alive()
        size, known = self.pool.block_size, self.prefix.tokens
        full = self.length // size * size
        if full > known:
            new, blocks = tokens[known:full], self.blocks[known // size : full // size]
            self.prefix = self.cache.insert(new, blocks, after=self.prefix, priority=priority)
            self.borrow(self.prefix.blocks)

    def truncate(self, n):
        """Not to less than what is in the cache: ValueError."""
        self._check_alive()
        if index(n) < self.prefix.tokens:
            raise ValueError(f"cannot keep {n} tokens: {self.prefix.tokens} of them are in a prefix cache")
        super().truncate(n)

    def fork(self, name=None):
        other = super().fork(name)
        self.cache.lock(other.prefix)
        return other

    def release(self):
        super().release()
        self.cache.unlock(self.prefix)
