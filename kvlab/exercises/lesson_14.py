"""Exercises of lesson 14, eviction."""

from collections import deque

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "14.lru",
    cases=lambda: [
        dict(asked=list(asked), room=room)
        for asked, room in (
            ("aaaa", 1),
            ("abab", 2),
            ("abcabc", 3),
            ("abcabc", 2),
            ("abacabad", 2),
            ("abcadaea", 2),
            ("abcabdabe", 3),
            ("aabbccaabbcc", 2),
            ("abcddcba", 2),
            ("", 3),
        )
    ],
    minutes=10,
    difficulty="easy",
    hints=[
        "Keep a list of what is stored, the one that was used last at its end.",
        "A hit moves to the end. A miss is appended, and if there are too many now, the first one goes.",
    ],
)
def lru(asked, room):
    """How many requests find their text stored -> int

    asked: names of texts, in the order in which they are asked for. There is room for ``room`` texts; for
    another one the one that was used longest ago is evicted.
    """
    # solve
    stored, hits = [], 0
    for name in asked:
        if name in stored:
            hits += 1
            stored.remove(name)
        stored.append(name)
        if len(stored) > room:
            stored.pop(0)
    return hits
    # end


@lru.mistake("a hit is a use: it makes its text the last to go. You evict what *came* first.")
def _(asked, room):
    stored, hits = deque(maxlen=room), 0
    for name in asked:
        hits += name in stored
        if name not in stored:
            stored.append(name)
    return hits


@lru.mistake("that evicts what was used last: the one used longest ago is to go.")
def _(asked, room):
    stored, hits = [], 0
    for name in asked:
        if name in stored:
            hits += 1
            stored.remove(name)
        elif len(stored) == room:
            stored.pop()
        stored.append(name)
    return hits


@lru.mistake("those are the misses.")
def _(asked, room):
    return len(asked) - lru(asked, room)


@lru.mistake("a hit needs no more room: nothing is evicted for it.")
def _(asked, room):
    stored, hits = [], 0
    for name in asked:
        hits += name in stored
        stored = [*stored, name][-room:]
    return hits


@lru.mistake("that is room for one more than there is.")
def _(asked, room):
    return lru(asked, room + 1)


@lru.mistake("without the limit of the room: what was evicted has to be computed again.")
def _(asked, room):
    return len(asked) - len(set(asked))


# (run before it or None, blocks, last use, locks)
TREE = [
    (None, 3, 9, 0),
    (0, 2, 4, 0),
    (0, 4, 9, 0),
    (2, 1, 6, 0),
    (2, 2, 9, 0),
    (None, 2, 7, 1),
    (5, 3, 2, 0),
    (5, 2, 7, 1),
    (None, 5, 1, 0),
]


@exercise(
    "14.victims",
    cases=lambda: [
        dict(runs=runs, n=n)
        for runs, n in (
            ([(None, 2, 1, 0), (0, 1, 8, 0), (None, 1, 5, 0)], 3),
            (TREE, 1),
            (TREE, 5),
            (TREE, 6),
            (TREE, 9),
            (TREE, 11),
            (TREE, 13),
            (TREE, 17),
            (TREE, 99),
            (TREE, 0),
            ([(None, 2, 1, 1)], 1),
        )
    ],
    minutes=15,
    difficulty="medium",
    hints=[
        "A run is a leaf if no run that is left has it as its first entry. Who may go: leaves without locks.",
        "Of these, the one with the smallest last use. Then look again: its parent may be a leaf now.",
        "Stop when n blocks are free, or when nobody may go.",
    ],
)
def victims(runs, n):
    """Which runs of a radix tree are evicted for n blocks -> list of their numbers, in that order

    runs: (number of the run before it or None, blocks, last use, locks); a lock is on all runs of a path.
    Only leaves without locks go, whole runs, the one used longest ago first, until n or more blocks have
    become free or nobody may go (n may be more than can be had).
    """
    # solve
    left, gone, free = set(range(len(runs))), [], 0
    while free < n:
        inner = {runs[i][0] for i in left}
        leaves = [i for i in left if i not in inner and not runs[i][3]]
        if not leaves:
            break
        first = min(leaves, key=lambda i: runs[i][2])
        left.remove(first)
        gone.append(first)
        free += runs[first][1]
    return gone
    # end


def evicted(runs, n, may_go, use=lambda run: run[2], worth=lambda run: run[1]):
    """The solution with another rule: may_go(number, run, left, runs)."""
    left, gone, free = set(range(len(runs))), [], 0
    while free < n:
        who = [i for i in left if may_go(i, left)]
        if not who:
            break
        gone.append(min(who, key=lambda i: use(runs[i])))
        left.remove(gone[-1])
        free += worth(runs[gone[-1]])
    return gone


def leaf(runs, i, left):
    return i not in {runs[j][0] for j in left}


