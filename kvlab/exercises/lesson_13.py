"""Exercises of lesson 13, prefix reuse."""

from os.path import commonprefix

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def shared(one, other):
    return len(commonprefix([one, other]))


@exercise(
    "13.found",
    cases=lambda: [
        dict(prompt=prompt, texts=texts, block_size=block_size)
        for prompt, texts, block_size in (
            ([1, 2, 3, 4, 5, 6, 7, 8, 9], [[1, 2, 3, 4, 5, 6, 7, 8, 0, 0]], 4),
            ([1, 2, 3, 4, 5, 6, 7, 8, 9], [[1, 2, 3, 4, 5, 6, 0, 0]], 4),
            ([1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4, 5, 6, 7, 8]], 4),
            ([1, 2, 3, 4, 5, 6, 7, 8], [[1, 2, 3, 4, 5, 6, 7, 8]], 1),
            ([1, 2, 3, 4, 5, 6], [[0, 2, 3, 4, 5, 6, 7, 8]], 2),
            ([5, 6, 7, 8, 9], [[1, 2, 3, 4, 5, 6, 7, 8]], 4),
            ([1, 2, 3, 4, 5, 6, 7], [[1, 2, 0, 0], [1, 2, 3, 4, 5, 0], [1, 0, 0, 0]], 2),
            ([1, 2, 3, 4, 5, 6, 7], [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8]], 3),
            ([1, 2, 3], [[1, 2, 3, 4, 5, 6, 7, 8]], 4),
            ([1, 2, 3, 4, 5], [[1, 2, 3]], 2),
            ([1, 2], [], 1),
        )
    ],
    minutes=10,
    difficulty="easy",
    hints=[
        "How many tokens do the prompt and one text have in common, counted from the first until they part?",
        "The most over all texts, but never all of the prompt: its last token has to be computed.",
        "Only whole blocks are found: `n // block_size * block_size`.",
    ],
)
def found(prompt, texts, block_size):
    """How many of a prompt's tokens need not be computed -> int

    texts: lists of tokens whose full blocks are all stored. Only whole blocks from the beginning on can be
    found, and the last token of the prompt is always computed: its logits give the answer's first token.
    """
    # solve
    most = 0
    for text in texts:
        n = 0
        while n < min(len(prompt) - 1, len(text)) and prompt[n] == text[n]:
            n += 1
        most = max(most, n)
    return most // block_size * block_size
    # end


@found.mistake("only whole blocks are found: round down to a multiple of the block size.")
def _(prompt, texts, block_size):
    return min(max((shared(prompt, text) for text in texts), default=0), len(prompt) - 1)


