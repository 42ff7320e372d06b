"""Exercises of lesson 11, sharing blocks."""

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "11.must_copy",
    cases=lambda: [
        dict(length=length, blocks=[3, 0, 5][: -(-length // 4)], block_size=4, counts=counts)
        for length in (1, 3, 4, 6, 8, 9)
        for counts in ([1, 0, 0, 1, 0, 1], [2, 0, 0, 2, 0, 1], [2, 0, 0, 2, 0, 2], [1, 1, 1, 1, 1, 2])
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Where does the next token go: into a block that is there, or into a new one?",
        "If it goes into one that is there, who else reads it?",
    ],
)
def must_copy(length, blocks, block_size, counts):
    """Which block has to be copied before the next token is written? -> its number, or None

    length: tokens stored; blocks: the sequence's table; counts[b]: owners of block b
    """
    # solve
    if length % block_size == 0:
        return None  # it goes into a new block
    last = blocks[length // block_size]
    return last if counts[last] > 1 else None
    # end


@must_copy.mistake("a full block is not written into: the next token goes into a new one.")
def _(length, blocks, block_size, counts):
    return blocks[-1] if counts[blocks[-1]] > 1 else None


@must_copy.mistake("nobody else reads it: a block with one owner is written in place.")
def _(length, blocks, block_size, counts):
    return blocks[-1] if length % block_size else None


@must_copy.mistake("the first block is shared, too, but nobody writes into it: look at where the token goes.")
def _(length, blocks, block_size, counts):
    return blocks[0] if length % block_size and counts[blocks[0]] > 1 else None


@must_copy.mistake("a full last block has no place for the next token: it goes into a new one.")
def _(length, blocks, block_size, counts):
    last = blocks[length // block_size]
    return last if counts[last] > 1 else None


@must_copy.mistake("that is its place in the table; asked is the block's number.")
def _(length, blocks, block_size, counts):
    if length % block_size == 0:
        return None
    place = length // block_size
    return place if counts[blocks[place]] > 1 else None


@must_copy.mistake("what you write into a shared block, the others read where their own token should be.")
def _(length, blocks, block_size, counts):
    return None


@exercise(
    "11.held",
    cases=lambda: [
        dict(prompt=prompt, answer=answer, n=n, block_size=size)
        for prompt, answer, n, size in (
            (100, 50, 4, 16),
            (96, 50, 4, 16),
            (96, 0, 4, 16),
            (100, 0, 4, 16),
            (7, 1, 3, 4),
            (7, 9, 1, 4),
            (16, 16, 8, 16),
        )
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "How many blocks of the prompt are full? They are held once, however many samples there are.",
        "Everything behind the full blocks each sample has for itself, as soon as it has written a token.",
        "Before the first token (answer 0) all of them share even the last block.",
    ],
)
def held(prompt, answer, n, block_size):
    """Blocks that n forks of one prompt hold together, when each has stored ``answer`` more tokens -> int

    A block that several share counts once; the prompt's own table does not count; ``answer`` may be 0. A
    shared, partly filled block is copied at the first write.
    """
    # solve
    if answer == 0:
        return -(-prompt // block_size)
    full = prompt // block_size
    return full + n * (-(-(prompt + answer) // block_size) - full)
    # end


@held.mistake("that is without sharing: the prompt's full blocks are held once.")
def _(prompt, answer, n, block_size):
    return n * -(-(prompt + answer) // block_size)


@held.mistake("the prompt's last block, if it is not full, is copied by those who write into it.")
def _(prompt, answer, n, block_size):
    shared = -(-prompt // block_size)
    return shared + n * (-(-(prompt + answer) // block_size) - shared)


@held.mistake("answers do not begin at a block's edge: count the blocks of prompt and answer together.")
def _(prompt, answer, n, block_size):
    return -(-prompt // block_size) + n * -(-answer // block_size)


@held.mistake("before anything is written nothing is copied: all share even the last block.")
def _(prompt, answer, n, block_size):
    full = prompt // block_size
    return full + n * (-(-(prompt + answer) // block_size) - full)


@held.mistake("a block that is begun counts whole: round up.")
def _(prompt, answer, n, block_size):
    full = prompt // block_size
    return full + n * ((prompt + answer) // block_size - full)


@exercise(
    "11.accept",
    cases=lambda: [
        dict(guesses=guesses, says=says)
        for guesses, says in (
            ([5, 8, 2], [5, 8, 2, 9]),
            ([5, 8, 2], [5, 7, 2, 9]),
            ([5, 8, 2], [4, 8, 2, 9]),
            ([], [6]),
            ([1, 1, 1, 1], [1, 1, 1, 3, 1]),
        )
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "says[i] is what the model would write after the text and the first i guesses.",
        "As long as guess i equals says[i], says[i + 1] was computed after the right text.",
        "At the first guess that differs, the model's own token is right, and all after it is worthless.",
    ],
)
def accept(guesses, says):
    """The tokens that one step of greedy speculation gives -> list, 1 to len(guesses) + 1 of them

    guesses: k tokens; says: k + 1 tokens, the likeliest after the text and the first 0, 1, ... k guesses
    """
    # solve
    accepted = []
    for i, token in enumerate(says):
        accepted.append(token)
        if i == len(guesses) or guesses[i] != token:
            break
    return accepted
    # end


@accept.mistake("the model's own token comes for free, behind the last guess that was right.")
def _(guesses, says):
    right = 0
    while right < len(guesses) and guesses[right] == says[right]:
        right += 1
    return list(guesses[:right])


@accept.mistake("after a wrong guess the model read the wrong text: stop there.")
def _(guesses, says):
    return list(says)


@accept.mistake("at the first difference the model's token is right, not the guess.")
def _(guesses, says):
    accepted = []
    for guess, token in zip([*guesses, None], says, strict=True):
        accepted.append(token if guess is None else guess)
        if guess != token:
            break
    return accepted


@accept.mistake("when all guesses are right there is one more token: the model's own, after the last.")
def _(guesses, says):
    accepted = []
    for guess, token in zip(guesses, says, strict=False):
        accepted.append(token)
        if guess != token:
            break
    return accepted


RECALL["11"] = [
    Recall(
        "11.when",
        "Two sequences share all their blocks. When is a block first copied?",
        (
            Option("When the second sequence is forked", "A fork copies nothing: counts go up."),
            Option("When one of them writes into a block that both use", "And only that one.", right=True),
            Option("When one of them ends", "Then a count goes down."),
        ),
    ),
    Recall(
        "11.full",
        "A prompt of exactly 32 tokens in blocks of 16, forked, both go on. How many blocks are copied?",
        (
            Option("Two", "Full blocks are never written again."),
            Option("One", "The next token of each goes into a new block."),
            Option("None", "Both blocks are full, and stay shared.", right=True),
        ),
    ),
    Recall(
        "11.turns",
        "The user writes again in the same conversation. What happens to its blocks?",
        (
            Option("They are copied, since the text changes", "The text grows; nothing before changes."),
            Option(
                "New tokens are appended, nothing is copied",
                "It is one sequence, with one owner.",
                right=True,
            ),
            Option("They are computed anew", "Only where the cache was thrown away in between: lesson 13."),
        ),
    ),
    Recall(
        "11.speculation",
        "Guesses that are always wrong: what do they cost?",
        (
            Option("Wrong text", "The model checks every token; the text is its own."),
            Option(
                "Work for rows that are thrown away; each step still gives a token",
                "And the blocks taken for them are let go by truncate.",
                right=True,
            ),
            Option("Nothing", "Each guess is a row of all matrix products."),
        ),
    ),
    Recall(
        "11.beams",
        "Beam search with 4 beams: why does it hold fewer blocks than 4 samples of the same length?",
        (
            Option("It computes fewer tokens", "Each beam writes as many."),
            Option(
                "Beams often descend from one parent, so they share what it wrote, too",
                "Samples share only the prompt.",
                right=True,
            ),
            Option("It forgets old tokens", "Every beam keeps its whole text."),
        ),
    ),
]
