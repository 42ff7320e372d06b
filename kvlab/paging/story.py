"""What a radix tree looked like after each operation, and in words what that did."""

from array import array
from dataclasses import dataclass, replace

from kvlab.paging.pool import OutOfBlocks
from kvlab.paging.prefix import TOKEN
from kvlab.paging.prefix_table import PrefixTable

QUOTED = 40  # characters of a text, in a sentence about it


@dataclass(frozen=True)
class Run:
    """A node of the tree at one moment, or what was just evicted of one. A root has no blocks.

    ``marks`` say what the operation did with it: "found", "new", "split", "evicted". Of the ``locks`` on it,
    those of the story's requests have names: ``locked``. ``places``: numbers of where it begins and of where
    each of its blocks ends; the same text up to there has the same number.
    """

    namespace: object
    tokens: tuple
    words: tuple  # the texts of these tokens
    blocks: tuple
    places: tuple
    locks: int
    locked: tuple
    hits: int
    used: int
    priority: float
    parent: int | None = None  # its place among the moment's runs
    marks: tuple = ()
    new: int = 0  # so many of its blocks, the last ones
    next: bool = False  # is its last block what would be evicted next?


@dataclass(frozen=True)
class Beside:
    """What a request has outside the tree: blocks that are not full, or not stored yet."""

    name: str
    words: tuple
    blocks: tuple


@dataclass(frozen=True)
class TreeMoment:
    """The tree after an operation, and in words what that did. ``runs`` go down path after path.

    ``tables``: the blocks of each request that runs. ``born``: all requests so far. asked, found: tokens of
    all matches so far; evicted: blocks.
    """

    said: str
    runs: tuple
    block_size: int
    free: int
    held: int
    kept: int
    asked: int
    found: int
    evicted: int
    tables: dict
    beside: tuple
    born: tuple


