"""Into how many parts to cut the contexts of a batch, so that all of a GPU has work."""

WAVES = 4  # so many turns of all multiprocessors make the last, unfilled one cheap
SHORTEST = 256  # tokens of a part; below it, starting and merging cost more than is won
MOST = 64  # parts of one context, which ``merge`` holds all at once


def share(tokens, splits, tile):
    """Tokens of a part, a multiple of ``tile``, where at most ``splits`` make up a context of ``tokens``."""
    return -(-max(tokens, 1) // (min(splits, MOST) * tile)) * tile


def choose(programs, tokens, tile, multiprocessors):
    """Parts of a context -> int. ``programs``: as many there are without; ``tokens``: of the longest."""
    wanted = -(-WAVES * multiprocessors // programs)
    possible = max(1, tokens // max(SHORTEST, tile))
    return min(wanted, possible, MOST)


def occupancy(programs, multiprocessors):
    """Share of the multiprocessors that have work, when each has one of equal programs at a time -> float."""
    turns = -(-programs // multiprocessors)
    return programs / (turns * multiprocessors)
