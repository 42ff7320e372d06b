"""Prefix caches: step through what happened to a radix tree, and see how much is found of a workload."""

import html
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

import ipywidgets as widgets

from kvlab.engine import users as makers
from kvlab.exercises.questions import labelled
from kvlab.paging import BlockHashes, BlockPool, RadixTree, Replay
from kvlab.viz.memory import side_by_side
from kvlab.viz.prefix import rates_sheet, stops, tree_film, tree_sheet
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many

WORKLOADS = {
    "few-shot": lambda users, turn: makers.few_shot(4 * users, sets=8, question=turn),
    "chat": lambda users, turn: makers.chat(users, turn=turn),
    "agents": lambda users, turn: makers.agents(users, step=turn),
}
CACHES = {  # words, kind, and is what several texts begin with stored first, with a higher priority?
    "radix": ("radix tree, LRU", RadixTree, False),
    "priority": ("radix tree, priorities", RadixTree, True),
    "hash": ("block hashes, LRU", BlockHashes, False),
}
USERS, TURNS, SIZES = (2, 4, 8, 12, 16, 24), (10, 20, 40, 80), (8, 16, 32, 64, 128)
POOLS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # slots
AT_ONCE = 4  # requests
LISTED = 10  # operations, on a page that nobody runs


class RadixStepper(Shown):
    """A slider over the moments of a story, and a button that evicts a block of the tree.

    The button goes on with the story itself, from its end. at: the moment at which it begins. Raises
    ValueError for one that the story does not have.
    """

    def __init__(self, story, at=0):
        self.story, self.at = story, at
        if not 0 <= at <= self.last:
            raise ValueError(f"there is no moment {at}: the story has moments 0 to {self.last}")
        self.tallest = 0

    @property
    def last(self):
        return len(self.story.moments) - 1

    def table(self):
        """The first operations in words, and the pool's blocks after each."""
        columns = ["", "what happened", "tokens asked for", "found", "blocks held", "kept", "free"]
        rows = [
            [number, each.said, each.asked, each.found, each.held, each.kept, each.free]
            for number, each in enumerate(self.story.moments[: LISTED + 1])
        ]
        pool = self.story.tree.pool
        size = f"{many(pool.num_blocks, 'block')} of {many(pool.block_size, 'slot')}"
        said = many(self.last, "operation")
        if self.last > LISTED:
            said = f"The first {LISTED} of {said}"
        return Table(columns, rows, f"{said} on a radix tree in a pool of {size}")

    def text(self):
        return repr(self.table())

    def html(self):
        return self.table()._repr_html_()

    def static_figure(self):
        """Moments in which the tree changed -> Picture."""
        return tree_film(self.story, stops(self.story))

    def page(self, number):
        """The drawing of a moment, as HTML."""
        sheet = tree_sheet(self.story.moments[number], str(number))
        self.tallest = sheet.height = max(self.tallest, sheet.height)  # what is below does not jump
        return side_by_side([sheet.svg()])

    def widget(self):
        moment = widgets.IntSlider(
            value=self.at, min=0, max=self.last, description="moment", **controls.look(controls.WIDE)
        )
        ways = {
            "kv-previous": ("←", "one operation back", lambda at: max(at - 1, 0)),
            "kv-next": ("→", "one operation on", lambda at: min(at + 1, self.last)),
        }
        stepper = controls.stepper(labelled(moment, "kv-moment"), ways, self.page)
        play = widgets.Play(value=self.at, min=0, max=self.last, interval=1500, show_repeat=False)
        wide = {"width": "140px"}
        evict = widgets.Button(description="evict one block", tooltip="at the end of the story", layout=wide)
        left = labelled(widgets.HTML(), "kv-evictable")

        def show():
            evictable = self.story.evictable
            evict.disabled = not evictable
            why = "all that is in the tree is locked" if self.story.tree.num_blocks else "the tree is empty"
            left.value = f"{evictable:,} can go" if evictable else f"none can go: {why}"

        def press(_):
            self.story.evict(1)
            moment.max = play.max = self.last
            moment.value = self.last
            show()

        evict.on_click(press)
        show()
        labelled(play, "kv-play")
        row = stepper.children[0]
        row.children = [row.children[0], play, *row.children[1:], labelled(evict, "kv-evict"), left]
        stepper.links = widgets.jslink((play, "value"), (moment, "value"))
        return labelled(stepper, "kv-radix-stepper")


@dataclass(frozen=True)
class Hits:
    """Tokens of all prompts, those that were not computed, and blocks evicted."""

    asked: int
    saved: int
    evicted: int

    @property
    def rate(self):
        return self.saved / self.asked


