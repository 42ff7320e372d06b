"""A prefix cache without a tree: each full block is found by what stands in it and before it.

(As vLLM's automatic prefix caching does. There a block's name is a hash of its tokens and of the name of the
block before; here it is the pair itself, which a dict compares after it has hashed it: two texts whose hashes
meet stay two.)
"""

from collections import Counter, OrderedDict
from itertools import count

from kvlab.paging.pool import require
from kvlab.paging.prefix import TOKEN, Prefix, check_count, check_filled, packed


class Stored:
    """A full block. ``key``: (the number of the one before it, its tokens). Before the first one is a root,
    which has no parent and is stored nowhere; its number is the namespace.
    """

    __slots__ = ("block", "key", "locks", "number", "parent", "users")

    def __init__(self, parent, key, block, number, locks=0):
        self.parent, self.key, self.block, self.locks = parent, key, block, locks
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
        end = self._root(namespace)
        found = self._found(end, packed(tokens, self.pool.block_size, most))
        length = len(found) * self.pool.block_size
        self.tokens_asked += len(tokens)
        self.tokens_found += length
        return Prefix(length, [each.block for each in found], found[-1] if found else end)

    def peek(self, tokens, namespace=None):
        """How many tokens ``match`` would find -> int."""
        run = packed(tokens, self.pool.block_size)
        return len(self._found(self._root(namespace), run)) * self.pool.block_size

    def lock(self, prefix):
        """Somebody uses it: nothing of it is evicted. ValueError where some of it has been since."""
        if not self._is_stored(prefix.place):
            raise ValueError(f"some of these {prefix.tokens} tokens were evicted since: match again")
        prefix.place.users += 1
        self._use(prefix.place)

    def unlock(self, prefix):
        """ValueError where nobody has it locked."""
        each, idle = self._locked_end_of(prefix), []
        each.users -= 1
        while each.parent is not None:
            each.locks -= 1
            if not each.locks:
                idle.append(each.block)
                self._idle[each.number] = each
            each = each.parent
        self.pool.release_all(idle, known=True)

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
        start = self._root(namespace) if after is None else self._locked_end_of(after)
        run = packed(tokens, self.pool.block_size)[: len(blocks) * self._step]
        found = self._found(start, run)
        new = self.pool.numbers(blocks[len(found) :])
        self.pool.keep_all(new, known=True)
        known = end = found[-1] if found else start
        for at, block in enumerate(new, len(found)):
            key = end.number, run[at * self._step : (at + 1) * self._step]
            end = Stored(end, key, block, next(self._numbers), locks=int(after is not None))
            self._stored[key] = end
        its = [each.block for each in found]
        if after is None:
            self._rest(end)
        else:
            self._use(known, start)
            self.pool.release_all([mine for mine, kept in zip(blocks, its, strict=False) if mine == kept])
            start.users -= 1
            end.users += 1
        length = (after.tokens if after else 0) + len(blocks) * self.pool.block_size
        return Prefix(length, its + new, end)

    def evict(self, n):
        """Give up to ``n`` blocks back to the pool -> how many became free."""
        check_count(n)
        free = self.pool.num_free
        while self._idle and (short := n - (self.pool.num_free - free)) > 0:
            gone = [self._idle.popitem(last=False)[1] for _ in range(min(short, len(self._idle)))]
            for each in gone:
                del self._stored[each.key]
            self.pool.drop_all([each.block for each in gone], known=True)
            self.blocks_evicted += len(gone)
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
            fits = key == (each.parent.number, each.key[1]) == each.key and len(key[1]) == self._step
            require(fits, "a block stands under another's tokens")
            require(self.pool.cached(each.block), f"block {each.block} is stored, and may be given away")
            require((each.number in places) == (each.locks == 0), "a block is idle and locked, or neither")
            require(each.locks == each.users + further[each.number], "a lock does not reach the beginning")
            require(not each.locks or self.pool.count(each.block), "a locked block has no owner")
            if before is not None:
                require(before in numbers, "a block is stored, and the one before it is not")
                if before in places:
                    require(places[each.number] < places[before], "a beginning would go before its end")

    def _root(self, namespace):
        return Stored(None, None, None, (type(namespace), namespace))

    def _found(self, end, run):
        """What is stored of a run behind an end -> list of Stored."""
        found, step = [], self._step
        for at in range(0, len(run), step):
            end = self._stored.get((end.number, run[at : at + step]))
            if end is None:
                break
            found.append(end)
        return found

    def _is_stored(self, end):
        """So is all that stands before it, then."""
        return end.parent is None or self._stored.get(end.key) is end

    def _locked_end_of(self, prefix):
        end = prefix.place
        if not end.users or not self._is_stored(end):
            raise ValueError(f"nobody has this prefix of {prefix.tokens} tokens locked: lock it first")
        return end

    def _use(self, end, start=None):
        """Lock everything from an end up to a start, or to the beginning."""
        idle = []
        while end is not start and end.parent is not None:
            if not end.locks:
                idle.append(end.block)
                del self._idle[end.number]
            end.locks += 1
            end = end.parent
        self.pool.share_all(idle, known=True)

    def _rest(self, end):
        """Up to the beginning, those that nobody has locked are the last to go."""
        while end.parent is not None:
            if not end.locks:
                self._idle[end.number] = end
                self._idle.move_to_end(end.number)
            end = end.parent
