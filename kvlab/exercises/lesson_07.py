"""Exercises of lesson 07, sharing heads."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "07.kv_head",
    cases=lambda: [
        dict(head=head, num_heads=heads, num_kv_heads=kv)
        for heads, kv in ((6, 2), (6, 3), (12, 4), (5, 5), (7, 1))
        for head in range(heads)
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "With 6 query heads over 2 KV heads, heads 0, 1, 2 share the first and 3, 4, 5 the second.",
        "How large is a group? And in which group is head number 4?",
    ],
)
def kv_head(head, num_heads, num_kv_heads):
    """Which KV head does a query head read? -> int. Neighbours share one."""
    # solve
    return head // (num_heads // num_kv_heads)
    # end


@kv_head.mistake("that deals the heads out in turn, like cards. Neighbours share: 0, 0, 0, 1, 1, 1.")
def _(head, num_heads, num_kv_heads):
    return head % num_kv_heads


@kv_head.mistake("a group has num_heads // num_kv_heads members; num_kv_heads is how many groups there are.")
def _(head, num_heads, num_kv_heads):
    return head // num_kv_heads


@kv_head.mistake("that is multi-query: all read the first. Here there may be several.")
def _(head, num_heads, num_kv_heads):
    return 0


@kv_head.mistake("that is multi-head: each reads one of its own. Here a group shares one.")
def _(head, num_heads, num_kv_heads):
    return head


@kv_head.mistake("that is the head's place within its group; asked is the number of the group.")
def _(head, num_heads, num_kv_heads):
    return head % (num_heads // num_kv_heads)


@kv_head.mistake("a head's number is an int: divide by the size of a group with //, which gives one.")
def _(head, num_heads, num_kv_heads):
    return float(head // (num_heads // num_kv_heads))


@kv_head.mistake("between two KV heads there is none: divide with //, which rounds down.")
def _(head, num_heads, num_kv_heads):
    return head / (num_heads / num_kv_heads)


def _grouped_cases():
    random = torch.Generator().manual_seed(7)

    def rows(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return [
        dict(q=rows(heads, 5), k=rows(t, kv, 5), v=rows(t, kv, 4))
        for heads, kv, t in ((6, 2, 7), (6, 3, 8), (4, 4, 3), (6, 1, 9))
    ]


@exercise(
    "07.grouped",
    cases=_grouped_cases,
    minutes=15,
    difficulty="medium",
    hints=[
        "Give the query a dimension for the group: q.unflatten(0, (num_kv_heads, -1)) is [Hkv, G, D].",
        'Then no key has to be repeated: einsum("hgd,thd->hgt", ...) pairs each group with its own keys.',
        "Scale, softmax over the tokens, the weighted values in the same way, and flatten the two head "
        "dimensions again.",
    ],
)
def grouped(q, k, v):
    """Attention of one new token over T tokens, when groups of query heads share keys and values.

    q [Hq, D], k [T, Hkv, D], v [T, Hkv, Dv] -> [Hq, Dv]; the scale is 1 / sqrt(D). Best repeat no key.
    """
    # solve
    rows = q.unflatten(0, (k.shape[1], -1))  # [Hkv, G, D]
    scores = torch.einsum("hgd,thd->hgt", rows, k) / q.shape[1] ** 0.5
    return torch.einsum("hgt,thd->hgd", scores.softmax(dim=-1), v).flatten(0, 1)
    # end


def _with(q, k, v, width=None, dim=-1, tile=()):
    group, width = len(q) // k.shape[1], width or q.shape[1]
    k, v = (
        x.repeat(1, group, 1) if name in tile else x.repeat_interleave(group, 1)
        for name, x in (("k", k), ("v", v))
    )
    scores = torch.einsum("hd,thd->ht", q, k) / width**0.5
    return torch.einsum("ht,thd->hd", scores.softmax(dim=dim), v)


@grouped.mistake("the scale is missing: divide the scores by the square root of D.")
def _(q, k, v):
    return _with(q, k, v, width=1)


@grouped.mistake("the scale is that of the values: it is the width of queries and keys that counts.")
def _(q, k, v):
    return _with(q, k, v, width=v.shape[2])


@grouped.mistake("keys were reshaped where axes had to change places: use permute, movedim or einsum.")
def _(q, k, v):
    rows = q.unflatten(0, (k.shape[1], -1))  # [Hkv, G, D]
    weights = (rows @ k.reshape(k.shape[1], k.shape[2], -1) / q.shape[1] ** 0.5).softmax(dim=-1)
    return torch.einsum("hgt,thd->hgd", weights, v).flatten(0, 1)


@grouped.mistake("the softmax goes over the group; each head's weights over the *tokens* have to sum to one.")
def _(q, k, v):
    scores = torch.einsum("hgd,thd->hgt", q.unflatten(0, (k.shape[1], -1)), k) / q.shape[1] ** 0.5
    return torch.einsum("hgt,thd->hgd", scores.softmax(dim=1), v).flatten(0, 1)


@grouped.mistake("the softmax goes over the heads; the weights over the *tokens* have to sum to one.")
def _(q, k, v):
    return _with(q, k, v, dim=0)


@grouped.mistake(
    "query heads got another group's keys: neighbours share, so 0, 0, 0, 1, 1, 1 and not 0, 1, 0, 1."
)
def _(q, k, v):
    return _with(q, k, v, tile=("k", "v"))


@grouped.mistake("the keys are right; the values were dealt out in another order. Share them alike.")
def _(q, k, v):
    return _with(q, k, v, tile=("v",))


@grouped.mistake("every head reads the first KV head: the others are there to be read, too.")
def _(q, k, v):
    return _with(q, k[:, :1], v[:, :1])


def _pool_cases():
    random = torch.Generator().manual_seed(70)
    return [
        dict(weight=torch.randn(6 * 3, 4, generator=random, dtype=torch.float64), num_kv_heads=n, head_dim=3)
        for n in (2, 3, 1, 6)
    ]


@exercise(
    "07.pool",
    cases=_pool_cases,
    minutes=10,
    difficulty="medium",
    hints=[
        "The rows of the weight are the heads one behind the other, head_dim rows each. unflatten them.",
        "weight.unflatten(0, (num_kv_heads, -1, head_dim)) is [groups, members, head_dim, hidden].",
    ],
)
def pool(weight, num_kv_heads, head_dim):
    """A projection for fewer KV heads: each the mean of the neighbouring heads that it replaces.

    weight [num_heads * head_dim, hidden] -> [num_kv_heads * head_dim, hidden]
    """
    # solve
    return weight.unflatten(0, (num_kv_heads, -1, head_dim)).mean(dim=1).flatten(0, 1)
    # end


@pool.mistake("that adds the heads up: a mean keeps the size that the rest of the model expects.")
def _(weight, num_kv_heads, head_dim):
    return weight.unflatten(0, (num_kv_heads, -1, head_dim)).sum(dim=1).flatten(0, 1)


@pool.mistake("heads far apart were put together: the members of a group are neighbours.")
def _(weight, num_kv_heads, head_dim):
    return weight.unflatten(0, (-1, num_kv_heads, head_dim)).mean(dim=0).flatten(0, 1)


@pool.mistake("that keeps one head of each group and forgets the others: take their mean.")
def _(weight, num_kv_heads, head_dim):
    return weight.unflatten(0, (num_kv_heads, -1, head_dim))[:, 0].flatten(0, 1)


@pool.mistake("neighbouring rows were averaged. A head is head_dim rows: sort by groups, members, rows.")
def _(weight, num_kv_heads, head_dim):
    return weight.unflatten(0, (num_kv_heads * head_dim, -1)).mean(dim=1)


@pool.mistake("that keeps the first heads and drops the others: each group has its own mean.")
def _(weight, num_kv_heads, head_dim):
    return weight[: num_kv_heads * head_dim].clone()


@pool.mistake("divide by how many heads are in a group, not by how many groups there are.")
def _(weight, num_kv_heads, head_dim):
    return weight.unflatten(0, (num_kv_heads, -1, head_dim)).sum(dim=1).flatten(0, 1) / num_kv_heads


RECALL["07"] = [
    Recall(
        "07.saves",
        "32 query heads, 8 KV heads. What is a quarter of what multi-head attention would take?",
        (
            Option("The FLOPs of attention", "Every query head still does its own dot products."),
            Option("The cache, and what a decode step reads of it", "Both count KV heads.", right=True),
            Option(
                "The number of weights in the model", "Only k_proj and v_proj shrink, a small part of it."
            ),
        ),
    ),
    Recall(
        "07.queries",
        "Why not share the query heads as well?",
        (
            Option(
                "They are never cached, so the cache would stay as it is",
                "And heads with one query and one key would be one head.",
                right=True,
            ),
            Option("It would be too slow", "It would be faster, and worse."),
            Option("Queries are larger than keys", "They have the same width."),
        ),
    ),
    Recall(
        "07.repeat",
        "Your GQA runs slower than your MHA, with a quarter of the cache. What is likely?",
        (
            Option("GQA needs a GPU", "It reads less than MHA on any machine, and computes as much."),
            Option(
                "The keys are repeated for every query head before the product",
                "Then all is read, written and read again.",
                right=True,
            ),
            Option("The softmax got longer", "It has the same length."),
        ),
    ),
    Recall(
        "07.quality",
        "Two kinds differ by 1% in loss, five seeds of one kind by 1% too, and each wins some pairs. So?",
        (
            Option("The one with the lower mean is better", "It may be; these runs do not show it."),
            Option(
                "At this size and budget the runs do not tell them apart",
                "Say so, with the spread.",
                right=True,
            ),
            Option(
                "The kinds of attention are equally good at every size", "Nothing here speaks of other sizes."
            ),
        ),
    ),
    Recall(
        "07.pooling",
        "Trained heads are averaged into groups, without any further training. Why does the model suffer?",
        (
            Option(
                "The query heads had learned to use their own keys",
                "The mean of several keys is none of them.",
                right=True,
            ),
            Option("The cache became too small", "It holds as many tokens as before."),
            Option("Rounding", "In float64 it would suffer the same."),
        ),
    ),
]
