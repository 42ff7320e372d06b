"""A radix tree: which runs of tokens are stored, and in which blocks.

(RadixAttention, Zheng et al. 2024, section 3.) Every loop goes down a path or up one, and nothing recurs: a
path may be a million tokens long.
"""

from heapq import heappop, heappush
from itertools import count
from math import inf

from kvlab.paging.pool import require
from kvlab.paging.prefix import TOKEN, Prefix, check_count, check_filled, packed

GONE = -1  # where a run ends that is no longer in the tree


class Node:
    """A run of whole blocks, and where it ends: ``end`` blocks from the root."""

    __slots__ = ("blocks", "children", "end", "hits", "key", "locks", "namespace", "parent", "priority")
    __slots__ += ("queued", "used", "users")

    def __init__(self, parent, key, blocks, end, namespace=None):
        self.parent, self.key, self.blocks, self.end = parent, key, blocks, end
        self.namespace = namespace  # of a root
        self.children = {}  # the tokens of a child's first block -> child
        self.locks = self.hits = self.used = 0
        self.priority = -inf  # until something is inserted
        self.users = 0  # locks that end here; the others end further down
        self.queued = False  # does it stand in the heap of those that may be evicted?


class RadixTree:
    """Texts that begin alike share their beginning, in whole blocks of the pool.

    What lies in the tree is *kept*: its blocks stay when their last owner lets them go, until they are
    evicted. Whoever uses a prefix locks it, from its end up to the root; as long as anybody does, the tree
    is an owner of its blocks. Evicted is only what nobody has locked, from the ends of the paths: the least
    important first, and of these the least recently used.

    ``num_blocks`` lie in it. ``tokens_asked`` and ``tokens_found`` count over all matches, ``blocks_evicted``
    over all evictions.
    """

    def __init__(self, pool):
        self.pool, self.roots = pool, {}
        self.num_blocks = self.tokens_asked = self.tokens_found = self.blocks_evicted = 0
        self._step = pool.block_size * TOKEN  # bytes of a block's tokens
        self._clock, self._ties = count(1), count()
        self._heap = []  # (priority, last use, tie, node) of leaves that nobody has locked; some are outdated

    def match(self, tokens, namespace=None, most=None):
        """The longest beginning of tokens [T] that is stored, in whole blocks -> :class:`Prefix`.

        most: tokens of it at most. It counts as used; lock it before anything else happens to the tree.
        """
        root = self._root(namespace)
        node, blocks = self._walk(root, packed(tokens, self.pool.block_size, most))
        node.used = next(self._clock)
        length = len(blocks) * self.pool.block_size
        self.tokens_asked += len(tokens)
        self.tokens_found += length
        return Prefix(length, blocks, node)

    def peek(self, tokens, namespace=None):
        """How many tokens ``match`` would find; nothing changes -> int."""
        return self._found(self._root(namespace), packed(tokens, self.pool.block_size)) // TOKEN

    def lock(self, prefix):
        """Somebody uses it: nothing of it is evicted. ValueError where its path has changed since."""
        node = self._end_of(prefix)
        node.users += 1
        while node is not None:
            if not node.locks:
                self.pool.share_all(node.blocks, known=True)
            node.locks += 1
            root, node = node, node.parent
        self.roots.setdefault(root.namespace, root)

    def unlock(self, prefix):
        """ValueError where nobody has it locked."""
        node = self._locked_end_of(prefix)
        self._maybe_evictable(node, 1)
        node.users -= 1
        while node is not None:
            node.locks -= 1
            if not node.locks:
                self.pool.release_all(node.blocks, known=True)
            root, node = node, node.parent
        self._maybe_empty(root)

    def insert(self, tokens, blocks, namespace=None, after=None, priority=0):
        """Blocks hold the keys and values of these tokens -> :class:`Prefix`, with the tree's blocks.

        They are whole blocks from the root on, of which the caller is and stays an owner; or, behind a prefix
        ``after`` that the caller has locked: the lock then moves on to the end of the new one, and of blocks
        that are now the tree's it is the owner in the caller's place. Where it has such tokens already it
        keeps its own blocks: use those, and let go of yours.
        priority: what is inserted with a higher one is evicted later. Raises ValueError, the tree unchanged,
        for tokens that do not fill the blocks, and blocks that hold something else in it or have no owner.
        """
        check_filled(tokens, blocks, self.pool.block_size)
        start = self._root(namespace) if after is None else self._locked_end_of(after)
        run = packed(tokens, self.pool.block_size)[: len(blocks) * self._step]
        new = self.pool.numbers(blocks[self._found(start, run) // self._step :])
        self.pool.keep_all(new, known=True)
        node, found = self._walk(start, run)
        if new:
            own = node is start and priority >= node.priority
            node = self._append(node, run[len(found) * self._step :], new, own)
        node.priority, node.used = max(node.priority, priority), next(self._clock)
        if after is not None:
            self._move_lock(start, node, len(new))
            self.pool.release_all([mine for mine, its in zip(blocks, found, strict=False) if mine == its])
        self._maybe_evictable(node)
        return Prefix(node.end * self.pool.block_size, found + new, node)

    def evict(self, n):
        """Give up to ``n`` blocks back to the pool -> how many became free."""
        check_count(n)
        free = self.pool.num_free
        while self._heap and (short := n - (self.pool.num_free - free)) > 0:
            priority, used, _, node = heappop(self._heap)
            node.queued = False
            if node.children or node.locks:
                continue
            if (node.priority, node.used) != (priority, used):
                self._maybe_evictable(node)  # used since it was put there: it goes back to its new place
                continue
            self._cut(node, min(short, len(node.blocks)))
        return self.pool.num_free - free

    @property
    def owned(self):
        """The blocks that it is an owner of: all that are locked -> list."""
        nodes, owned = list(self.roots.values()), []
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            owned += node.blocks if node.locks else []
        return owned

    def check(self):
        """Verify every invariant. AssertionError names the broken one."""
        seen = []
        for root in self.roots.values():
            stack = [root]
            while stack:
                node = stack.pop()
                stack += node.children.values()
                seen += node.blocks
                size = len(node.blocks)
                require(len(node.key) == size * self._step, "a run's tokens do not fill its blocks")
                require(bool(size) == (node is not root), "a run is empty, or a root is not")
                for first, child in node.children.items():
                    require(child.parent is node, "a child has another parent")
                    require(child.key[: self._step] == first, "a child stands under other tokens")
                    require(child.end == node.end + len(child.blocks), "a run ends elsewhere than it says")
                below = sum(child.locks for child in node.children.values())
                require(node.locks == node.users + below, "a lock does not reach the root")
                if not node.children and not node.locks and node is not root:
                    require(node.queued, "a leaf that nobody has locked cannot be evicted")
                if node.locks:
                    owned = all(self.pool.count(block) for block in node.blocks)
                    require(owned, "a locked run has blocks without an owner")
        require(len(seen) == len(set(seen)) == self.num_blocks, "a block stands in the tree twice, or not")
        for block in seen:
            require(self.pool.cached(block), f"block {block} is in the tree, and the pool may give it away")

    def _root(self, namespace):
        """Of a new namespace it is not among the roots until something hangs on it, or it is locked."""
        key = type(namespace), namespace
        return self.roots.get(key) or Node(None, b"", [], 0, key)

    def _end_of(self, prefix):
        node = prefix.place
        if node.namespace:
            return self.roots.get(node.namespace, node)
        if node.end * self.pool.block_size != prefix.tokens:
            raise ValueError(f"the path of these {prefix.tokens} tokens has changed since: match again")
        return node

    def _locked_end_of(self, prefix):
        node = self._end_of(prefix)
        if not node.users:
            raise ValueError(f"nobody has this prefix of {prefix.tokens} tokens locked: lock it first")
        return node

    def _found(self, node, run):
        """How many bytes of a run are stored from a node down -> int."""
        at = 0
        while at < len(run):
            child = node.children.get(run[at : at + self._step])
            if child is None:
                break
            if not run.startswith(child.key, at):
                return at + self._common(run, at, child.key) * self._step
            node, at = child, at + len(child.key)
        return at

    def _walk(self, node, run):
        """From a node down as far as the run's tokens go -> (node, blocks on the way).

        A run of the tree that goes on differently, or goes on at all, is split there.
        """
        at, end, step, blocks = 0, len(run), self._step, []
        while at < end:
            child = node.children.get(run[at : at + step])
            if child is None:
                break
            if not run.startswith(child.key, at):
                child = self._split(child, self._common(run, at, child.key))
            node = child
            node.hits += 1
            blocks += node.blocks
            at += len(node.key)
        return node, blocks

    def _common(self, run, at, key):
        """Whole blocks that a key shares with a run from a place on; the first they do."""
        low, high, step = 1, min(len(key), len(run) - at) // self._step, self._step
        while low < high:
            middle = (low + high + 1) // 2
            if run.startswith(key[low * step : middle * step], at + low * step):
                low = middle
            else:
                high = middle - 1
        return low

    def _split(self, node, size):
        """Cut a run after so many blocks -> the upper part, a new node; the lower one ends where it ended."""
        cut, parent = size * self._step, node.parent
        rest = node.blocks[size:]
        del node.blocks[size:]
        upper = Node(parent, node.key[:cut], node.blocks, parent.end + size)
        upper.locks, upper.hits, upper.used, upper.priority = node.locks, node.hits, node.used, node.priority
        node.parent, node.key, node.blocks = upper, node.key[cut:], rest
        parent.children[upper.key[: self._step]] = upper
        upper.children[node.key[: self._step]] = node
        return upper

    def _append(self, node, run, blocks, own):
        """A new run behind a node -> the node at its end. A leaf that is the caller's own grows instead."""
        self.num_blocks += len(blocks)
        if own and node.parent is not None and not node.children and node.locks == 1:
            node.key += run
            node.blocks += blocks
            node.end += len(blocks)
            return node
        child = Node(node, run, blocks, node.end + len(blocks))
        node.children[run[: self._step]] = child
        if node.namespace:
            self.roots[node.namespace] = node
        return child

    def _move_lock(self, start, node, new):
        """From a node down to another. The last ``new`` blocks come with their owner."""
        start.users -= 1
        node.users += 1
        while node is not start:
            if not node.locks and not new:
                self.pool.share_all(node.blocks, known=True)
            node.locks, new = node.locks + 1, 0
            node = node.parent

    def _maybe_evictable(self, node, locks=0):
        """Put a leaf on which no more than these locks are where evict looks."""
        if node.locks == locks and not node.children and node.parent is not None and not node.queued:
            node.queued = True
            heappush(self._heap, (node.priority, node.used, next(self._ties), node))

    def _cut(self, node, size):
        """Take the last blocks from a leaf, and with all of them the leaf from its parent."""
        if size < len(node.blocks):
            self._split(node, len(node.blocks) - size)
        self.pool.drop_all(node.blocks, known=True)
        self.num_blocks -= size
        self.blocks_evicted += size
        parent = node.parent
        del parent.children[node.key[: self._step]]
        node.parent, node.end = None, GONE
        # Whoever used it used its parent, and wanted that as much.
        parent.used, parent.priority = max(parent.used, node.used), max(parent.priority, node.priority)
        self._maybe_evictable(parent)
        self._maybe_empty(parent)

    def _maybe_empty(self, root):
        """Forget the namespace of a root that nothing hangs on."""
        if root.namespace and not root.children and not root.locks:
            del self.roots[root.namespace]