@found.mistake("a prompt that is stored whole: then who computes the logits of its last token?")
def _(prompt, texts, block_size):
    return max((shared(prompt, text) // block_size * block_size for text in texts), default=0)


@found.mistake("minus one, and then round down to whole blocks; not the other way round.")
def _(prompt, texts, block_size):
    most = max((shared(prompt, text) // block_size * block_size for text in texts), default=0)
    return min(most, len(prompt) - 1)


@found.mistake("the minus one is for the prompt's last token alone: a text that parts earlier costs nothing.")
def _(prompt, texts, block_size):
    most = max((shared(prompt, text) for text in texts), default=0)
    return max(most - 1, 0) // block_size * block_size


@found.mistake("equal tokens at the same places do not count once the texts have parted: stop there.")
def _(prompt, texts, block_size):
    same = [sum(a == b for a, b in zip(prompt[:-1], text, strict=False)) for text in texts]
    return max(same, default=0) // block_size * block_size


STORED = {
    (None, "abcd"): 0,
    (0, "efgh"): 2,
    (2, "abcd"): 5,
    (0, "abcd"): 9,
    (None, "efgh"): 4,
    (4, "ijkl"): 1,
    (9, "mnop"): 3,
}


@exercise(
    "13.walk",
    cases=lambda: [
        dict(text=text, stored=STORED, block_size=4)
        for text in (
            "abcdefghabcd",
            "abcdabcdmnop",
            "efghijkl",
            "abcdijkl",
            "efghabcd",
            "abcdefghab",
            "abcdxxxxefgh",
            "ijklabcd",
            "abc",
            "",
        )
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Keep the number of the block before, `None` at first. Which key does the next one have?",
        "Stop at the first one that is not stored; a piece shorter than a block is never stored.",
    ],
)
def walk(text, stored, block_size):
    """The blocks that hold the beginning of a text, all of it if all is stored -> list of block numbers

    text: a string; each letter is a token. stored: {(number of the block before, letters): block}; before the
    first one stands None, and 0 is a block like any other.
    """
    # solve
    blocks, before = [], None
    for at in range(0, len(text), block_size):
        before = stored.get((before, text[at : at + block_size]))
        if before is None:
            break
        blocks.append(before)
    return blocks
    # end


@walk.mistake("the key has the block before in it; None stands before the first one only.")
def _(text, stored, block_size):
    blocks = []
    for at in range(0, len(text), block_size):
        block = stored.get((None, text[at : at + block_size]))
        if block is None:
            break
        blocks.append(block)
    return blocks


@walk.mistake("block 0 is a block: compare with None, since `not 0` is true.")
def _(text, stored, block_size):
    blocks, before = [], None
    for at in range(0, len(text), block_size):
        before = stored.get((before, text[at : at + block_size]))
        if not before:
            break
        blocks.append(before)
    return blocks


@walk.mistake("after a miss nothing counts any more: what stands behind it was computed after other tokens.")
def _(text, stored, block_size):
    blocks, before = [], None
    for at in range(0, len(text), block_size):
        block = stored.get((before, text[at : at + block_size]))
        if block is not None:
            blocks.append(block)
            before = block
    return blocks


@walk.mistake("the same letters after something else are another block: look for the pair, not for letters.")
def _(text, stored, block_size):
    letters, blocks = {letters: block for (_, letters), block in stored.items()}, []
    for at in range(0, len(text), block_size):
        if text[at : at + block_size] not in letters:
            break
        blocks.append(letters[text[at : at + block_size]])
    return blocks


@walk.mistake("of a text that misses somewhere the blocks before the miss are still good: keep them.")
def _(text, stored, block_size):
    blocks, before = [], None
    for at in range(0, len(text) // block_size * block_size, block_size):
        before = stored.get((before, text[at : at + block_size]))
        if before is None:
            return []
        blocks.append(before)
    return blocks


@exercise(
    "13.insert",
    cases=lambda: [
        dict(tree=tree, text=text)
        for tree, text in (
            ({}, "the cat"),
            ({"the cat": {}}, "the dog"),
            ({"the cat": {}}, "a dog"),
            ({"the cat": {}}, "the cat sat"),
            ({"the cat": {}}, "the"),
            ({"the cat": {}}, "the cat"),
            ({"the ": {"cat": {}, "dog": {}}}, "the cow"),
            ({"the ": {"cat": {}, "dog": {}}}, "the cat sat"),
            ({"the ": {"cat": {" ": {"sat": {}, "ran": {}}}, "dog": {}}}, "the cat slept"),
            ({"the ": {"cat": {" ": {"sat": {}, "ran": {}}}, "dog": {}}, "a": {}}, "there"),
        )
    ],
    minutes=20,
    difficulty="hard",
    hints=[
        "At most one of the runs begins as the text does. If none does: the whole text is a new run.",
        "Say `n` letters are shared with `run`. If that is all of `run`: put the rest of the text into the "
        "tree below it, with `insert` itself. If it is all of the text: nothing is new.",
        "Else the texts part within the run. Its place is taken by `run[:n]`, below which there are two: "
        "`run[n:]`, with all that was below it, and `text[n:]`.",
    ],
)
def insert(tree, text):
    """The radix tree with one more text in it -> a new tree; ``tree`` itself stays as it is

    A tree is {run: the tree below it}, where runs are strings that begin with different letters. Here a run
    is split only where two texts part. ``os.path.commonprefix([run, text])`` is what both begin with.
    """
    # solve
    from os.path import commonprefix

    for run, below in tree.items():
        n = len(commonprefix([run, text]))
        if n == len(text):
            return tree
        if n == len(run):
            return {**tree, run: insert(below, text[n:])}
        if n:
            others = {other: it for other, it in tree.items() if other != run}
            return {**others, run[:n]: {run[n:]: below, text[n:]: {}}}
    return {**tree, text: {}}
    # end


def parted(tree, text, upper):
    """Walk down; where a text parts within a run, ``upper(run, below, n, text)`` says what then is."""
    for run, below in tree.items():
        n = shared(run, text)
        if n == len(text):
            return tree
        if n == len(run):
            return {**tree, run: parted(below, text[n:], upper)}
        if n:
            others = {other: it for other, it in tree.items() if other != run}
            return {**others, **upper(run, below, n, text)}
    return {**tree, text: {}}


@insert.mistake("what was below the run that you split has to go down with its second half.")
def _(tree, text):
    return parted(tree, text, lambda run, below, n, text: {run[:n]: {run[n:]: {}, text[n:]: below}})


@insert.mistake("what was below the run that you split is lost: it belongs below its second half.")
def _(tree, text):
    return parted(tree, text, lambda run, below, n, text: {run[:n]: {run[n:]: {}, text[n:]: {}}})


@insert.mistake("where two texts part, the run has to be split: the part that they share is stored once.")
def _(tree, text):
    return parted(tree, text, lambda run, below, n, text: {run: below, text: {}})


@insert.mistake("the text's own rest goes below the shared part, beside the run's: you lost it.")
def _(tree, text):
    return parted(tree, text, lambda run, below, n, text: {run[:n]: {run[n:]: below}})


@insert.mistake("a text that ends within a run is there already: a run is split only where two texts part.")
def _(tree, text):
    for run, below in tree.items():
        n = shared(run, text)
        if n == len(run):
            return {**tree, run: insert(below, text[n:]) if text[n:] else below}
        if n:
            others = {other: it for other, it in tree.items() if other != run}
            rest = {text[n:]: {}} if text[n:] else {}
            return {**others, run[:n]: {run[n:]: below, **rest}}
    return {**tree, text: {}}


RECALL["13"] = [
    Recall(
        "13.suffix",
        "Two prompts share 500 tokens and then differ. Which of the keys and values of the 500 are the same?",
        (
            Option("All of them", "A token's keys and values depend on what stands before it.", right=True),
            Option("Those of the first layer only", "That is so where what stands before differs."),
            Option("None: attention mixes all tokens", "Causal attention mixes in what came before only."),
        ),
    ),
    Recall(
        "13.early",
        "A prompt of 1,000 tokens is stored; a second differs from it in token 5 only; blocks of 16. Found?",
        (
            Option("All but the block with token 5", "What comes after it was computed from another text."),
            Option("Nothing", "The first block differs, and all others come after it.", right=True),
            Option("Tokens 0 to 4", "They are in a block that is not whole."),
        ),
    ),
    Recall(
        "13.whole",
        "A prompt of 48 tokens is stored, all 3 blocks of it, and comes again. How many tokens are computed?",
        (
            Option("None", "Then nobody has the logits for the first token of the answer."),
            Option("1", "It stands in a block of 16, and blocks are found whole or not at all."),
            Option("16", "The last token has to be computed, and so its block.", right=True),
        ),
    ),
    Recall(
        "13.chain",
        "Why is a block known by its tokens and the block before it?",
        (
            Option("To find it faster", "One look-up each, with or without."),
            Option(
                "Equal tokens after other tokens have other keys and values",
                "Context is in them.",
                right=True,
            ),
            Option("To know the order of the blocks", "The block table knows it."),
        ),
    ),
    Recall(
        "13.adapter",
        "Two LoRA adapters change q_proj and v_proj, but not k_proj. May they share a prefix's keys?",
        (
            Option("Yes: k_proj is the same", "Its input is not, from the second layer on."),
            Option("In the first layer only, which is of no use", "And values in none.", right=True),
            Option("Yes, and the values too, if the prompt is the same", "v_proj itself has changed."),
        ),
    ),
    Recall(
        "13.persistent",
        "Two new servers with prefix caches run side by side. What is in the cache of one of them later?",
        (
            Option("What was in it before its last restart", "It lay in the GPU's memory."),
            Option(
                "Its own requests' texts, until it restarts",
                "Unless blocks also go to a shared store.",
                right=True,
            ),
            Option("Whatever either has computed", "Not unless somebody sends blocks across (lesson 16)."),
        ),
    ),
]
