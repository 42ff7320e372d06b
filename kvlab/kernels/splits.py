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
    tokens = max(tokens, 1)
    best, busiest = 1, 0.0
    for parts in range(1, max(1, min(tokens // max(SHORTEST, tile), MOST)) + 1):
        cut = -(-tokens // share(tokens, parts, tile))  # into whole tiles, so there may be fewer
        busy = occupancy(programs * cut, multiprocessors)
        if busy > busiest:
            best, busiest = cut, busy
        if busy >= ENOUGH:
            break
    return best


def occupancy(programs, multiprocessors):
    """Share of the multiprocessors that have work, when each has one of equal programs at a time -> float."""
    turns = -(-programs // multiprocessors)
    return programs / (turns * multiprocessors)