class Story:
    """Requests that use a :class:`RadixTree`, and the tree after each operation: ``moments``.

    A request locks what is found of its text, computes and stores the rest, and ends. The first moment is
    the tree as it is given. spell: ids -> their texts, as ``tokenizer.pieces`` does; without it there are the
    ids. Until the story is told nobody else may use the tree.
    """

    def __init__(self, tree, spell=None):
        self.tree, self.spell = tree, spell or (lambda ids: [f"{i} " for i in ids])
        self.tables, self.texts, self.born = {}, {}, ()  # tables, texts: of those that run, by their names
        self._places, self.moments = {}, []
        size = many(tree.num_blocks, "block")
        said = f"There is a tree of {size}." if tree.num_blocks else "The tree is empty."
        self._record(said, self._look())

    @property
    def evictable(self):
        """How many blocks ``evict`` could make free -> int."""
        idle = [run for run in self._look().values() if not run.locks]
        return sum(not self.tree.pool.count(block) for run in idle for block in run.blocks)

    def request(self, name, tokens, namespace=None, most=None):
        """Lock the longest stored beginning of a text -> PrefixTable.

        most: tokens of it at most. Unless given, all but the last, which is computed again since its logits
        are not stored. Raises ValueError for the name of one that runs.
        """
        if name in self.tables:
            raise ValueError(f"{name} runs: let it end first, or take another name")
        tokens, before = list(tokens), self._look()
        table = PrefixTable(self.tree, tokens, namespace, len(tokens) - 1 if most is None else most, name)
        self.tables[name], self.texts[name] = table, tokens
        self.born = tuple(dict.fromkeys([*self.born, name]))
        rest = len(tokens) - table.found
        said = f"{name} asks for {many(len(tokens), 'token')}: {table.found} found, {rest} to compute."
        self._record(said, before, self._path(table))
        return table

    def store(self, name, tokens=None, priority=0):
        """What is missing of a request's text is computed, and its full blocks go to the tree.

        tokens: the text so far, such as prompt and answer; unless given, what was asked for. Where too few
        blocks are free, some are evicted first. priority: what is new with a higher one is evicted later.
        Raises OutOfBlocks where not enough can be evicted, and ValueError for another text; nothing happens
        then.
        """
        table, pool = self._running(name), self.tree.pool
        tokens = self.texts[name] if tokens is None else list(tokens)
        if tokens[: table.length] != self.texts[name][: table.length]:
            raise ValueError(f"{name} has {many(table.length, 'token')} already, and this text has others")
        n, known = len(tokens) - table.length, table.prefix.tokens
        needed, before = table.needed(n), self._look()
        if needed > pool.num_free + self.evictable:
            raise OutOfBlocks(pool.shortage(needed))
        evicted = self.tree.evict(max(needed - pool.num_free, 0))
        left = self._look()
        table.reserve(n)
        table.advance(n)
        table.store(tokens, priority)
        self.texts[name] = tokens
        new = len(ends(self._look()) - ends(left))
        there = (table.prefix.tokens - known) // pool.block_size - new
        said = f"{name} computes {many(n, 'token')}: {many(new, 'block')} new in the tree"
        if there:
            was = "was" if there == 1 else "were"
            said += f", {many(there, 'block')} {was} there already (its own copy is let go)"
        if rest := table.length - table.prefix.tokens:
            said += f", {many(rest, 'token')} in a block that is not full"
        first = f"{many(evicted, 'block')} evicted to make room. " if evicted else ""
        found = [node for node in self._path(table) if node.end * pool.block_size > known]
        self._record(f"{first}{said}.", left, found if there else (), gone(before, left))

    def end(self, name):
        """A request lets go of all that it has. ValueError where none of this name runs."""
        table, pool, before = self._running(name), self.tree.pool, self._look()
        kept, free, stored = pool.num_kept, pool.num_free, table.prefix.tokens
        del self.tables[name], self.texts[name]
        table.release()
        kept, free = pool.num_kept - kept, pool.num_free - free
        said = []
        if kept:
            now = "has no owner now and is" if kept == 1 else "have no owner now and are"
            said.append(f"{many(kept, 'block')} {now} kept")
        elif stored:
            said.append("others have locked all that it had in the tree")
        if free:
            said.append(f"{many(free, 'block')} outside the tree {'is' if free == 1 else 'are'} free")
        self._record(f"{name} ends: {'; '.join(said) or 'it had nothing'}.", before)

    def evict(self, n=1):
        """Give up to n blocks back to the pool -> how many became free."""
        before = self._look()
        freed = self.tree.evict(n)
        went = gone(before, self._look())
        texts = [run.words for run in went if run.blocks]
        if not texts:
            why = "all that is in the tree is locked" if self.tree.num_blocks else "the tree is empty"
            said = f"Nothing is evicted: {why}." if n else "Nothing is to be evicted."
        elif len(texts) == 1:
            said = f"{many(freed, 'block')} evicted: {quoted(texts[0])}."
        else:
            said = f"{many(freed, 'block')} evicted, from the ends of {len(texts)} runs."
        self._record(said, before, gone=went)
        return freed

    def _running(self, name):
        if name not in self.tables:
            others = ", ".join(map(str, self.tables))
            raise ValueError(f"no request {name} runs; {f'there are {others}' if others else 'none does'}")
        return self.tables[name]

    def _path(self, table):
        """The nodes that a table's lock is on, from its end up to the root."""
        node, path = table.prefix.place, []
        node = self.tree.roots.get(node.namespace, node)
        while node is not None:
            path.append(node)
            node = node.parent
        return path

    def _look(self):
        """{node: Run} as the tree is now, path after path, without parents and marks."""
        seen, names, step = {}, {}, self.tree.pool.block_size * TOKEN
        for name, table in self.tables.items():
            for node in self._path(table):
                names.setdefault(node, []).append(name)
        nodes = [(root, None, key[1]) for key, root in reversed(self.tree.roots.items())]
        while nodes:
            node, before, namespace = nodes.pop()
            places = [self._place(before, node.namespace)] if before is None else [before]
            for at in range(0, len(node.key), step):
                places.append(self._place(places[-1], node.key[at : at + step]))
            tokens = array("i", node.key).tolist()
            seen[node] = Run(
                namespace,
                tuple(tokens),
                self._spelled(tokens),
                tuple(node.blocks),
                tuple(places),
                node.locks,
                tuple(names.get(node, ())),
                node.hits,
                node.used,
                node.priority,
            )
            nodes += [(child, places[-1], namespace) for child in reversed(node.children.values())]
        return seen

    def _place(self, before, what):
        return self._places.setdefault((before, what), len(self._places))

    def _spelled(self, tokens):
        words = tuple(self.spell(tokens))
        if len(words) != len(tokens):
            raise ValueError(f"spell gives {len(words)} texts for {len(tokens)} tokens: give one for each")
        return words

    def _record(self, said, before, found=(), gone=()):
        """The tree as it is now; before: what it looked like, found, gone: what the operation did."""
        pool, now = self.tree.pool, self._look()
        hosts = {place: node for node, run in now.items() for place in run.places[1:]}
        known, split = ends(before), set()
        for run in before.values():
            parts = {hosts[place] for place in run.places[1:] if place in hosts}
            split |= parts if len(parts) > 1 else set()
        idle = [node for node, run in now.items() if run.blocks and not (node.children or node.locks)]
        first = min(idle, key=lambda node: (node.priority, node.used), default=None)
        runs = []
        for node, run in now.items():
            new = len([place for place in run.places[1:] if place not in known])
            is_so = {"found": run.blocks and node in found, "new": new, "split": node in split}
            marks = tuple(mark for mark, so in is_so.items() if so)
            runs.append(replace(run, marks=marks, new=new, next=node is first))
        beside = []
        for name, table in self.tables.items():
            stored = table.prefix.tokens
            if blocks := table.blocks[stored // pool.block_size :]:
                words = self._spelled(self.texts[name][stored : table.length])
                beside.append(Beside(name, words, tuple(blocks)))
        numbers = pool.block_size, pool.num_free, pool.num_held, pool.num_kept
        counts = self.tree.tokens_asked, self.tree.tokens_found, self.tree.blocks_evicted
        tables = {name: tuple(table.blocks) for name, table in self.tables.items()}
        ordered = in_order([*runs, *gone])
        self.moments.append(TreeMoment(said, ordered, *numbers, *counts, tables, tuple(beside), self.born))


def ends(seen):
    """Where blocks end: they tell two looks at a tree apart."""
    return {place for run in seen.values() for place in run.places[1:]}


def gone(before, after):
    """The ends of runs that are no longer there, and roots that nothing hangs on -> [Run]."""
    left, went = {place for run in after.values() for place in run.places}, []
    for run in before.values():
        stay = sum(place in left for place in run.places[1:])
        if stay < len(run.blocks) or run.places[0] not in left:
            first = stay * (len(run.tokens) // max(len(run.blocks), 1))
            parts = {"tokens": run.tokens[first:], "words": run.words[first:], "blocks": run.blocks[stay:]}
            went.append(replace(run, **parts, places=run.places[stay:], marks=("evicted",)))
    return went


def in_order(runs):
    """Each behind the run that it goes on from, and what goes on from it before what else does -> tuple."""
    owners, after, ordered = {}, {}, []
    for number, run in enumerate(runs):
        for place in run.places[1:] or run.places:
            owners.setdefault(place, number)
    for number, run in enumerate(runs):
        after.setdefault(owners[run.places[0]] if run.blocks else None, []).append(number)
    stack = [(None, number) for number in reversed(after[None])] if runs else []
    while stack:
        parent, number = stack.pop()
        stack += [(len(ordered), child) for child in reversed(after.get(number, ()))]
        ordered.append(replace(runs[number], parent=parent))
    return tuple(ordered)


def quoted(words):
    text = " ".join("".join(words).split())
    return f"“{text if len(text) <= QUOTED else text[: QUOTED - 1] + '…'}”"


def many(count, one):
    return f"{count:,} {one}{'' if count == 1 else 's'}"
