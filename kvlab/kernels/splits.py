"""Into how many parts to cut the contexts of a batch, so that all of a GPU has work."""

ENOUGH = 0.9  # share of the multiprocessors that should have work
SHORTEST = 256  # tokens of a part; below it, starting and merging cost more than is won
MOST = 64  # parts of one context, which ``merge`` holds all at once


def share(tokens, splits, tile):
    """Tokens of a part, a multiple of ``tile``, where at most ``splits`` make up a context of ``tokens``."""
    return -(-max(tokens, 1) // (min(splits, MOST) * tile)) * tile


def choose(programs, tokens, tile, multiprocessors):
    """The fewest parts of a context that keep a GPU busy enough, or as busy as can be -> int.

    programs: as many there are without parts. tokens: of the longest context.
    """
    possible = max(1, min(tokens // max(SHORTEST, tile), MOST))
    busy = [occupancy(programs * parts, multiprocessors) for parts in range(1, possible + 1)]
    return next((n for n, each in enumerate(busy, 1) if each >= ENOUGH), 1 + busy.index(max(busy)))


def occupancy(programs, multiprocessors):
    """Share of the multiprocessors that have work, when each has one of equal programs at a time -> float."""
    turns = -(-programs // multiprocessors)
    return programs / (turns * multiprocessors)
