"""A prefix cache without a tree: each full block is found by what stands in it and before it.

(As vLLM's automatic prefix caching does. There a block's name is a hash of its tokens and of the name of the
block before; here it is the pair itself, which a dict compares after it has hashed it: two texts whose hashes
meet stay two.)
"""

from collections import Counter, OrderedDict
from itertools import count
from operator import index

from kvlab.paging.pool import require
from kvlab.paging.prefix import TOKEN, Prefix, check_count, check_filled, packed


class Stored:
    """A full block. ``key``: (what stands before it, its tokens); that is a number, or the namespace."""

    __slots__ = ("block", "key", "locks", "number", "users")

    def __init__(self, key, block, number):
        self.key, self.block, self.locks = key, block, 0
        self.users = 0  # locks that end here; the others end further on
        self.number = number  # never given again: what stood in the block earlier had another


class BlockHashes:
    """Full blocks, each found by the block before it and its tokens.

    What is stored is *kept*: it stays when its last owner lets it go, until it is evicted: what was unlocked
    longest ago goes first, and of one text the end before the beginning. Whoever uses a prefix locks it; as
    long as anybody does, the cache is an owner of its blocks.

    ``num_blocks`` are stored. ``tokens_asked`` and ``tokens_found`` count over all matches,
    ``blocks_evicted`` over all evictions.
    """

    def __init__(self, pool):
        self.pool = pool
        self.tokens_asked = self.tokens_found = self.blocks_evicted = 0
        self._step, self._numbers = pool.block_size * TOKEN, count()
        self._stored = {}  # key -> Stored
        self._idle = OrderedDict()  # number -> Stored that nobody has locked, the first to go first

    @property
    def num_blocks(self):
        return len(self._stored)

    def match(self, tokens, namespace=None, most=None):
        """The longest beginning of tokens [T] that is stored, in whole blocks -> :class:`Prefix`.

        most: tokens of it at most. Lock it before anything else happens.
        """
        sought = tokens if most is None else tokens[: max(most, 0)]
        chain = self._chain(sought, (type(namespace), namespace))
        self.tokens_asked += len(tokens)
        self.tokens_found += len(chain) * self.pool.block_size
        return self._prefix(chain, 0, (type(namespace), namespace))

    def peek(self, tokens, namespace=None):
        """How many tokens ``match`` would find -> int."""
        return len(self._chain(tokens, (type(namespace), namespace))) * self.pool.block_size

    def lock(self, prefix):
        """Somebody uses it: nothing of it is evicted. ValueError where some of it has been since."""
        for each in prefix.place[0]:
            if self._stored.get(each.key) is not each:
                raise ValueError(f"some of these {prefix.tokens} tokens were evicted since: match again")
        self._use(prefix.place[0])
        self._add_user(prefix.place[0], 1)

    def unlock(self, prefix):
        """ValueError where nobody has it locked."""
        self._check_locked(prefix)
        self._add_user(prefix.place[0], -1)
        for each in prefix.place[0]:
            each.locks -= 1
        self.pool.release_all([each.block for each in prefix.place[0] if not each.locks])
        self._rest(prefix.place[0])

    def insert(self, tokens, blocks, namespace=None, after=None, priority=0):
        """Blocks hold the keys and values of these tokens -> :class:`Prefix`, with the stored blocks.

        They are whole blocks from the text's beginning on, of which the caller is and stays an owner; or,
        behind a prefix ``after`` that the caller has locked: the lock then holds for the new one, and of
        blocks that are now stored the cache is the owner in the caller's place. Where there are such tokens
        already, their blocks stay: use those, and let go of yours. Raises ValueError, nothing stored, for
        tokens that do not fill the blocks, and blocks that hold something else or have no owner. There are no
        priorities here.
        """
        check_filled(tokens, blocks, self.pool.block_size)
        if after is None:
            before, home = [], (type(namespace), namespace)
        else:
            self._check_locked(after)
            before, home = after.place
        run = packed(tokens, self.pool.block_size)[: len(blocks) * self._step]
        chain = self._chain(tokens[: len(blocks) * self.pool.block_size], home, before)
        known = chain[len(before) :]
        new = [index(block) for block in blocks[len(known) :]]
        self.pool.keep_all(new)
        for block in new:
            at = (len(chain) - len(before)) * self._step
            key = self._before(chain, home), run[at : at + self._step]
            chain.append(Stored(key, block, next(self._numbers)))
            self._stored[key] = chain[-1]
        if after is None:
            self._rest(chain)
        else:
            self._use(known)
            self.pool.release_all([b for b, each in zip(blocks, known, strict=False) if b == each.block])
            for each in chain[len(before) + len(known) :]:
                each.locks = 1
            self._add_user(before, -1)
            self._add_user(chain, 1)
        return self._prefix(chain, len(before), home)

    def evict(self, n):
        """Give up to ``n`` blocks back to the pool -> how many became free."""
        check_count(n)
        free = self.pool.num_free
        while self._idle and self.pool.num_free - free < n:
            _, each = self._idle.popitem(last=False)
            del self._stored[each.key]
            self.pool.drop(each.block)
            self.blocks_evicted += 1
        return self.pool.num_free - free

    @property
    def owned(self):
        """The blocks that it is an owner of: all that are locked -> list."""
        return [each.block for each in self._stored.values() if each.locks]

    def check(self):
        """Verify every invariant. AssertionError names the broken one."""
        numbers = {each.number: each for each in self._stored.values()}
        blocks = {each.block for each in numbers.values()}
        require(len(numbers) == len(blocks) == len(self._stored), "a block is stored twice")
        places = {number: place for place, number in enumerate(self._idle)}
        further = Counter()  # locks of those behind each
        for each in numbers.values():
            further[each.key[0]] += each.locks
        for key, each in self._stored.items():
            before = key[0] if isinstance(key[0], int) else None
            require(key == each.key and len(key[1]) == self._step, "a block stands under another's tokens")
            require(self.pool.cached(each.block), f"block {each.block} is stored, and may be given away")
            require((each.number in places) == (each.locks == 0), "a block is idle and locked, or neither")
            require(each.locks == each.users + further[each.number], "a lock does not reach the beginning")
            require(not each.locks or self.pool.count(each.block), "a locked block has no owner")
            if before is not None:
                require(before in numbers, "a block is stored, and the one before it is not")
                if before in places:
                    require(places[each.number] < places[before], "a beginning would go before its end")

    def _chain(self, tokens, home, before=()):
        """What is stored of the tokens behind a chain -> the chain, and that: a list of Stored."""
        run, chain = packed(tokens, self.pool.block_size), list(before)
        for at in range(0, len(run), self._step):
            each = self._stored.get((self._before(chain, home), run[at : at + self._step]))
            if each is None:
                break
            chain.append(each)
        return chain

    def _before(self, chain, home):
        return chain[-1].number if chain else home

    def _prefix(self, chain, given, home):
        """given: how many blocks the caller knew."""
        blocks = [each.block for each in chain[given:]]
        return Prefix(len(chain) * self.pool.block_size, blocks, (chain, home))

    def _use(self, chain):
        self.pool.share_all([each.block for each in chain if not each.locks])
        for each in chain:
            each.locks += 1
            self._idle.pop(each.number, None)

    def _rest(self, chain):
        """Those that nobody has locked are the last to go, the end of the chain before its beginning."""
        for each in reversed(chain):
            if not each.locks:
                self._idle[each.number] = each
                self._idle.move_to_end(each.number)

    def _add_user(self, chain, n):
        if chain:
            chain[-1].users += n

    def _check_locked(self, prefix):
        """Whoever has the end locked has all of it locked."""
        end = prefix.place[0][-1:]
        if any(self._stored.get(each.key) is not each or not each.users for each in end):
            raise ValueError(f"nobody has this prefix of {prefix.tokens} tokens locked: lock it first")