class HitRateExplorer(Shown):
    """Sliders over a workload and a prefix cache: how many tokens of the prompts are found.

    workload: "few-shot", "chat" or "agents", of so many users, and turns of so many tokens on average. cache:
    "radix", "priority" or "hash"; slots: of its pool. Four requests run at a time.
    """

    def __init__(self, workload="chat", users=16, turn=40, block_size=16, slots=4096, cache="radix"):
        for name, known in ((workload, WORKLOADS), (cache, CACHES)):
            if name not in known:
                raise ValueError(f"{name!r} is not known: {', '.join(known)}")
        self.asked = workload, users, turn, block_size, slots, cache
        self.compute(*self.asked)

    def compute(self, workload, users, turn, block_size, slots, cache):
        """-> Hits. Raises ValueError where the pool is too small for one of the texts."""
        found = hits(workload, users, turn, block_size, slots, cache)
        if found is None:
            longest = max(len(prompt) + len(answer) for prompt, answer in texts(workload, users, turn))
            raise ValueError(
                f"the longest of these texts has {longest:,} tokens, and the pool {slots // block_size:,} "
                f"blocks of {block_size}: take more slots, or shorter turns"
            )
        return found

    def about(self, workload, users, turn, block_size, slots, cache):
        count = len(texts(workload, users, turn))
        pool = f"{many(slots, 'slot')} in blocks of {block_size}"
        return f"{workload}: {many(count, 'request')} of {many(users, 'user')}; {pool}; {CACHES[cache][0]}"

    def said(self, *asked):
        found = self.compute(*asked)
        return (
            f"{found.rate:.1%} of {many(found.asked, 'prompt token')} found: {found.saved:,} saved, "
            f"{found.asked - found.saved:,} computed."
        )

    def table(self, workload, users, turn, block_size, slots, _):
        """The caches beside each other."""
        rows = []
        for words, cache in ((words, cache) for cache, (words, *_) in CACHES.items()):
            found = self.compute(workload, users, turn, block_size, slots, cache)
            rows.append([words, f"{found.rate:.1%}", found.saved, found.asked - found.saved, found.evicted])
        columns = ["cache", "hit rate", "tokens saved", "computed", "blocks evicted"]
        pool = f"A pool of {many(slots // block_size, 'block')} of {block_size}"
        return Table(columns, rows, f"{pool}; what priorities store beforehand counts as computed")

    def sheet(self, workload, users, turn, block_size, slots, cache):
        """The hit rate against the slots of the pool -> Sheet."""
        setting = workload, users, turn, block_size
        found = {each: hits(*setting, each, cache) for each in sorted({*POOLS, slots})}
        rates = [(each, hit and hit.rate) for each, hit in found.items()]
        best, _ = replayed(*setting, None, cache)
        return rates_sheet(rates, slots, best.rate, self.about(*setting, slots, cache))

    def text(self):
        return f"{self.about(*self.asked)}\n{self.said(*self.asked)}\n{self.table(*self.asked)!r}"

    def html(self):
        return f"<p>{html.escape(self.about(*self.asked))}</p>{self.below(*self.asked)}"

    def below(self, *asked):
        """A sentence and the table, as HTML."""
        said = f'<b class="kv-hits" style="font-size: 16px">{html.escape(self.said(*asked))}</b>'
        return f"<p>{said}</p>{self.table(*asked)._repr_html_()}"

    def static_figure(self):
        """The first settings -> Picture."""
        return self.sheet(*self.asked).picture()

    def page(self, *asked, stale=""):
        """Drawing, sentence and table as HTML."""
        return side_by_side([self.sheet(*asked).svg()], self.below(*asked), stale=stale)

    def widget(self):
        workload, users, turn, block_size, slots, cache = self.asked
        names = [(words, name) for name, (words, *_) in CACHES.items()]
        fields = [
            controls.choice([(name, name) for name in WORKLOADS], workload, "workload", "kv-workload"),
            controls.slider({*USERS, users}, users, "users", "kv-users"),
            controls.slider({*TURNS, turn}, turn, "turn, mean", "kv-turn"),
            controls.slider({*SIZES, block_size}, block_size, "block size", "kv-block-size"),
            controls.slider({*POOLS, slots}, slots, "slots", "kv-slots"),
            controls.choice(names, cache, "cache", "kv-cache"),
        ]

        def ask():
            asked = tuple(field.value for field in fields)
            self.compute(*asked)
            return asked

        def page(asked, stale):
            return self.page(*asked, stale=stale)

        shown = controls.answered(fields, ask, page, self.asked)
        box = widgets.VBox([controls.columns(fields[:3], fields[3:]), shown])
        return labelled(box, "kv-hit-rate")


@lru_cache(maxsize=8)
def texts(workload, users, turn):
    """(prompt, answer)s in the order in which they come."""
    return makers.talk(WORKLOADS[workload](users, turn))


def hits(workload, users, turn, block_size, slots, cache):
    """-> Hits, or None where the pool is too small for one of the texts."""
    blocks, setting = slots // block_size, (workload, users, turn, block_size)
    longest = max(len(prompt) + len(answer) for prompt, answer in texts(workload, users, turn))
    each = -(-longest // block_size)
    if each > blocks:
        return None
    best, stored = replayed(*setting, None, cache)
    if blocks >= stored + AT_ONCE * each:
        return best  # such a pool is never full
    return replayed(*setting, blocks, cache)[0]


@lru_cache(maxsize=1024)
def replayed(workload, users, turn, block_size, blocks, cache):
    """blocks: of the pool, None for as many as there could be use for -> Hits, and blocks stored in the end.

    What is stored beforehand counts as computed.
    """
    requests, (_, kind, first) = texts(workload, users, turn), CACHES[cache]
    asked = sum(len(prompt) for prompt, _ in requests)
    if blocks is None:
        blocks = sum(-(-(len(prompt) + len(answer)) // block_size) for prompt, answer in requests)
    replay = Replay(BlockPool(blocks, block_size), kind, AT_ONCE)
    shared = beginnings(prompt for prompt, _ in requests) if first else []
    replay.run([(tokens, (), 1) for tokens in shared])
    replay.run(requests)
    return Hits(asked, sum(replay.found) - (replay.asked - asked), replay.evicted), replay.cache.num_blocks


def beginnings(prompts):
    """What prompts have in common, wherever several begin with the same token -> list of token lists."""
    alike = {}
    for prompt in prompts:
        alike.setdefault(prompt[0], []).append(prompt)
    several = [group for group in alike.values() if len(group) > 1]
    return [[tokens[0] for tokens in takewhile(same, zip(*group, strict=False))] for group in several]


def same(tokens):
    return len(set(tokens)) == 1
