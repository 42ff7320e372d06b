"""Exercises of lesson 17, a first kernel."""

from math import exp

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def _part(seed, size=3, highest=None):
    """What is carried of some scores: (highest, total, result [size])."""
    random = torch.Generator().manual_seed(seed)
    numbers = torch.rand(size + 2, generator=random, dtype=torch.float64)
    return torch.tensor(highest or 6 * numbers[0].item(), dtype=torch.float64), 1 + numbers[1], numbers[2:]


@exercise(
    "17.merge",
    cases=lambda: [
        dict(a=_part(1, highest=2.0), b=_part(2, highest=5.0)),
        dict(a=_part(3, highest=4.0), b=_part(4, highest=1.0)),
        dict(a=_part(5, highest=3.0), b=_part(6, highest=3.0)),
        dict(a=_part(7, size=1), b=_part(8, size=1)),
        dict(a=_part(9, highest=-800.0), b=_part(10, highest=-801.0)),
        dict(a=_part(11, highest=900.0), b=_part(12, highest=-900.0)),
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "The weights in both parts have to be relative to one maximum: the higher of the two.",
        "exp(s - above) is exp(s - highest) times exp(highest - above). That factor is the same for all s of "
        "a part, so it can be applied to sums.",
        "Both the total and the result of a part are sums of weights: both shrink by the part's factor.",
    ],
    tolerance=1e-12,
)
def merge(a, b):
    """Two parts of a softmax as one -> (highest, total, result)

    a, b: (highest, total, result), as from ``part``: a part's highest score, the sum of its weights
    exp(score - highest), and the sum [D] of its values times these weights.
    """
    # solve
    from math import exp

    above = max(a[0], b[0])
    shrink_a, shrink_b = exp(a[0] - above), exp(b[0] - above)
    return above, a[1] * shrink_a + b[1] * shrink_b, a[2] * shrink_a + b[2] * shrink_b
    # end


@merge.mistake("these weights are relative to two different maxima: they cannot just be added.")
def _(a, b):
    return max(a[0], b[0]), a[1] + b[1], a[2] + b[2]


@merge.mistake("the results shrink like the totals: they are sums of the same weights, times values.")
def _(a, b):
    highest, total, _ = merge(a, b)
    return highest, total, a[2] + b[2]


@merge.mistake("the totals shrink like the results: both are sums of the same weights.")
def _(a, b):
    highest, _, result = merge(a, b)
    return highest, a[1] + b[1], result


@merge.mistake("that is the mean already. Keep the sum: only at the very end it is divided by the total.")
def _(a, b):
    highest, total, result = merge(a, b)
    return highest, total, result / total


def _sum(a, b, highest, factor_a, factor_b):
    """Both parts, each times a factor."""
    return highest, *(x * factor_a + y * factor_b for x, y in zip(a[1:], b[1:], strict=True))


@merge.mistake("you took the factors the wrong way round: the part with the lower maximum shrinks.")
def _(a, b):
    above = max(a[0], b[0])
    return _sum(a, b, above, exp(b[0] - above), exp(a[0] - above))


@merge.mistake("exp(above - highest) makes a part *grow*: the lower maximum is subtracted from the higher.")
def _(a, b):
    above = max(a[0], b[0])
    return _sum(a, b, above, exp(min(above - a[0], 700)), exp(min(above - b[0], 700)))


@merge.mistake("the second part need not have the higher maximum: take the higher of the two.")
def _(a, b):
    return _sum(a, b, b[0], exp(min(a[0] - b[0], 700)), 1.0)


@merge.mistake("without the maximum, exp runs over for large scores, and to 0 for small ones.")
def _(a, b):
    highest, *sums = _sum(a, b, max(a[0], b[0]), exp(a[0]), exp(b[0]))
    return highest, *(each / exp(highest) for each in sums)


