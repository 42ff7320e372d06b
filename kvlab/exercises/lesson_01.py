"""Exercises of lesson 01, attention without weights."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def _rows(seed, *shape):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random, dtype=torch.float64)


@exercise(
    "01.context",
    cases=lambda: [
        dict(x=_rows(seed, t, d), i=i) for seed, t, d, i in ((1, 4, 3, 2), (2, 7, 2, 0), (3, 3, 5, 1))
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "Three steps, three lines: look, weigh, mix.",
        "x @ x[i] is the dot product of every row with row i. What are its entries, and how many are there?",
        "weights @ x multiplies each row by its weight and adds them up.",
    ],
)
def context(x, i):
    """The context vector of word i: the mixture of all rows, weighted by the softmax of its dot products.

    Not divided by anything yet. x [T, D]  ->  [D]
    """
    # solve
    scores = x @ x[i]  # [T]
    weights = scores.softmax(dim=0)  # [T]
    return weights @ x  # [D]
    # end


@context.mistake("the scores are plain dot products here; dividing them comes later in the lesson.")
def _(x, i):
    return (x @ x[i] / x.shape[1] ** 0.5).softmax(dim=0) @ x


@context.mistake("these are the weights. The third step is missing: mix the rows with them.")
def _(x, i):
    return (x @ x[i]).softmax(dim=0)


@context.mistake("the second step is missing: scores become weights by the softmax.")
def _(x, i):
    return (x @ x[i]) @ x


@context.mistake("dividing by the sum is not enough: scores may be negative. Take exp of them first.")
def _(x, i):
    scores = x @ x[i]
    return (scores / scores.sum()) @ x


@context.mistake("that is the row with the highest score alone. A context vector is a mixture, not a pick.")
def _(x, i):
    return x[(x @ x[i]).argmax()]


@context.mistake("every row has the same weight here. What did word i look for?")
def _(x, i):
    return x.mean(dim=0)


@context.mistake("word i itself was left out. It looks at every row, its own included.")
def _(x, i):
    scores = x @ x[i]
    scores[i] = -torch.inf
    return scores.softmax(dim=0) @ x


@context.mistake("these are the context vectors of all the words. Only that of word i was asked for.")
def _(x, i):
    return (x @ x.T).softmax(dim=1) @ x


@exercise(
    "01.flops",
    cases=lambda: [dict(tokens=t, width=d) for t, d in ((1, 1), (5, 2), (7, 3), (1000, 64))],
    minutes=5,
    difficulty="easy",
    hints=[
        "How many entries has the table of scores, and how many products and sums does one entry take?",
        "A dot product of two vectors of width d counts as 2 * d: d multiplications and d additions.",
        "Mixing is a matrix product too: weights [T, T] times rows [T, D]. It costs as much as the scores.",
    ],
)
def attention_flops(tokens, width):
    """FLOPs of attention when every one of ``tokens`` rows of this width looks at every row -> int

    The scores and the mixing count, a multiplication and an addition as two; the softmax does not.
    """
    # solve
    scores = 2 * tokens * width * tokens
    mixing = 2 * tokens * tokens * width
    return scores + mixing
    # end


@attention_flops.mistake(
    "that is half. There are two matrix products, scores and mixing, and in each a multiplication "
    "and an addition count as two."
)
def _(tokens, width):
    return 2 * tokens * tokens * width


@attention_flops.mistake(
    "scores or mixing? Both; and a multiplication and an addition count as two, not as one."
)
def _(tokens, width):
    return tokens * tokens * width


@attention_flops.mistake("that is what one word costs. Every word looks.")
def _(tokens, width):
    return 4 * tokens * width


@attention_flops.mistake("the roles are exchanged: the square belongs to the tokens, not to the width.")
def _(tokens, width):
    return 4 * tokens * width * width


@attention_flops.mistake("each word looks at the earlier ones AND the later ones: nothing is halved here.")
def _(tokens, width):
    return 2 * tokens * (tokens + 1) * width


def _axis_cases():
    shapes = ((3, 5, 4, 2), (1, 6, 2, 3), (4, 2, 5, 6))
    return [
        dict(q=_rows(10 + n, n, d), k=_rows(20 + n, t, d), v=_rows(30 + n, t, dv)) for n, t, d, dv in shapes
    ]


@exercise(
    "01.axis",
    cases=_axis_cases,
    minutes=10,
    difficulty="medium",
    hints=[
        "One query alone should get a mixture of the values. What does the hurried version give it, and why?",
        "weights [N, T]: each query has a row. Which sums must be one, the rows' or the columns'?",
        "softmax(dim=1) runs along the keys. The scores are divided by the square root of q's and k's width.",
    ],
)
def attend(q, k, v):
    """Attention of N queries over T keys and values, scores divided by the square root of D.

    q [N, D], k [T, D], v [T, Dv]  ->  [N, Dv]
    """
    # solve
    scores = q @ k.T / q.shape[1] ** 0.5  # [N, T]
    weights = scores.softmax(dim=1)  # [N, T], every row sums to one
    return weights @ v  # [N, Dv]
    # end


@attend.mistake(
    "the softmax still runs along the queries: the columns sum to one, and a lone query gets all weights 1."
)
def _(q, k, v):
    return (q @ k.T / q.shape[1] ** 0.5).softmax(dim=0) @ v


@attend.mistake("the whole table sums to one. Each row should: every query has one helping to give away.")
def _(q, k, v):
    scores = q @ k.T / q.shape[1] ** 0.5
    return scores.flatten().softmax(dim=0).view_as(scores) @ v


@attend.mistake("the scores are not divided by the square root of the width.")
def _(q, k, v):
    return (q @ k.T).softmax(dim=1) @ v


@attend.mistake("divide by the square root of the width, not by the width.")
def _(q, k, v):
    return (q @ k.T / q.shape[1]).softmax(dim=1) @ v


@attend.mistake("the scores grow with the width of q and k. The number of keys has no part in that.")
def _(q, k, v):
    return (q @ k.T / k.shape[0] ** 0.5).softmax(dim=1) @ v


@attend.mistake("the width that counts is that of q and k, not that of v.")
def _(q, k, v):
    return (q @ k.T / v.shape[1] ** 0.5).softmax(dim=1) @ v


@attend.mistake("the scores are multiplied by the square root where they should be divided.")
def _(q, k, v):
    return (q @ k.T * q.shape[1] ** 0.5).softmax(dim=1) @ v


@attend.mistake("the weights are divided after the softmax, so they no longer sum to one. Divide the scores.")
def _(q, k, v):
    return (q @ k.T).softmax(dim=1) / q.shape[1] ** 0.5 @ v


RECALL["01"] = [
    Recall(
        "01.bottleneck",
        "Why did the GRU forget more, the more pairs it read?",
        (
            Option(
                "It was not trained on texts that long",
                "It was: a fifth of its training had 32 pairs, the very length at which it did worst.",
            ),
            Option(
                "All it has read must fit into a state that does not grow",
                "Each new pair is written over what is there. A larger state moves the limit and keeps it.",
                right=True,
            ),
            Option(
                "A recurrent network cannot learn to recall at all",
                "It can. With few pairs it answered nearly everything.",
            ),
        ),
    ),
    Recall(
        "01.mixture",
        "What is a context vector?",
        (
            Option(
                "The row with the highest weight",
                "That would be a pick. Every row takes part; only near temperature zero one alone is left.",
            ),
            Option("The list of weights", "These say how much of each row. The context vector is the sum."),
            Option(
                "The sum of the rows, each multiplied by its score",
                "By its weight: the softmax stands between, so that the shares are positive and sum to one.",
            ),
            Option(
                "The weighted mean of all rows",
                "Weights are positive and sum to one, so it lies inside the area that the rows enclose.",
                right=True,
            ),
        ),
    ),
    Recall(
        "01.axis",
        "weights is [N, T]: N queries, T keys. What sums to one?",
        (
            Option("Each row", "Every query shares out one whole among the keys.", right=True),
            Option("Each column", "Then every key would share itself out among the queries: the wrong axis."),
            Option("All entries together", "Then a query's helping would depend on the other queries."),
        ),
    ),
    Recall(
        "01.scale",
        "What is the division by the square root of d for?",
        (
            Option(
                "So that the weights sum to one",
                "The softmax sees to that, whatever the scores are.",
            ),
            Option(
                "So that the dot products fit into 16 bits",
                "They would fit. What suffers is the softmax, in any number format.",
            ),
            Option(
                "So that the scores' spread does not depend on the width, and gradients reach the scores",
                "Wide vectors have large dot products; the softmax saturates, and its gradient vanishes.",
                right=True,
            ),
            Option(
                "So that every word gets the same attention",
                "Only a scale far smaller than that would do it: the plain mean.",
            ),
        ),
    ),
    Recall(
        "01.cost",
        "A text becomes twice as long. What grows fourfold?",
        (
            Option(
                "The rows that attention keeps",
                "One row a token: they double. This is what becomes the KV cache.",
            ),
            Option(
                "The table of scores, and the work on it",
                "Every token looks at every token: T times T.",
                right=True,
            ),
            Option("The work of a GRU", "One step a token: it doubles. That is the chain's advantage."),
        ),
    ),
    Recall(
        "01.training",
        "What can training change in attention without weights?",
        (
            Option(
                "Nothing: it has no parameters",
                "The rule has none, but the embeddings it is applied to can be trained. Ours were.",
            ),
            Option(
                "How the scores are computed",
                "That is a plain dot product and stays one. Lesson 02 changes exactly this.",
            ),
            Option(
                "The embeddings, and through them every score",
                "But a score is the same in both directions, and one vector plays all the parts.",
                right=True,
            ),
        ),
    ),
]
