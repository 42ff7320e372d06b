"""Exercises of lesson 18, the paged kernel."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "18.traffic",
    cases=lambda: [
        dict(contexts=[10], heads=6, kv_heads=2, dim=8, itemsize=2, packed=True),
        dict(contexts=[10], heads=6, kv_heads=2, dim=8, itemsize=2, packed=False),
        dict(contexts=[9, 0, 5], heads=8, kv_heads=1, dim=4, itemsize=1, packed=True),
        dict(contexts=[9, 0, 5], heads=8, kv_heads=1, dim=4, itemsize=1, packed=False),
        dict(contexts=[33, 17, 1], heads=5, kv_heads=5, dim=3, itemsize=4, packed=True),
        dict(contexts=[], heads=32, kv_heads=8, dim=128, itemsize=2, packed=True),
    ],
    minutes=8,
    difficulty="easy",
    hints=[
        "A token has a key and a value for each KV head. How often is each of them loaded?",
        "Packed: once. Otherwise: by each query head that shares the KV head, heads // kv_heads of them.",
    ],
)
def traffic(contexts, heads, kv_heads, dim, itemsize, packed):
    """Bytes of keys and values that a kernel loads in a decode step of one layer -> int

    contexts: tokens of each text. packed: True if a program has one KV head and all query heads that share
    it, False if it has one query head. What is masked is not loaded.
    """
    # solve
    programs = kv_heads if packed else heads
    return sum(contexts) * programs * 2 * dim * itemsize
    # end


@traffic.mistake("keys and values: there are two of them.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic(contexts, heads, kv_heads, dim, itemsize, packed) // 2


@traffic.mistake("packing changes what is loaded: look at `packed`.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic(contexts, heads, kv_heads, dim, itemsize, False)


@traffic.mistake("without packing every query head loads its KV head's keys again.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic(contexts, heads, kv_heads, dim, itemsize, True)


@traffic.mistake("the other way round: packed, a key is loaded once for all query heads that share it.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic(contexts, heads, kv_heads, dim, itemsize, not packed)


@traffic.mistake("a key is loaded by the query heads that share its KV head, not by all of them.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return sum(contexts) * kv_heads * (1 if packed else heads) * 2 * dim * itemsize


@traffic.mistake("pages need no padding: a text takes its own length, not that of the longest.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic([max(contexts, default=0)] * len(contexts), heads, kv_heads, dim, itemsize, packed)


@traffic.mistake("those are numbers; each of them has itemsize bytes.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return traffic(contexts, heads, kv_heads, dim, 1, packed)


@traffic.mistake("packed, all query heads of a KV head share one load: do not divide by their number again.")
def _(contexts, heads, kv_heads, dim, itemsize, packed):
    return sum(contexts) * (kv_heads * kv_heads // heads if packed else kv_heads) * 2 * dim * itemsize


@exercise(
    "18.parts",
    cases=lambda: [
        dict(programs=8, tiles=64, multiprocessors=132),
        dict(programs=128, tiles=64, multiprocessors=132),
        dict(programs=132, tiles=64, multiprocessors=132),
        dict(programs=133, tiles=64, multiprocessors=132),
        dict(programs=8, tiles=3, multiprocessors=132),
        dict(programs=100, tiles=2, multiprocessors=132),
        dict(programs=70, tiles=8, multiprocessors=100),
        dict(programs=67, tiles=3, multiprocessors=100),
        dict(programs=5, tiles=1, multiprocessors=108),
        dict(programs=9, tiles=12, multiprocessors=10),
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "With n parts there are programs * n programs. In turns of all multiprocessors: how many turns?",
        "The last turn may be all but empty: the share is programs * n / (turns * multiprocessors).",
        "Go through n = 1, 2, ... up to tiles: the first with at least 0.9, or else the first with the best.",
    ],
)
def parts(programs, tiles, multiprocessors):
    """The fewest parts per text that keep at least 90% of the multiprocessors busy -> int

    programs: as many there are without cutting. tiles: of a text; there can be as many parts, and any number
    of them may be taken to cut evenly. Programs take equally long, one a multiprocessor at a time; the share
    counts all turns, the last one included. If no number of parts reaches 90%, the fewest with the highest.
    """

    # solve
    def busy(n):
        turns = -(-programs * n // multiprocessors)
        return programs * n / (turns * multiprocessors)

    best = 1
    for n in range(1, tiles + 1):
        if busy(n) >= 0.9:
            return n
        if busy(n) > busy(best):
            best = n
    return best
    # end


def _busy(programs, n, multiprocessors):
    return programs * n / (-(-programs * n // multiprocessors) * multiprocessors)


@parts.mistake(
    "that gives each multiprocessor something, but forgets the last turn, which may be all but empty."
)
def _(programs, tiles, multiprocessors):
    return min(-(-multiprocessors // programs), tiles)


@parts.mistake("a part has at least one tile: there cannot be more parts than tiles.")
def _(programs, tiles, multiprocessors):
    return parts(programs, 10**4, multiprocessors)


@parts.mistake("not as many as possible: each part has to be merged. The fewest that are enough.")
def _(programs, tiles, multiprocessors):
    return tiles


@parts.mistake("all turns count, and not the last one alone.")
def _(programs, tiles, multiprocessors):
    for n in range(1, tiles + 1):
        if ((programs * n - 1) % multiprocessors + 1) / multiprocessors >= 0.9:
            return n
    return tiles


@parts.mistake("parts of a real kernel are whole tiles, as you say; here any number may cut evenly.")
def _(programs, tiles, multiprocessors):
    best = 1
    for n in range(1, tiles + 1):
        cut = -(-tiles // -(-tiles // n))
        share = _busy(programs, cut, multiprocessors)
        if share >= 0.9:
            return n
        if share > _busy(programs, best, multiprocessors):
            best = n
    return best


@parts.mistake("at least 90%: exactly 90% are enough.")
def _(programs, tiles, multiprocessors):
    shares = [_busy(programs, n, multiprocessors) for n in range(1, tiles + 1)]
    return next((n for n, share in enumerate(shares, 1) if share > 0.9), 1 + shares.index(max(shares)))


@parts.mistake("if 90% is out of reach, take the number with the highest share, not 1.")
def _(programs, tiles, multiprocessors):
    n = parts(programs, tiles, multiprocessors)
    return n if _busy(programs, n, multiprocessors) >= 0.9 else 1


@parts.mistake("if 90% is out of reach, take the number with the highest share, not the largest number.")
def _(programs, tiles, multiprocessors):
    n = parts(programs, tiles, multiprocessors)
    return n if _busy(programs, n, multiprocessors) >= 0.9 else tiles


@parts.mistake("more than enough: the first that reaches 90%, not the best of all.")
def _(programs, tiles, multiprocessors):
    return max(range(1, tiles + 1), key=lambda n: (_busy(programs, n, multiprocessors), -n))


def _pages(pages, places, **sizes):
    return dict(
        pages=torch.tensor(pages, dtype=torch.int32), places=torch.tensor(places, dtype=torch.int32), **sizes
    )


@exercise(
    "18.wide",
    cases=lambda: [
        _pages([0, 5, 2], [0, 3, 1], block_size=4, kv_heads=2, kv_head=1, dim=8),
        _pages([131_071, 131_072, 140_001], [15, 0, 7], block_size=16, kv_heads=8, kv_head=7, dim=128),
        _pages([9, 2_097_152], [15, 1], block_size=16, kv_heads=64, kv_head=3, dim=1),
        _pages([33_554_432, 50_000_001], [63, 5], block_size=64, kv_heads=1, kv_head=0, dim=1),
        _pages([], [], block_size=16, kv_heads=8, kv_head=0, dim=128),
    ],
    minutes=8,
    difficulty="easy",
    hints=[
        "2**31 is 2,147,483,648: what happens to an int32 that should be larger?",
        "The dtype of a product is that of its factors: what is too large is wrong before any later cast.",
        "Widen the pages first: pages.long().",
    ],
    tolerance=0,
)
def wide(pages, places, block_size, kv_heads, kv_head, dim):
    """Where each token's key begins, in 64 bits: pages, places [T] (int32) -> [T] (int64)"""
    # solve
    return ((pages.long() * block_size + places) * kv_heads + kv_head) * dim
    # end


