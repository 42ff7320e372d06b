"""Exercises of lesson 02, queries, keys and values."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def _normal(seed, *shapes):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]


def _form_cases():
    sizes = [(4, 3), (5, 2), (3, 7)]  # width, key width
    return [dict(zip(("w_q", "w_k"), _normal(21, (d, dk), (d, dk)), strict=True)) for d, dk in sizes]


@exercise(
    "02.form",
    cases=_form_cases,
    minutes=5,
    difficulty="easy",
    hints=[
        "Write the score of one pair out: (x_i W_q) · (x_j W_k), divided by the root of Dk. Which part of it "
        "does not depend on x?",
        "A dot product a · b is a @ b.T for two rows. And (x @ w).T is w.T @ x.T.",
        "x_i W_q W_kᵀ x_jᵀ: everything between the two x, scale included, is the matrix.",
    ],
)
def form(w_q, w_k):
    """Queries and keys folded into one matrix m: the scores are x @ m @ x.T, scale included.

    w_q [D, Dk], w_k [D, Dk]  ->  m [D, D]
    """
    # solve
    return w_q @ w_k.T / w_q.shape[1] ** 0.5
    # end


@form.mistake("the matrix is transposed: it is the asking token that stands on the left.")
def _(w_q, w_k):
    return w_k @ w_q.T / w_q.shape[1] ** 0.5


@form.mistake("the scale is missing: scores are divided by the root of Dk.")
def _(w_q, w_k):
    return w_q @ w_k.T


@form.mistake("the scale belongs to the width in which the dot product is taken, Dk, and not to D.")
def _(w_q, w_k):
    return w_q @ w_k.T / w_q.shape[0] ** 0.5


@form.mistake("Dk must vanish and D stay: between two x there is room for a [D, D] matrix only.")
def _(w_q, w_k):
    return w_q.T @ w_k / w_q.shape[1] ** 0.5


def _cross_cases():
    cases = []
    # In the last one the texts are equally wide, so that reading the wrong one is a result and not an error.
    sizes = [(2, 6, 5, 4, 3, 7), (4, 3, 2, 6, 5, 1), (1, 5, 3, 4, 2, 6), (3, 5, 4, 4, 2, 1)]
    for seed, (n, t, d, e, dk, dv) in enumerate(sizes):
        tensors = _normal(seed, (n, d), (t, e), (d, dk), (e, dk), (e, dv))
        cases.append(dict(zip(("x", "y", "w_q", "w_k", "w_v"), tensors, strict=True)))
    return cases


@exercise(
    "02.cross",
    cases=_cross_cases,
    minutes=8,
    difficulty="easy",
    hints=[
        "Who asks, and who is asked? The asker gives the queries, the other one keys and values.",
        "The softmax runs over those who are asked: each asker's weights sum to one.",
        "Start with q, k, v = x @ w_q, y @ w_k, y @ w_v. From there on it is the function of section 5.",
    ],
)
def cross(x, y, w_q, w_k, w_v):
    """The N tokens of one text read another text of T tokens, which may be of another width.

    x [N, D] ask, y [T, E] are asked; w_q [D, Dk], w_k [E, Dk], w_v [E, Dv]  ->  [N, Dv]
    """
    # solve
    q, k, v = x @ w_q, y @ w_k, y @ w_v  # [N, Dk], [T, Dk], [T, Dv]
    scores = q @ k.T / k.shape[1] ** 0.5  # [N, T]
    return scores.softmax(dim=1) @ v
    # end


@cross.mistake("the scale is missing: divide the scores by the root of Dk.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (y @ w_k).T).softmax(dim=1) @ (y @ w_v)


@cross.mistake("the scale is that of the queries' and keys' width, Dk, and not that of the tokens.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (y @ w_k).T / x.shape[1] ** 0.5).softmax(dim=1) @ (y @ w_v)


@cross.mistake("the softmax runs the wrong way: each asker's weights must sum to one, row by row.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (y @ w_k).T / w_k.shape[1] ** 0.5).softmax(dim=0) @ (y @ w_v)


@cross.mistake("the keys are handed over in place of the values: w_v was never used.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (y @ w_k).T / w_k.shape[1] ** 0.5).softmax(dim=1) @ (y @ w_k)


@cross.mistake("the tokens themselves are mixed, and not their values: w_v was never used.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (y @ w_k).T / w_k.shape[1] ** 0.5).softmax(dim=1) @ y


@cross.mistake("keys and values come from the text that is asked, y, and not from the one that asks.")
def _(x, y, w_q, w_k, w_v):
    return (x @ w_q @ (x @ w_k).T / w_k.shape[1] ** 0.5).softmax(dim=1) @ (x @ w_v)


def _reads_cases():
    sizes = [(5, 4, 3), (3, 6, 2), (6, 3, 5)]  # tokens, width, key width
    return [
        dict(zip(("x", "w_q", "w_k"), _normal(t, (t, d), (d, dk), (d, dk)), strict=True))
        for t, d, dk in sizes
    ]


@exercise(
    "02.reads",
    cases=_reads_cases,
    minutes=10,
    difficulty="medium",
    hints=[
        "A shape cannot tell i from j, identities give symmetric scores, and training may learn any two "
        "matrices, in either role. Which fault do all three fail to see?",
        "Row i must belong to the token that asks. Who gives the rows of a product a @ b.T: a or b?",
        "scores[i, j] = q_i · k_j: queries give the rows, keys the columns.",
    ],
)
def reads(x, w_q, w_k):
    """Who reads whom: row i holds how much token i reads of each token, and sums to one.

    x [T, D], w_q [D, Dk], w_k [D, Dk]  ->  weights [T, T]
    """
    # solve
    q, k = x @ w_q, x @ w_k  # [T, Dk] each
    return (q @ k.T / q.shape[1] ** 0.5).softmax(dim=1)
    # end


@reads.mistake("queries and keys are exchanged: row i says by whom token i is looked for.")
def _(x, w_q, w_k):
    return (x @ w_k @ (x @ w_q).T / w_q.shape[1] ** 0.5).softmax(dim=1)


@reads.mistake("the weights lie on their side: rows are for the token that reads.")
def _(x, w_q, w_k):
    return (x @ w_q @ (x @ w_k).T / w_q.shape[1] ** 0.5).softmax(dim=1).T


@reads.mistake("the softmax runs down the columns; each row must sum to one.")
def _(x, w_q, w_k):
    return (x @ w_q @ (x @ w_k).T / w_q.shape[1] ** 0.5).softmax(dim=0)


@reads.mistake("the scale is missing: divide the scores by the root of Dk.")
def _(x, w_q, w_k):
    return (x @ w_q @ (x @ w_k).T).softmax(dim=1)


@reads.mistake("these are scores still: the softmax is missing.")
def _(x, w_q, w_k):
    return x @ w_q @ (x @ w_k).T / w_q.shape[1] ** 0.5


RECALL["02"] = [
    Recall(
        "02.ring",
        "Why can attention without weights not read a ring: rock reads scissors, scissors paper, paper rock?",
        (
            Option(
                "Its embeddings are too narrow",
                "Width does not help: the contradiction is in the scores, whatever vectors they come from.",
            ),
            Option(
                "It has too few parameters to train",
                "Trained embeddings are parameters too, and no number of them would be enough.",
            ),
            Option(
                "A dot product scores a pair alike in both directions",
                "So the three margins add up to zero, and cannot all be positive.",
                right=True,
            ),
            Option(
                "Softmax spreads its weight over everything",
                "Softmax keeps the order of the scores. The scores themselves have the wrong order.",
            ),
        ),
    ),
    Recall(
        "02.query",
        "What does a token's query say?",
        (
            Option(
                "What this token looks for",
                "It is compared with what the others offer to be found by, their keys.",
                right=True,
            ),
            Option(
                "Who this token is",
                "Then it would fit the token's own key best. Rock's query fits the key of scissors.",
            ),
            Option(
                "What this token hands over",
                "That is its value. A query never enters the result; it only decides the weights.",
            ),
        ),
    ),
    Recall(
        "02.mixture",
        "A token gives weights 0.6, 0.3 and 0.1. What is its context vector?",
        (
            Option(
                "The value with weight 0.6",
                "That would be a pick. Attention does not choose; the other two count as well.",
            ),
            Option(
                "The mean of the three keys, weighted so",
                "Keys are what a token is found by. What comes back are values.",
            ),
            Option(
                "The three values, weighted so and added",
                "A mixture, in general equal to none of them.",
                right=True,
            ),
        ),
    ),
    Recall(
        "02.widths",
        "Which widths must agree?",
        (
            Option(
                "Those of queries, keys and values",
                "The values need not agree: they are only multiplied with the weights, never with a query.",
            ),
            Option(
                "Those of queries and keys",
                "A dot product is taken between them. Values may be as wide as they like.",
                right=True,
            ),
            Option(
                "Those of keys and values, which come from the same token",
                "They come from one token through two matrices, and each has its own width.",
            ),
            Option(
                "All of them agree with the model's width",
                "Often they do, but each projection is free to change the width.",
            ),
        ),
    ),
    Recall(
        "02.identity",
        "What is left when all three projections are the identity?",
        (
            Option(
                "Nothing can be attended to any more",
                "The identity changes nothing: each token asks, is found and answers as itself.",
            ),
            Option(
                "Every token reads only itself",
                "Its own score is often the largest, but the others keep their weights.",
            ),
            Option(
                "Lesson 01: attention without weights",
                "To the last bit. That makes it a good first test of an implementation, and a bad only one.",
                right=True,
            ),
        ),
    ),
    Recall(
        "02.missing",
        "You shuffle the tokens of a text. What happens to the context vectors of this lesson's attention?",
        (
            Option(
                "They are shuffled in the same way, and are otherwise the same",
                "So one head with nothing else cannot know word order; that takes positions, in lesson 03.",
                right=True,
            ),
            Option(
                "They change: every token now has other neighbours",
                "There are no neighbours here. A token reads a set.",
            ),
            Option(
                "They stay where they were",
                "Row i belongs to token i: when the token moves, its row moves with it.",
            ),
        ),
    ),
]
