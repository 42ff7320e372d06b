"""Exercises of lesson 03, a decoder."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


def _random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@exercise(
    "03.split_heads",
    cases=lambda: [
        dict(x=_random(5, 12, seed=1), num_heads=3),
        dict(x=_random(2, 6, seed=2), num_heads=6),
        dict(x=_random(7, 4, seed=3), num_heads=1),
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "Each token's row holds its heads one behind the other: D entries of head 0, then D of head 1, ...",
        "Cut the last dimension in two first, x.unflatten(-1, (num_heads, -1)), and only then exchange "
        "dimensions.",
    ],
)
def split_heads(x, num_heads):
    """x [T, num_heads * D] -> [num_heads, T, D]: one matrix a head, a row a token."""
    # solve
    return x.unflatten(-1, (num_heads, -1)).transpose(0, 1)  # [T, H, D] -> [H, T, D]
    # end


@split_heads.mistake(
    "a reshape straight to [H, T, D] cuts across tokens: head 0 gets the first tokens' rows."
)
def _(x, num_heads):
    return x.reshape(num_heads, len(x), -1)


@split_heads.mistake("the dimensions are [T, H, D]: exchange the first two.")
def _(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))


@split_heads.mistake("a head's entries stand together in a row; here every H-th entry was taken.")
def _(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).movedim(-1, 0)


@exercise(
    "03.rotate",
    cases=lambda: [
        dict(x=_random(4, 6, seed=4), angles=_random(4, 3, seed=5)),
        dict(x=_random(1, 2, seed=6), angles=_random(1, 1, seed=7)),
        dict(x=_random(3, 8, seed=8), angles=_random(3, 4, seed=9)),
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Turning a point (a, b) by an angle: (a cos - b sin, b cos + a sin).",
        "Half-split: a is the first half of the row, b the second. x.chunk(2, dim=-1) gives both.",
        "Compute the two turned halves and put them back with torch.cat([...], dim=-1).",
    ],
)
def rotate(x, angles):
    """RoPE in the half-split layout: turn each pair (entry i, entry i + D/2) by its angle.

    x [T, D], angles [T, D/2]  ->  [T, D]
    """
    # solve
    a, b = x.chunk(2, dim=-1)  # [T, D/2] each
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    # end


@rotate.mistake("those are the interleaved pairs (2i, 2i + 1). Here a pair is (i, i + D/2).")
def _(x, angles):
    a, b = x[:, 0::2], x[:, 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(1)


@rotate.mistake("it turns the other way: check the signs.")
def _(x, angles):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos + b * sin, b * cos - a * sin], dim=-1)


@rotate.mistake("one sign is wrong, so this is no rotation: lengths change.")
def _(x, angles):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos + b * sin, b * cos + a * sin], dim=-1)


@rotate.mistake("the first half was overwritten before the second half was computed from it.")
def _(x, angles):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    a = a * cos - b * sin
    return torch.cat([a, b * cos + a * sin], dim=-1)


@rotate.mistake("every pair was turned by the first pair's angle.")
def _(x, angles):
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles[:, :1].cos(), angles[:, :1].sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _scan(x):
    return x.cumsum(dim=0)


def _wave(x):
    return x.sin()


def _half(x):
    return x / 2


def _third(x):
    return x / 3


@exercise(
    "03.layer",
    cases=lambda: [dict(x=_random(4, 3, seed=20), norm_1=_half, attention=_scan, norm_2=_third, mlp=_wave)],
    minutes=5,
    difficulty="easy",
    hints=[
        "Follow the drawing: leave the stream, through a norm, through a block, and add what comes out.",
        "The second block reads the stream as it is *after* the first addition.",
    ],
)
def layer(x, norm_1, attention, norm_2, mlp):
    """One layer of a decoder: x [T, hidden] -> [T, hidden]. The other four are functions of such a tensor."""
    # solve
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))
    # end


@layer.mistake("a layer adds to the stream; here the blocks' outputs replace it.")
def _(x, norm_1, attention, norm_2, mlp):
    return mlp(norm_2(attention(norm_1(x))))


@layer.mistake("the MLP reads the stream after attention has added to it, not the layer's input.")
def _(x, norm_1, attention, norm_2, mlp):
    return x + attention(norm_1(x)) + mlp(norm_2(x))


@layer.mistake("the stream itself was normalised. Only the copy that goes into a block is.")
def _(x, norm_1, attention, norm_2, mlp):
    x = norm_1(x)
    x = norm_2(x + attention(x))
    return x + mlp(x)


@layer.mistake(
    "that is the older order, the norm after the addition (post-norm). Here it comes before the block."
)
def _(x, norm_1, attention, norm_2, mlp):
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


@layer.mistake("the norms are missing: each block reads a normalised copy.")
def _(x, norm_1, attention, norm_2, mlp):
    x = x + attention(x)
    return x + mlp(x)


@exercise(
    "03.previous_token",
    cases=lambda: [
        dict(weights=torch.tril(_random(t, t, seed=10 + t).abs()).softmax(dim=-1)) for t in (5, 2, 9)
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "Row t is query t, column s is key s. Which entries are 'query t reads key t - 1'?",
        "They stand just below the diagonal: weights.diagonal(offset=-1).",
    ],
)
def previous_token(weights):
    """How much a head reads from the token before: the mean weight that query t gives to key t - 1.

    weights [T, T], rows are queries. The first token has none before it and does not count.
    """
    # solve
    return float(weights.diagonal(offset=-1).mean())
    # end


@previous_token.mistake("that is the token itself: key t - 1 stands one to the left of the diagonal.")
def _(weights):
    return float(weights.diagonal().mean())


@previous_token.mistake("that is key t + 1, the future: rows are queries, so look below the diagonal.")
def _(weights):
    return float(weights.diagonal(offset=1).mean())


@previous_token.mistake("the first token has no previous one, so there are T - 1 weights to average.")
def _(weights):
    return float(weights.diagonal(offset=-1).sum() / len(weights))


@previous_token.mistake("that is the sum of the weights, not their mean.")
def _(weights):
    return float(weights.diagonal(offset=-1).sum())


@previous_token.mistake("the loop starts at 0, and index -1 wraps round to the last key. Begin with query 1.")
def _(weights):
    return sum(float(weights[t, t - 1]) for t in range(len(weights))) / len(weights)


@previous_token.mistake("that is the first token's share, a sink, not the previous token's.")
def _(weights):
    return float(weights[1:, 0].mean())


RECALL["03"] = [
    Recall(
        "03.order",
        "Without RoPE and without the mask, what does attention know about the order of the words?",
        (
            Option(
                "Nothing: shuffle the words and the same vectors come out, shuffled",
                "Every row is a weighted mean, and a mean does not care in which order it is taken.",
                True,
            ),
            Option(
                "It sees neighbours better than distant words", "Nothing in a dot product knows distance."
            ),
            Option(
                "The order of the rows in the matrix",
                "Rows are computed independently, and the weighted sum does not care in which order it adds.",
            ),
        ),
    ),
    Recall(
        "03.rope",
        "Why can a key be rotated once, stored, and used by all later queries?",
        (
            Option(
                "Because keys are rotated again for each query",
                "They are not, and need not be: that is what makes RoPE fit a cache.",
            ),
            Option(
                "Because the score depends only on the difference of the two positions",
                "Turning both alike changes no dot product, so a key's own turn is right for any query.",
                True,
            ),
            Option(
                "Because later queries are not rotated",
                "They are, each by its own position; otherwise the distance would not show in the score.",
            ),
        ),
    ),
    Recall(
        "03.layout",
        "A checkpoint with rotary pairs in the wrong layout writes gibberish. Why was there no error?",
        (
            Option("The loader mends the layout by itself", "Then it would not write gibberish."),
            Option(
                "All shapes agree: the same numbers, only paired differently",
                "Nothing that could be checked by size is wrong. Only comparing logits shows it.",
                True,
            ),
            Option(
                "RoPE has no parameters, so it cannot be wrong",
                "It has none, but q and k were trained with it.",
            ),
        ),
    ),
    Recall(
        "03.residual",
        "What does a layer do to the residual stream?",
        (
            Option("It replaces it by its output", "Then everything before would have to pass through it."),
            Option(
                "It normalises it", "The norm's result goes into the block only; the stream itself stays."
            ),
            Option("It adds to it, twice", "Once what attention read, once what the MLP made of it.", True),
        ),
    ),
    Recall(
        "03.mix",
        "Where in a decoder do tokens exchange information?",
        (
            Option("In attention and in the MLP", "The MLP handles each token by itself."),
            Option(
                "In attention only", "Norms, MLP and the matrices work on each token's vector alone.", True
            ),
            Option("In every matrix product", "Those mix the entries of one token's vector, not tokens."),
        ),
    ),
]
