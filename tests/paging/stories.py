"""Stories of radix trees: one that is told step by step, and others in which random things happen."""

from contextlib import suppress
from random import Random

from kvlab.paging import BlockPool, OutOfBlocks, RadixTree, Story

SIZES = [(1, 1), (6, 1), (12, 3), (20, 4), (40, 5), (300, 2), (9, 16)]  # of pools
WORDS = ("the", "a unbelievably long word", "\n", "", "$x$", "<b>", "cat,", "�")


def spell(tokens):
    return [WORDS[token % len(WORDS)] + " " for token in tokens]


def ten():
    """Five requests in a pool of 12 blocks of 3 tokens, one of them in a namespace of its own."""
    numbers = {}

    def ids(words):
        return [numbers.setdefault(word, len(numbers)) for word in words.split()]

    story = Story(RadixTree(BlockPool(12, 3)), lambda tokens: [f"{[*numbers][token]} " for token in tokens])
    system = "You are a kind assistant . "
    story.request("A", ids(system + "Who wrote Faust ?"))
    story.store("A", ids(system + "Who wrote Faust ? Goethe ."))
    story.request("B", ids(system + "Who wrote Hamlet ?"))
    story.store("B", ids(system + "Who wrote Hamlet ? Shakespeare did ."))
    story.end("A")
    story.request("C", ids(system + "Who wrote Faust ? Goethe . When ?"))
    story.store("C", ids(system + "Who wrote Faust ? Goethe . When ? In 1808 ."))
    story.end("B")
    story.request("D", ids("Translate : good night"), namespace="adapter")
    story.store("D")
    story.end("C")
    story.end("D")
    story.request("E", ids("Tell me a tale of a fox and a crow on a tree"))
    story.store("E")
    story.evict(2)
    return story


class Teller:
    """Does random things, one at a time."""

    def __init__(self, seed, num_blocks=20, size=4):
        self.choose, self.seen = Random(seed), [[]]
        self.story = Story(RadixTree(BlockPool(num_blocks, size)), spell)

    def step(self):
        """-> whether it was possible."""
        choose, story = self.choose, self.story
        kind = choose.choice(["request", "request", "store", "store", "store", "end", "evict"])
        if kind == "request" and len(story.tables) < 7:
            text = choose.choice(self.seen)
            text = text[: choose.randint(0, len(text))]
            text = text + [
                choose.randrange(9) for _ in range(choose.randint(0, 3 * story.tree.pool.block_size))
            ]
            name = choose.choice(["", "a rather long name ", "user "]) + str(len(story.moments))
            story.request(
                name, text, choose.choice([None, None, None, "x", 1]), choose.choice([None, len(text)])
            )
            self.seen.append(text)
        elif kind == "evict":
            story.evict(choose.randint(0, 3))
        elif story.tables:
            name = choose.choice(list(story.tables))
            if kind == "end":
                story.end(name)
            else:
                text = story.texts[name] + [choose.randrange(9) for _ in range(choose.choice([0, 0, 1, 9]))]
                with suppress(OutOfBlocks):
                    story.store(name, text, choose.choice([0, 0, 0, 1, 2]))
                    self.seen.append(text)


def told(seed, num_blocks=20, size=4, steps=40):
    """-> Story of so many steps at most."""
    teller = Teller(seed, num_blocks, size)
    for _ in range(steps):
        teller.step()
    return teller.story
