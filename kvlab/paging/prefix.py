"""What a prefix cache finds, and what every prefix cache answers.

``match`` finds the longest beginning that is stored, ``lock`` and ``unlock`` say that somebody uses it,
``insert`` stores more, ``evict`` gives blocks back to the pool, ``check`` verifies all of it. A namespace
keeps texts apart whatever their tokens: any hashable value, compared by type, too.
"""

import struct
from dataclasses import dataclass
from operator import index

TOKEN = struct.calcsize("i")


@dataclass(frozen=True)
class Prefix:
    """The first ``tokens`` tokens of a text are stored; ``blocks`` are those that this call found or stored.

    ``place`` is where the path ends, and the cache's own.
    """

    tokens: int
    blocks: list
    place: object


def packed(tokens, block_size, most=None):
    """The tokens, or the first ``most`` of them, that fill whole blocks, as bytes that compare fast.

    ValueError for what are no ids.
    """
    n = len(tokens) if most is None else max(min(most, len(tokens)), 0)
    whole = n // block_size * block_size
    try:
        return struct.pack(f"{whole}i", *tokens[:whole])
    except struct.error as error:
        raise ValueError(f"tokens are ids, whole numbers of 31 bits: {error}") from None


def check_filled(tokens, blocks, block_size):
    if len(tokens) < len(blocks) * block_size:
        raise ValueError(
            f"{len(tokens)} tokens do not fill {len(blocks)} blocks of {block_size}: give whole blocks"
        )


def check_count(n):
    if index(n) < 0:
        raise ValueError(f"{n} blocks cannot be evicted: give 0 or more")