@wide.mistake("that is the function as it was: still 32 bits.")
def _(pages, places, block_size, kv_heads, kv_head, dim):
    return ((pages * block_size + places) * kv_heads + kv_head) * dim


@wide.mistake("too late: the products were taken in 32 bits, and what was lost does not come back.")
def _(pages, places, block_size, kv_heads, kv_head, dim):
    return (((pages * block_size + places) * kv_heads + kv_head) * dim).long()


@wide.mistake("pages * block_size may be too large for 32 bits already.")
def _(pages, places, block_size, kv_heads, kv_head, dim):
    return ((pages * block_size + places).long() * kv_heads + kv_head) * dim


@wide.mistake("(slot * kv_heads) may be too large for 32 bits already: widen before the first product.")
def _(pages, places, block_size, kv_heads, kv_head, dim):
    return ((pages * block_size + places) * kv_heads + kv_head).long() * dim


@wide.mistake("a float32 has 24 bits for the digits: large offsets lose their last ones.")
def _(pages, places, block_size, kv_heads, kv_head, dim):
    return (((pages.float() * block_size + places) * kv_heads + kv_head) * dim).long()


RECALL["18"] = [
    Recall(
        "18.rows",
        "What do the rows of the matrix product in a decode step stand for?",
        (
            Option("The tokens of the context", "Those are its columns."),
            Option("The texts of the batch", "Each text has keys of its own: a program of its own."),
            Option("The query heads that share a KV head", "So a key is loaded once for all.", right=True),
        ),
    ),
    Recall(
        "18.padding",
        "4 of 16 rows are used. Why does it hardly matter that 3/4 of the arithmetic is thrown away?",
        (
            Option("The compiler leaves it out", "The instruction does all 16 rows."),
            Option("The kernel waits for memory anyway", "There is time for far more.", right=True),
            Option("Masked rows are computed faster", "A mask saves loads, not products."),
        ),
    ),
    Recall(
        "18.parts",
        "When does cutting a context in parts help?",
        (
            Option("When too much of the GPU has no work", "Few texts, long ones.", right=True),
            Option("Always: more programs are faster", "Each starts anew and has to be merged."),
            Option("When the context does not fit a tile", "A program takes as many tiles as it needs."),
        ),
    ),
    Recall(
        "18.merge",
        "What does a part have to leave behind for the merge, beside its mean of the values?",
        (
            Option("Its number of tokens", "Tokens weigh differently."),
            Option("The logarithm of its sum of exp(score)", "It says how much its mean counts.", right=True),
            Option("All its weights", "Their sum is enough."),
        ),
    ),
    Recall(
        "18.stages",
        "What does it tell you when one stage more takes no more shared memory?",
        (
            Option("The compiler packs tiles better", "A tile on its way needs its room."),
            Option("Nothing is loaded further ahead", "Something keeps the pipeline short.", right=True),
            Option("The kernel is as fast as it can be", "It may be waiting all the time."),
        ),
    ),
    Recall(
        "18.int32",
        "Offsets overflow 32 bits. How does one notice?",
        (
            Option("The kernel does not compile", "The types are fine."),
            Option("The GPU reports the overflow", "At most an illegal address, long after it."),
            Option(
                "On large pools only: wrong texts, or a crash",
                "It depends on what lies at the wrong address.",
                right=True,
            ),
        ),
    ),
]