@victims.mistake("somebody reads what is locked: it stays, however long ago it was used.")
def _(runs, n):
    return evicted(runs, n, lambda i, left: leaf(runs, i, left))


@victims.mistake("only leaves go: without the run before it, what comes behind can never be found again.")
def _(runs, n):
    return evicted(runs, n, lambda i, left: not runs[i][3])


@victims.mistake("when its last child has gone, a run is a leaf, and may go, too: look again each time.")
def _(runs, n):
    everybody = set(range(len(runs)))
    return evicted(runs, n, lambda i, left: leaf(runs, i, everybody) and not runs[i][3])


@victims.mistake("the one used longest ago goes first: the smallest last use.")
def _(runs, n):
    return evicted(runs, n, lambda i, left: leaf(runs, i, left) and not runs[i][3], lambda run: -run[2])


@victims.mistake("n counts blocks, and a run has several: add them up.")
def _(runs, n):
    return evicted(runs, n, lambda i, left: leaf(runs, i, left) and not runs[i][3], worth=lambda run: 1)


@victims.mistake("what goes first is decided by the last use, not by the size.")
def _(runs, n):
    return evicted(runs, n, lambda i, left: leaf(runs, i, left) and not runs[i][3], lambda run: -run[1])


@exercise(
    "14.reload",
    cases=lambda: [
        dict(tokens=1000, token_bytes=token_bytes, link=link, seconds_a_token=seconds)
        for token_bytes, link, seconds in (
            (131072, 25e9, 20e-6),
            (131072, 5e9, 20e-6),
            (131072, 55e9, 2e-6),
            (69120, 25e9, 20e-6),
            (524288, 25e9, 20e-6),
            (131072, 25e9, 4e-6),
        )
    ],
    minutes=5,
    difficulty="easy",
    hints=["Bytes over bytes a second, against tokens times seconds a token."],
)
def reload(tokens, token_bytes, link, seconds_a_token):
    """How many times faster loading is than computing again -> float, below 1 where it is slower

    token_bytes: of keys and values of a token; link: bytes a second; seconds_a_token: of a prefill.
    """
    # solve
    return tokens * seconds_a_token / (tokens * token_bytes / link)
    # end


@reload.mistake("that is how many times slower loading is: divide the time to compute by the time to load.")
def _(tokens, token_bytes, link, seconds_a_token):
    return (token_bytes / link) / seconds_a_token


@reload.mistake("both times grow with the tokens: they cancel.")
def _(tokens, token_bytes, link, seconds_a_token):
    return seconds_a_token / (tokens * token_bytes / link)


@reload.mistake("that is how many seconds are saved, not how many times faster it is.")
def _(tokens, token_bytes, link, seconds_a_token):
    return tokens * seconds_a_token - tokens * token_bytes / link


RECALL["14"] = [
    Recall(
        "14.quality",
        "A block of a kept prefix is evicted, and then the prefix is asked for. What happens to the answer?",
        (
            Option("It gets a little worse", "That is what dropping a live text's tokens does."),
            Option("Nothing: it comes later", "The block is computed again, exactly.", right=True),
            Option("It cannot be given", "What is evicted can always be computed again."),
        ),
    ),
    Recall(
        "14.leaf",
        "Why do only leaves go, and a run only when nothing hangs on it any more?",
        (
            Option("Leaves are smaller", "A leaf may be the longest run of all."),
            Option(
                "Without what stands before it, it is never found",
                "It would lie there unused.",
                right=True,
            ),
            Option("The run before it is always locked", "Only where somebody reads it."),
        ),
    ),
    Recall(
        "14.lock",
        "A request locks the end of its prefix. Which blocks may not be evicted while it runs?",
        (
            Option("Those of the last run", "It reads all of its text at every step."),
            Option("All, from the end up to the root", "The whole path.", right=True),
            Option("Those that nobody else uses", "The others least of all."),
        ),
    ),
    Recall(
        "14.cliff",
        "Ten conversations of one length take turns, and there is room for nine. LRU finds …",
        (
            Option("nine tenths", "The one that comes next is always the one that has just gone."),
            Option("about nothing", "Each is evicted just before its turn.", right=True),
            Option("half", "It falls off a cliff, and not down a slope."),
        ),
    ),
    Recall(
        "14.priority",
        "Priorities keep the chats when a crowd of strangers comes through. What do they cost?",
        (
            Option("Nothing", "Its blocks are not there for others."),
            Option("Room, even when nobody asks for it", "Somebody has to take it back.", right=True),
            Option("Another answer", "What is kept changes when an answer comes, not what it is."),
        ),
    ),
    Recall(
        "14.spill",
        "When is loading blocks from the host's memory faster than computing them again?",
        (
            Option("Always: memory is faster than arithmetic", "Not behind a slow link."),
            Option("When the link beats bytes over prefill time", "The break-even.", right=True),
            Option("Only for short prefixes", "The longer a text is, the dearer is its end to compute."),
        ),
    ),
]
