"""What the lessons look at: a softmax in parts, and small decode steps with pages in no order."""

import math

import torch

NOWHERE = 10**6  # a page that does not exist


def scattered(contexts, heads=6, kv_heads=2, dim=8, block_size=4, seed=1):
    """A new token each for sequences of so many tokens -> q, k_pages, v_pages, tables, contexts.

    They are the first arguments of ``paged_attention``, in float32. Slots without a token hold nan, and what
    tables have beyond a context leads to a page that does not exist.
    """
    random = torch.Generator().manual_seed(seed)
    needed = [-(-context // block_size) for context in contexts]
    free = torch.randperm(sum(needed) + 2, generator=random).tolist()
    k_pages, v_pages = torch.full([2, len(free), block_size, kv_heads, dim], torch.nan)
    tables = torch.full([len(contexts), max(needed) + 1], NOWHERE)
    for sequence, context in enumerate(contexts):
        for place in range(needed[sequence]):
            page, used = free.pop(), min(block_size, context - place * block_size)
            tables[sequence, place] = page
            for pages in (k_pages, v_pages):
                pages[page, :used] = torch.randn(used, kv_heads, dim, generator=random)
    q = torch.randn(len(contexts), heads, dim, generator=random)
    return q, k_pages, v_pages, tables, torch.tensor(contexts)


def merged(a, b):
    """Two parts of a softmax as one. A part is (highest score, total of exp(score - highest), result).

    The result is the sum [D] of the values times these weights. (Milakov and Gimelshein 2018, section 3.1.)
    """
    above = max(a[0], b[0])
    shrink_a, shrink_b = math.exp(a[0] - above), math.exp(b[0] - above)
    return above, a[1] * shrink_a + b[1] * shrink_b, a[2] * shrink_a + b[2] * shrink_b
