"""What happened to the blocks of a pool, event by event, and how all of it looked at any moment."""

import json
from collections import Counter
from dataclasses import dataclass, field
from string import ascii_uppercase

KINDS = ("born", "allocated", "shared", "copied", "left", "freed", "length", "ended", "mark")


@dataclass
class Moment:
    """Blocks and tables after some events. ``tables``: name -> blocks; ``lengths``: name -> tokens."""

    num_blocks: int
    block_size: int
    tables: dict = field(default_factory=dict)
    lengths: dict = field(default_factory=dict)
    event: tuple = ()  # the last one
    mark: str = ""  # the last one's text
    born: list = field(default_factory=list)  # names of all tables so far

    def counts(self):
        """Owners of each block that has any -> Counter."""
        return Counter(block for blocks in self.tables.values() for block in blocks)

    def filled(self):
        """Tokens in each block that has an owner -> dict."""
        tokens = {}
        for name, blocks in self.tables.items():
            for place, block in enumerate(blocks):
                inside = min(max(self.lengths[name] - place * self.block_size, 0), self.block_size)
                tokens[block] = max(tokens.get(block, 0), inside)
        return tokens

    def waste(self):
        """Slots of held blocks in which no token lies -> int."""
        return sum(self.block_size - tokens for tokens in self.filled().values())

    def apply(self, event):
        kind, name, *rest = self.event = tuple(event)
        if kind == "mark":
            self.mark = name
        elif kind == "born":
            self.tables[name], self.lengths[name] = [], 0
            if name not in self.born:
                self.born.append(name)
        elif kind in ("allocated", "shared"):
            self.tables[name].append(rest[0])
        elif kind == "copied":
            old, new = rest
            self.tables[name][self.tables[name].index(old)] = new
        elif kind in ("left", "freed"):
            self.tables[name].remove(rest[0])
        elif kind == "length":
            self.lengths[name] = rest[0]
        else:  # ended
            del self.tables[name], self.lengths[name]


class Log:
    """Events of one pool: give it to ``pool.log`` before the first table is made.

    An event is (kind, table's name, block or blocks or length); or ("mark", text), set by whoever wants to
    say what comes next. ``text()`` and ``from_text`` store it as JSON.
    """

    def __init__(self, num_blocks, block_size, events=()):
        self.num_blocks, self.block_size, self.events = num_blocks, block_size, list(map(tuple, events))
        self._born = 0
        self._names = set()  # of the tables that there are

    @classmethod
    def of(cls, pool):
        """A new log, attached to the pool, which nobody may have used yet."""
        if pool.num_free != pool.num_blocks:
            raise ValueError("some blocks are in use already: attach a log to a fresh pool")
        pool.log = cls(pool.num_blocks, pool.block_size)
        return pool.log

    def born(self, table):
        """A table without a name gets the next letter that none has. ValueError for a name taken."""
        if table.name in self._names:
            raise ValueError(f"there is a table called {table.name} already")
        while table.name is None or table.name in self._names:
            turn, letter = divmod(self._born, len(ascii_uppercase))
            table.name = ascii_uppercase[letter] + (str(turn) if turn else "")
            self._born += 1
        self._names.add(table.name)
        self.note(table, "born")

    def note(self, table, kind, *numbers):
        if table.name not in self._names:
            raise ValueError("this table is older than the log: attach a log before the first table is made")
        if kind == "ended":
            self._names.remove(table.name)
        self.events.append((kind, table.name, *numbers))

    def mark(self, text):
        self.events.append(("mark", text))

    def marks(self):
        """Where the marks are, as numbers of events up to and with each -> list of int."""
        return [number for number, event in enumerate(self.events, 1) if event[0] == "mark"]

    def at(self, number):
        """After the first ``number`` events -> Moment."""
        if not 0 <= number <= len(self.events):
            raise ValueError(f"there are {len(self.events)} events; asked was for the state after {number}")
        moment = Moment(self.num_blocks, self.block_size)
        for event in self.events[:number]:
            moment.apply(event)
        return moment

    def text(self):
        """As JSON, an array a kind of event short -> str."""
        events = [[KINDS.index(kind), *rest] for kind, *rest in self.events]
        return json.dumps([self.num_blocks, self.block_size, events], separators=(",", ":"))

    @classmethod
    def from_text(cls, text):
        num_blocks, block_size, events = json.loads(text)
        return cls(num_blocks, block_size, [(KINDS[kind], *rest) for kind, *rest in events])
