"""Exercises of lesson 04, the KV cache."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def _append_cases():
    random = torch.Generator().manual_seed(4)

    def rows(n, width, heads=2, dtype=torch.float64):
        return torch.randn(n, heads, width, generator=random, dtype=torch.float64).to(dtype)

    return [
        dict(cache=None, k=rows(3, 5), v=rows(3, 4)),
        dict(cache=(rows(3, 5), rows(3, 4)), k=rows(1, 5), v=rows(1, 4)),
        dict(cache=(rows(2, 5), rows(2, 4)), k=rows(6, 5), v=rows(6, 4)),
        dict(cache=(rows(4, 7, 3), rows(4, 6, 3)), k=rows(2, 7, 3), v=rows(2, 6, 3)),
        dict(
            cache=(rows(2, 4, 1, torch.bfloat16), rows(2, 3, 1, torch.bfloat16)),
            k=rows(1, 4, 1, torch.bfloat16),
            v=rows(1, 3, 1, torch.bfloat16),
        ),
    ]


@exercise(
    "04.append",
    cases=_append_cases,
    minutes=5,
    difficulty="easy",
    hints=[
        "At the first call there is nothing to append to: what should the cache be then?",
        "torch.cat([old, new]) joins along the first dimension, and that is the one that counts tokens.",
    ],
)
def append(cache, k, v):
    """Keep the keys and values of n new tokens behind the t old ones.

    cache: ``None`` at first, afterwards what the last call returned
    k [n, Hkv, Dk], v [n, Hkv, Dv]  ->  (keys [t + n, Hkv, Dk], values [t + n, Hkv, Dv])
    """
    # solve
    if cache is None:
        return k, v
    keys, values = cache
    return torch.cat([keys, k]), torch.cat([values, v])
    # end


@append.mistake("only the new tokens come back: the old rows were never put in front of them.")
def _(cache, k, v):
    return k, v


@append.mistake("the new rows stand before the old ones. The row of a token is its position.")
def _(cache, k, v):
    return (k, v) if cache is None else (torch.cat([k, cache[0]]), torch.cat([v, cache[1]]))


@append.mistake("keys and values are exchanged.")
def _(cache, k, v):
    return (v, k) if cache is None else (torch.cat([cache[1], v]), torch.cat([cache[0], k]))


@append.mistake("the first call fails: cache is None then.")
def _(cache, k, v):
    return torch.cat([cache[0], k]), torch.cat([cache[1], v])


@append.mistake("that joins heads. Tokens are the first dimension.")
def _(cache, k, v):
    return (k, v) if cache is None else (torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1))


@append.mistake("the values were not appended.")
def _(cache, k, v):
    return (k, v) if cache is None else (torch.cat([cache[0], k]), v)


@exercise(
    "04.copied",
    cases=lambda: [dict(tokens=t, token_bytes=b) for t, b in ((1, 10), (2, 10), (5, 7), (1000, 4096))],
    minutes=5,
    difficulty="easy",
    hints=[
        "When token number 3 arrives, two tokens lie in the cache. How many of them are copied?",
        "0 + 1 + 2 + ... + (tokens - 1): you know a formula for that.",
    ],
)
def copied(tokens, token_bytes):
    """Bytes that a GrowingCache copies while ``tokens`` tokens arrive one by one into an empty cache.

    token_bytes: what one token's keys and values take, all layers together -> int
    """
    # solve
    return tokens * (tokens - 1) // 2 * token_bytes
    # end


@copied.mistake("that is what the last arrival copies. Add up all the arrivals.")
def _(tokens, token_bytes):
    return (tokens - 1) * token_bytes


@copied.mistake("that is what it stores. Each arrival also copies everything that was there before.")
def _(tokens, token_bytes):
    return tokens * token_bytes


@copied.mistake("the arriving token is written, not copied: only the older ones are. Start the sum at 0.")
def _(tokens, token_bytes):
    return tokens * (tokens + 1) // 2 * token_bytes


@copied.mistake("not every arrival copies all tokens: the first copies none, the second one, and so on.")
def _(tokens, token_bytes):
    return tokens * tokens * token_bytes


@copied.mistake("bytes are whole numbers: divide with // and not with /.")
def _(tokens, token_bytes):
    return tokens * (tokens - 1) / 2 * token_bytes


@exercise(
    "04.hidden",
    cases=lambda: [dict(n=n, t=t) for n, t in ((5, 5), (1, 6), (3, 7), (4, 4), (2, 9))],
    minutes=10,
    difficulty="medium",
    hints=[
        "Query i of the chunk is not token i of the text. At which position does it stand, when t tokens are "
        "there in all and the chunk is the last n of them?",
        "Give every query and every key its position, then compare: hidden means that the key is later.",
        "torch.arange(t) are the keys' positions, torch.arange(t - n, t) the queries'. Compare them as a "
        "column against a row: queries[:, None] < keys[None, :].",
    ],
)
def hidden(n, t):
    """Which keys may the queries of a chunk NOT see? -> bool [n, t], True where hidden.

    t tokens are there in all; the chunk is the last n of them.
    """
    # solve
    queries, keys = torch.arange(t - n, t), torch.arange(t)
    return queries[:, None] < keys[None, :]  # [n, t]
    # end


@hidden.mistake("the chunk's first query is taken for the text's first token, so it loses the whole prefix.")
def _(n, t):
    return torch.ones(n, t, dtype=torch.bool).triu(diagonal=1)


@hidden.mistake("a token may see itself: hide only what is later.")
def _(n, t):
    return torch.arange(t - n, t)[:, None] <= torch.arange(t)[None, :]


@hidden.mistake("the answer is upside down: True has to mean hidden.")
def _(n, t):
    return torch.arange(t - n, t)[:, None] >= torch.arange(t)[None, :]


@hidden.mistake("nothing is hidden: inside the chunk, a query may still not see later keys.")
def _(n, t):
    return torch.zeros(n, t, dtype=torch.bool)


@hidden.mistake("the mask covers the chunk alone. Its queries look at the prefix too: t columns.")
def _(n, t):
    return torch.ones(n, n, dtype=torch.bool).triu(diagonal=1)


@hidden.mistake("every query sees one key too many: query i stands at position t - n + i.")
def _(n, t):
    return torch.arange(t - n + 1, t + 1)[:, None] < torch.arange(t)[None, :]


RECALL["04"] = [
    Recall(
        "04.validity",
        "Why may the key of an old token be kept, in every layer?",
        (
            Option(
                "It is computed from its own token alone",
                "That holds in layer 0 only. Above, a key comes from a vector that saw earlier tokens.",
            ),
            Option(
                "Nothing that comes later can change it",
                "That is causality: in every layer, position t depends on positions up to t.",
                right=True,
            ),
            Option(
                "The weights do not change while generating",
                "True, but without the causal mask old keys would change all the same, with every new token.",
            ),
            Option(
                "It changes a little, but too little to matter",
                "In exact arithmetic it does not change at all; float64 showed less than 1e-12.",
            ),
        ),
    ),
    Recall(
        "04.query",
        "Why is no query kept?",
        (
            Option(
                "An old query would come out differently later",
                "It would come out the same, like a key. It is just never needed again.",
            ),
            Option(
                "It is used in one step only, the one in which its token is new",
                "Later steps ask with their own queries. Keeping old ones would save nothing.",
                right=True,
            ),
            Option(
                "Queries are larger than keys",
                "With grouped heads they are, but with equal sizes they are not kept either.",
            ),
        ),
    ),
    Recall(
        "04.flat",
        "With a cache, what does a decode step cost as the text grows?",
        (
            Option(
                "Always the same: one token goes through the model",
                "The projections and the MLP do cost the same. Attention meets one more key each step.",
            ),
            Option(
                "A fixed part, plus a small part that grows with the tokens so far",
                "The new query meets every earlier key and value. Lesson 06 is about that reading.",
                right=True,
            ),
            Option(
                "As the square of the text's length",
                "That is the attention work of the whole text together; one step is linear.",
            ),
        ),
    ),
    Recall(
        "04.bf16",
        "In bf16 your cache gives logits that are off by 0.05 against no cache. What do you do?",
        (
            Option("Nothing, that is rounding", "It may be. A broken mask can look just like it."),
            Option(
                "Look for the bug", "There may be none: bf16 alone does that. First find out which it is."
            ),
            Option(
                "Run both in float64 and compare again",
                "Rounding shrinks below 1e-10 there. A bug stays as large as it was.",
                right=True,
            ),
        ),
    ),
    Recall(
        "04.reserve",
        "Growing or static: which cache is better?",
        (
            Option("Static: it never copies", "It holds memory for text that may never be written."),
            Option("Growing: it holds only what it needs", "It copies all it has for every token."),
            Option(
                "Neither: one pays in copies, the other in reserved memory",
                "Blocks that are handed out as the text grows avoid both: lesson 10.",
                right=True,
            ),
        ),
    ),
]
