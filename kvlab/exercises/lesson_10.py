"""Exercises of lesson 10, paged blocks."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "10.slot",
    cases=lambda: [
        dict(t=t, blocks=blocks, block_size=size)
        for blocks, size in (([7, 1, 4], 4), ([0, 5], 16), ([9, 2, 3, 6], 1))
        for t in (0, 1, len(blocks) * size - 1, len(blocks) * size // 2)
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "Which block of the sequence is it in: the first, the second, ...? And which place in that block?",
        "t // block_size and t % block_size. The table then says which block of the pool it is.",
    ],
)
def slot(t, blocks, block_size):
    """The number of the slot in which token t lies -> int. Slots are counted through the whole pool.

    blocks: the sequence's block table
    """
    # solve
    return blocks[t // block_size] * block_size + t % block_size
    # end


@slot.mistake("that is the place in a contiguous memory: look the block up in the table.")
def _(t, blocks, block_size):
    return t


@slot.mistake("that is the block. Multiply by its size, and add the place in it.")
def _(t, blocks, block_size):
    return blocks[t // block_size]


@slot.mistake("a block begins at its number times block_size.")
def _(t, blocks, block_size):
    return blocks[t // block_size] + t % block_size


@slot.mistake("put the two together: the block's first slot is its number times block_size.")
def _(t, blocks, block_size):
    return blocks[t // block_size], t % block_size


@slot.mistake("the place in the block is missing: add t % block_size.")
def _(t, blocks, block_size):
    return blocks[t // block_size] * block_size


@exercise(
    "10.needed",
    cases=lambda: [
        dict(length=length, n=n, block_size=size)
        for length, n, size in (
            (0, 1, 16),
            (5, 1, 16),
            (15, 1, 16),
            (16, 1, 16),
            (16, 16, 16),
            (3, 9, 4),
            (4, 0, 4),
            (0, 33, 8),
        )
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "How many blocks do `length` tokens take? And `length + n`?",
        "Rounding up is -(-a // b) in Python.",
    ],
)
def needed(length, n, block_size):
    """How many more blocks does a sequence of ``length`` tokens need, to store n more? -> int"""
    # solve
    return -(-(length + n) // block_size) - -(-length // block_size)
    # end


@needed.mistake("the last block may have room left: count the blocks before and after.")
def _(length, n, block_size):
    return -(-n // block_size)


@needed.mistake("a block that is begun counts whole: round up, both times.")
def _(length, n, block_size):
    return (length + n) // block_size - length // block_size


@needed.mistake("that is what it needs in all: it has some already.")
def _(length, n, block_size):
    return -(-(length + n) // block_size)


def _paged_cases():
    random = torch.Generator().manual_seed(10)

    def rows(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def case(size, blocks, length):
        k_pages, v_pages = (torch.full((9, size, d), 9.0, dtype=torch.float64) for d in (5, 3))
        for t in range(length):
            place = blocks[t // size], t % size
            k_pages[place], v_pages[place] = rows(5), rows(3)
        return dict(q=rows(5), k_pages=k_pages, v_pages=v_pages, blocks=blocks, length=length)

    return [case(4, [7, 1, 4], 10), case(2, [8, 0], 4), case(3, [5], 1)]


@exercise(
    "10.attend",
    cases=_paged_cases,
    minutes=15,
    difficulty="medium",
    hints=[
        "k_pages[blocks] is [blocks, block_size, D]: the sequence's blocks, in the order of its tokens.",
        "flatten(0, 1) makes one row a token of it. How many of these rows are tokens of the sequence?",
        "From there on it is lesson 01: scores, scale, softmax, weighted sum.",
    ],
)
def attend(q, k_pages, v_pages, blocks, length):
    """Attention of one query of one head over a sequence that lies in pages -> [Dv]; scale 1 / sqrt(D).

    q [D], k_pages [num_blocks, block_size, D], v_pages [num_blocks, block_size, Dv], blocks: its table.
    Slots in which no token of the sequence lies hold other numbers.
    """
    # solve
    keys = k_pages[blocks].flatten(0, 1)[:length]  # [T, D]
    values = v_pages[blocks].flatten(0, 1)[:length]  # [T, Dv]
    weights = (keys @ q / q.shape[0] ** 0.5).softmax(dim=0)  # [T]
    return weights @ values
    # end


def _attended(q, keys, values, scale=True):
    return (keys @ q / (q.shape[0] ** 0.5 if scale else 1)).softmax(dim=0) @ values


@attend.mistake("the last block is only partly the sequence's: leave out what lies beyond `length`.")
def _(q, k_pages, v_pages, blocks, length):
    return _attended(q, k_pages[blocks].flatten(0, 1), v_pages[blocks].flatten(0, 1))


@attend.mistake("that reads the pool in its own order: go through the table.")
def _(q, k_pages, v_pages, blocks, length):
    return _attended(q, k_pages.flatten(0, 1)[:length], v_pages.flatten(0, 1)[:length])


@attend.mistake("the scale is missing: divide the scores by the square root of D.")
def _(q, k_pages, v_pages, blocks, length):
    return _attended(
        q, k_pages[blocks].flatten(0, 1)[:length], v_pages[blocks].flatten(0, 1)[:length], scale=False
    )


@attend.mistake("the blocks were sorted: their order in the table is the order of the tokens.")
def _(q, k_pages, v_pages, blocks, length):
    blocks = sorted(blocks)
    return _attended(q, k_pages[blocks].flatten(0, 1)[:length], v_pages[blocks].flatten(0, 1)[:length])


def _states():
    good = dict(num_blocks=6, free=[5, 2], counts=[1, 1, 0, 1, 2, 0], tables=[[4, 0], [4, 1, 3]])
    yield good
    yield good | {"free": [2]}  # block 5 is lost
    yield good | {"free": [5, 2, 2]}  # given out twice one day
    yield good | {"counts": [1, 1, 0, 1, 1, 0]}  # two owners, one counted
    yield good | {"counts": [1, 1, 0, 1, 3, 0]}  # an owner who is gone
    yield good | {"tables": [[4, 0], [4, 1, 1]], "counts": [1, 2, 0, 0, 2, 0], "free": [5, 2, 3]}
    yield good | {"free": [5, 2, 3]}  # free, and somebody reads it
    yield good | {"free": [5, 2, 9]}  # there is no block 9
    yield good | {"tables": [[4, 0], [4, 1, 3, 3]]}  # one table names a block twice
    yield good | {"num_blocks": 2, "free": [1, 0], "counts": [0, 0], "tables": []}


@exercise(
    "10.sound",
    cases=lambda: list(_states()),
    minutes=15,
    difficulty="medium",
    hints=[
        "Count, for each block, in how many tables it stands. What must counts be?",
        "And which blocks must be on the free list, each how often?",
        "A table that names a block twice would write two tokens into one slot.",
    ],
)
def sound(num_blocks, free, counts, tables):
    """Is the bookkeeping of a pool in order? -> bool

    free: list of free blocks; counts[b]: owners of block b; tables: the block list of each sequence.
    A block of no table has count 0 and is on the free list, once. Any other block is not on it, and is in as
    many tables as its count says (two may share one). No table names a block twice; there are no others.
    """
    # solve
    owners = [sum(block in table for table in tables) for block in range(num_blocks)]
    unowned = [block for block in range(num_blocks) if owners[block] == 0]
    no_repeats = all(len(set(table)) == len(table) for table in tables)
    return counts == owners and sorted(free) == unowned and no_repeats
    # end


@sound.mistake("the free list is not looked at: a block can be lost, or be given out twice.")
def _(num_blocks, free, counts, tables):
    return counts == [sum(block in table for table in tables) for block in range(num_blocks)]


@sound.mistake(
    "the counts are not compared with the tables: a count too high leaks, one too low frees too early."
)
def _(num_blocks, free, counts, tables):
    return sorted(free) == [block for block in range(num_blocks) if not counts[block]]


@sound.mistake("a block that is free twice goes unnoticed: a set forgets how often.")
def _(num_blocks, free, counts, tables):
    owners = [sum(table.count(block) for table in tables) for block in range(num_blocks)]
    no_repeats = all(len(set(table)) == len(table) for table in tables)
    return counts == owners and set(free) == {b for b in range(num_blocks) if not owners[b]} and no_repeats


@sound.mistake("a table that names a block twice goes unnoticed.")
def _(num_blocks, free, counts, tables):
    owners = [sum(table.count(block) for table in tables) for block in range(num_blocks)]
    return counts == owners and sorted(free) == [b for b in range(num_blocks) if not owners[b]]


@sound.mistake("a block that is free and in somebody's table goes unnoticed.")
def _(num_blocks, free, counts, tables):
    owners = [sum(block in table for table in tables) for block in range(num_blocks)]
    no_repeats = all(len(set(table)) == len(table) for table in tables)
    lost = [block for block in range(num_blocks) if not owners[block] and block not in free]
    return counts == owners and not lost and len(set(free)) == len(free) and no_repeats


RECALL["10"] = [
    Recall(
        "10.external",
        "Contiguous memory. Half of it is free, and a request that needs a quarter has to wait. Why?",
        (
            Option("The free half is in pieces, none large enough", "External fragmentation.", right=True),
            Option("Its text is shorter than what was reserved", "That is internal fragmentation."),
            Option("The memory is too slow", "It is a question of place and not of time."),
        ),
    ),
    Recall(
        "10.waste",
        "Blocks of 16. How many slots does a sequence waste on average?",
        (
            Option("None", "The last block is rarely full."),
            Option(
                "About 7.5, be it long or short", "Anything from 0 to 15, about equally often.", right=True
            ),
            Option("About half of its slots", "Only its last block is partly empty."),
        ),
    ),
    Recall(
        "10.small",
        "Why not take blocks of a single token, which waste nothing?",
        (
            Option("Attention would give other results", "It is exact for every block size."),
            Option(
                "Tables get long, and memory is read in small pieces",
                "Each block costs a look-up, and short reads are slow.",
                right=True,
            ),
            Option("A block must hold a word", "It knows nothing of words."),
        ),
    ),
    Recall(
        "10.analogy",
        "Where does the comparison with an operating system's virtual memory end?",
        (
            Option(
                "No hardware translates: the attention kernel itself looks into the table",
                "And nothing is swapped to disk by itself.",
                right=True,
            ),
            Option("Blocks of one pool have different sizes", "They are all equal, like pages."),
            Option("Two sequences cannot share a block", "They can: the next lesson."),
        ),
    ),
    Recall(
        "10.demand",
        "Blocks are taken when tokens come. What can happen now that could not with reservations?",
        (
            Option(
                "A request that runs finds no block for its next token",
                "Then somebody has to give way: preemption.",
                right=True,
            ),
            Option("A sequence reads another one's tokens", "Its table names its own blocks only."),
            Option("The pool fragments", "Every free block fits everybody."),
        ),
    ),
]