def _row(seen, seed=0, poison=False):
    """Scores, which of them are seen, and values; with nan for values that are not."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(seen), generator=random) * 3
    values = torch.randn(len(seen), 2, generator=random)
    seen = torch.tensor([mark == "x" for mark in seen], dtype=torch.bool)
    if poison:
        values[~seen] = torch.nan
    return dict(scores=scores, seen=seen, values=values)


@exercise(
    "17.empty",
    cases=lambda: [
        _row("xxxxxxxx", 1) | dict(tile=4),
        _row("xxxxxx..", 2) | dict(tile=4),
        _row("....xxxx", 3) | dict(tile=4),
        _row("......xx..", 4) | dict(tile=2),
        _row("........", 5) | dict(tile=4),
        _row("", 6) | dict(tile=4),
        _row(".xxxxx..", 7, poison=True) | dict(tile=4),
        _row("....", 8, poison=True) | dict(tile=2),
    ],
    minutes=15,
    difficulty="medium",
    hints=[
        "-inf - (-inf) is nan. Which two differences can meet that? When is `above` still -inf?",
        "With a finite number, such as -1e30, in place of -inf all differences are numbers.",
        "What is not seen may hold anything as a value: 0 * nan is nan, and where nothing is seen yet, its "
        "weight is exp(0). With a 0 in its place neither matters.",
        "A row without any tile has the total 0, and 0 / 0 is nan, too.",
    ],
)
def robust(scores, seen, values, tile):
    """Attention of one row, a tile at a time -> [D]; zeros where nothing is seen

    scores [T], seen [T] (bool), values [T, D]; values that are not seen may be nan.
    """
    # solve
    highest, total = scores.new_tensor(-1e30), scores.new_tensor(0.0)
    result = scores.new_zeros(values.shape[1])
    for first in range(0, len(scores), tile):
        some = seen[first : first + tile]
        s = torch.where(some, scores[first : first + tile], -1e30)
        above = torch.maximum(highest, s.max())
        weights, shrink = (s - above).exp(), (highest - above).exp()
        total = total * shrink + weights.sum()
        result = result * shrink + weights @ torch.where(some[:, None], values[first : first + tile], 0.0)
        highest = above
    return result / total.clamp(min=1e-30)
    # end


def _fragile(scores, seen, values, tile, lowest=-1e30, all_weighed=True, masked=True, least=0, skip=False):
    """The loop with some of its faults left in."""
    highest, total = scores.new_tensor(lowest), scores.new_tensor(0.0)
    result = scores.new_zeros(values.shape[1])
    for first in range(0, len(scores), tile):
        some, v = seen[first : first + tile], values[first : first + tile]
        if skip and not some.any():
            continue
        s = torch.where(some, scores[first : first + tile], lowest)
        above = torch.maximum(highest, s.max())
        weights, shrink = torch.where(some | all_weighed, (s - above).exp(), 0.0), (highest - above).exp()
        total = total * shrink + weights.sum()
        result = result * shrink + weights @ (torch.where(some[:, None], v, 0.0) if masked else v)
        highest = above
    return result / total.clamp(min=least)


@robust.mistake("that is the function as it was, with all its faults.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, lowest=-torch.inf, masked=False)


@robust.mistake("that is a beginning. Where nothing is seen yet, weights are exp(0) = 1; and 0 / 0 is nan.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, masked=False)


@robust.mistake("0 * nan is nan: what is not seen must be masked among the values, too.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, all_weighed=False, masked=False, least=1e-30)


@robust.mistake("0 * nan is nan: mask the values, too. And a row that sees nothing divides 0 by 0.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, all_weighed=False, masked=False)


@robust.mistake("a tile of which only a part is seen still has values that are not seen: 0 * nan is nan.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, masked=False, least=1e-30, skip=True)


@robust.mistake("a row without any tile has the total 0, and 0 / 0 is nan.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile)


@robust.mistake("turning nan into 0 at the end also makes 0 of rows that see something, only later.")
def _(scores, seen, values, tile):
    return _fragile(scores, seen, values, tile, lowest=-torch.inf).nan_to_num(0.0)


@exercise(
    "17.offsets",
    cases=lambda: [
        dict(tokens=[0, 1, 2, 3], table=[0], block_size=4, kv_heads=1, dim=8, kv_head=0),
        dict(tokens=[0, 3, 4, 9], table=[7, 2, 5], block_size=4, kv_heads=1, dim=1, kv_head=0),
        dict(tokens=[0, 3, 4, 9], table=[7, 2, 5], block_size=4, kv_heads=3, dim=8, kv_head=2),
        dict(tokens=[5, 6, 7], table=[1, 0, 3, 9, 8], block_size=2, kv_heads=5, dim=3, kv_head=1),
        dict(tokens=[0, 2], table=[4, 3, 6], block_size=1, kv_heads=2, dim=4, kv_head=1),
        dict(tokens=[], table=[3], block_size=16, kv_heads=8, dim=128, kv_head=0),
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Which entry of the table does a token fall into, and at which place of that block does it stand?",
        "A block has block_size places, a place kv_heads keys, a key dim numbers: multiply your way down.",
        "slot = block * block_size + place; key = slot * kv_heads + kv_head; offset = key * dim.",
    ],
)
def offsets(tokens, table, block_size, kv_heads, dim, kv_head):
    """Where each token's key begins, counted in numbers from the start of k_pages -> list of int

    tokens: positions in the text; table: its blocks. k_pages is [num_blocks, block_size, kv_heads, dim], in
    one piece.
    """
    # solve
    found = []
    for token in tokens:
        slot = table[token // block_size] * block_size + token % block_size
        found.append((slot * kv_heads + kv_head) * dim)
    return found
    # end


@offsets.mistake("that is where the tokens would lie without a table, one after the other.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [(token * kv_heads + kv_head) * dim for token in tokens]


@offsets.mistake(
    "that goes from a block straight to its first place: add the place of the token in its block."
)
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [(table[token // block_size] * block_size * kv_heads + kv_head) * dim for token in tokens]


@offsets.mistake("a place has a key of *every* KV head: multiply by kv_heads.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [offset * dim for offset in _slots(tokens, table, block_size, kv_head)]


@offsets.mistake("a token has a key of every KV head: that leaves the heads out.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [slot * dim for slot in _slots(tokens, table, block_size, 0)]


@offsets.mistake("the KV head counts in keys, too: a head further on is dim numbers further on.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [slot * kv_heads * dim + kv_head for slot in _slots(tokens, table, block_size, 0)]


@offsets.mistake("that orders the pages by head first; in k_pages the heads of a token lie side by side.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [
        ((table[t // block_size] * kv_heads + kv_head) * block_size + t % block_size) * dim for t in tokens
    ]


@offsets.mistake("that counts keys; each of them has dim numbers.")
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [slot * kv_heads + kv_head for slot in _slots(tokens, table, block_size, 0)]


@offsets.mistake(
    "a block begins block_size tokens after the one before it: multiply the block by block_size."
)
def _(tokens, table, block_size, kv_heads, dim, kv_head):
    return [((table[t // block_size] + t % block_size) * kv_heads + kv_head) * dim for t in tokens]


def _slots(tokens, table, block_size, more):
    return [table[token // block_size] * block_size + token % block_size + more for token in tokens]


RECALL["17"] = [
    Recall(
        "17.arithmetic",
        "Why does a decode kernel hardly gain from a GPU with faster arithmetic?",
        (
            Option("It waits for keys and values", "It does some 4 FLOPs for each byte.", right=True),
            Option("It computes in float32", "Even then there is some five times what it needs."),
            Option("Its programs wait for each other", "They do not even know of each other."),
        ),
    ),
    Recall(
        "17.place",
        "What tells one program of a kernel from another?",
        (
            Option("Its arguments", "All programs get the same."),
            Option("Its place in the grid", "From it, all offsets follow.", right=True),
            Option("Its multiprocessor", "Any may get any of them, in any order."),
        ),
    ),
    Recall(
        "17.mask",
        "The last tile goes beyond the end of the data. What happens without a mask?",
        (
            Option("The GPU reports an IndexError", "It does not know how long a tensor is."),
            Option("Zeros are read", "Only a mask puts something in place of what is not there."),
            Option(
                "It reads what lies there, or the process dies", "Depending on what lies there.", right=True
            ),
        ),
    ),
    Recall(
        "17.shrink",
        "A new tile has a higher score than all before. What has to shrink?",
        (
            Option("Only the total", "The result is a sum of the same weights."),
            Option("The total and the result", "By the same factor.", right=True),
            Option("The new tile's weights", "They are relative to the new maximum already."),
        ),
    ),
    Recall(
        "17.exact",
        "Is online softmax an approximation?",
        (
            Option("Yes, it does not know the highest score yet", "It makes up for that, exactly."),
            Option("Only where parts are merged", "Merging is exact, too, in any order."),
            Option("No", "It is the same sum, taken in another order.", right=True),
        ),
    ),
    Recall(
        "17.values",
        "Beyond the context the weights are 0. Why are the values masked there as well?",
        (
            Option("0 times nan is nan", "And unused slots may hold anything.", right=True),
            Option("It saves multiplications", "The tile is multiplied whole."),
            Option("The weights are not quite 0", "They are exactly 0."),
        ),
    ),
]
