"""Paged problems, and what comes out of them by the plainest means: one query, one head at a time."""

import torch
from hypothesis import strategies as st


@st.composite
def problems(draw):
    """Sizes of one call of ``paged_attention``; every dimension can differ from every other."""
    lengths = st.integers(0, 23)
    contexts = draw(st.lists(lengths, min_size=1, max_size=5))
    return {
        "contexts": contexts,
        "queries": [draw(st.integers(min(context, 1), min(context, 7))) for context in contexts],
        "block_size": draw(st.sampled_from([1, 2, 3, 4, 16])),
        "kv_heads": draw(st.integers(1, 3)),
        "group": draw(st.integers(1, 4)),
        "key_dim": draw(st.integers(1, 6)),
        "value_dim": draw(st.integers(1, 5)),
        "values_in_keys": draw(st.booleans()),
        "window": draw(st.none() | st.integers(1, 9)),
        "sinks": draw(st.booleans()),
        "in_order": draw(st.booleans()),
        "seed": draw(st.integers(0, 9999)),
    }


def build(contexts, queries, block_size, kv_heads, group, key_dim, value_dim, values_in_keys, window, **more):
    """Arguments of ``paged_attention``: pages in a random order, and NaN wherever no token lies."""
    random = torch.Generator().manual_seed(more.get("seed", 0))

    def numbers(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    needed = [-(-context // block_size) for context in contexts]
    num_blocks, width = sum(needed) + 3, max(needed) + 2
    order = list(range(num_blocks)) if more.get("in_order") else torch.randperm(num_blocks, generator=random)
    free = iter([int(block) for block in order])
    k_pages = torch.full((num_blocks, block_size, kv_heads, key_dim), torch.nan, dtype=torch.float64)
    v_pages = torch.full((num_blocks, block_size, kv_heads, value_dim), torch.nan, dtype=torch.float64)
    tables = torch.full((len(contexts), width), 10**6)  # no such page: nobody may look there
    for b, context in enumerate(contexts):
        blocks = [next(free) for _ in range(needed[b])]
        tables[b, : needed[b]] = torch.tensor(blocks, dtype=torch.int64)
        for pages, size in ((k_pages, key_dim), (v_pages, value_dim)):
            for t in range(context):
                pages[blocks[t // block_size], t % block_size] = numbers(kv_heads, size)
    given = {
        "q": numbers(sum(queries), kv_heads * group, key_dim),
        "k_pages": k_pages,
        "v_pages": None if values_in_keys else v_pages,
        "block_tables": tables,
        "context_lens": torch.tensor(contexts),
        "query_lens": torch.tensor(queries),
    }
    options = {"scale": 0.37, "window": window}
    if values_in_keys:
        options["v_dim"] = min(value_dim, key_dim)
    if more.get("sinks"):
        options["sink_logits"] = numbers(kv_heads * group)
    return given, options


def expected(given, options):
    """The same by loops -> [N, Hq, Dv]."""
    q, k_pages, v_pages = given["q"], given["k_pages"], given["v_pages"]
    size, kv_heads = k_pages.shape[1:3]
    value_dim = options["v_dim"] if v_pages is None else v_pages.shape[3]
    out, row = torch.zeros(len(q), q.shape[1], value_dim, dtype=torch.float64), 0
    for table, context, n in zip(
        given["block_tables"].tolist(),
        given["context_lens"].tolist(),
        given["query_lens"].tolist(),
        strict=True,
    ):
        for position in range(context - n, context):
            first = 0 if options["window"] is None else max(0, position + 1 - options["window"])
            for head in range(q.shape[1]):
                shared = head // (q.shape[1] // kv_heads)
                seen = [(table[t // size], t % size, shared) for t in range(first, position + 1)]
                keys = torch.stack([k_pages[place].double() for place in seen])
                values = keys[:, :value_dim]
                if v_pages is not None:
                    values = torch.stack([v_pages[place].double() for place in seen])
                weights = (keys @ q[row, head] * options["scale"]).exp()
                sink = options["sink_logits"][head].exp() if "sink_logits" in options else 0
                out[row, head] = (weights / (weights.sum() + sink)) @ values
            row += 1
    return out
