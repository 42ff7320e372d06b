"""Exercises of lesson 08, latent attention."""

import torch

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "08.token_bytes",
    cases=lambda: [
        dict(layers=n, heads=h, rank=r, rope=p, number_bytes=b)
        for n, h, r, p, b in ((61, 128, 512, 64, 2), (4, 6, 48, 16, 4), (3, 5, 7, 2, 1))
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "What is kept of a token in one layer? One latent, and one key for positions, for all heads.",
        "Keys and values are both made from the latent: nothing is kept twice.",
    ],
)
def token_bytes(layers, heads, rank, rope, number_bytes):
    """Bytes that one token leaves in the cache of a model with latent attention -> int.

    rank: width of the latent; rope: width of the key for positions
    """
    # solve
    return layers * (rank + rope) * number_bytes
    # end


@token_bytes.mistake("there is no factor two: keys and values are both made from the same latent.")
def _(layers, heads, rank, rope, number_bytes):
    return 2 * layers * (rank + rope) * number_bytes


@token_bytes.mistake("the heads share one latent and one rope key: do not multiply by them.")
def _(layers, heads, rank, rope, number_bytes):
    return layers * heads * (rank + rope) * number_bytes


@token_bytes.mistake("the rope key is shared by all heads: it is kept once.")
def _(layers, heads, rank, rope, number_bytes):
    return layers * (rank + heads * rope) * number_bytes


@token_bytes.mistake("one latent makes keys and values: it is kept once.")
def _(layers, heads, rank, rope, number_bytes):
    return layers * (2 * rank + rope) * number_bytes


@token_bytes.mistake("each layer keeps its own: multiply by the layers.")
def _(layers, heads, rank, rope, number_bytes):
    return (rank + rope) * number_bytes


@token_bytes.mistake("that counts numbers: each takes number_bytes bytes.")
def _(layers, heads, rank, rope, number_bytes):
    return layers * (rank + rope)


@token_bytes.mistake("the key for positions is kept beside the latent.")
def _(layers, heads, rank, rope, number_bytes):
    return layers * rank * number_bytes


def _absorb_cases():
    random = torch.Generator().manual_seed(8)

    def rows(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return [dict(q=rows(h, n), w_uk=rows(h, n, r)) for h, n, r in ((3, 4, 5), (2, 6, 3), (1, 2, 7))]


@exercise(
    "08.absorb",
    cases=_absorb_cases,
    minutes=10,
    difficulty="medium",
    hints=[
        "A head's score with a token is q . (W c), where c is the latent. Move the matrix to the other side.",
        "q . (W c) = (W^T q) . c, for each head with its own W.",
        'torch.einsum("hn,hnr->hr", ...) does it for all heads at once.',
    ],
)
def absorb(q, w_uk):
    """Fold the expansion of the keys into the query: q' with q' . c = q . (W_uk c) for every latent c.

    q [H, nope], w_uk [H, nope, rank] -> [H, rank]
    """
    # solve
    return torch.einsum("hn,hnr->hr", q, w_uk)
    # end


@absorb.mistake("all heads used the first head's matrix: each has its own.")
def _(q, w_uk):
    return torch.einsum("hn,nr->hr", q, w_uk[0])


@absorb.mistake("the heads were added up: each head asks its own question of the latents.")
def _(q, w_uk):
    return torch.einsum("hn,hnr->r", q, w_uk).expand(len(q), -1)


@absorb.mistake("the heads were added up: give each head's own result, [H, rank].")
def _(q, w_uk):
    return torch.einsum("hn,hnr->r", q, w_uk)


@absorb.mistake(
    "nothing has to be undone: the matrix moves to the other side of the dot product, transposed."
)
def _(q, w_uk):
    return torch.einsum("hrn,hn->hr", torch.linalg.pinv(w_uk), q)


@absorb.mistake("nothing is to be divided here: the scale belongs to the scores.")
def _(q, w_uk):
    return torch.einsum("hn,hnr->hr", q, w_uk) / q.shape[1] ** 0.5


def _attend_cases():
    random = torch.Generator().manual_seed(80)

    def rows(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    return [
        dict(
            q_nope=rows(heads, 4),
            q_rope=rows(heads, 2),
            latent=rows(t, 9),
            k_rope=rows(t, 2),
            w_uk=rows(heads, 4, 9),
            w_uv=rows(heads, 5, 9),
        )
        for heads, t in ((3, 7), (2, 1), (1, 6))
    ]


@exercise(
    "08.attend",
    cases=_attend_cases,
    minutes=15,
    difficulty="hard",
    hints=[
        'Fold the queries first: torch.einsum("hn,hnr->hr", q_nope, w_uk) compares with latents.',
        "Two score matrices [H, T], one with the latents and one with the rope keys: add them, then scale.",
        "The scale is that of a head's whole query: 1 / sqrt(nope + rope), whatever the width of the latent.",
        'Average the latents [H, rank], then expand: torch.einsum("hr,hvr->hv", ...).',
    ],
)
def attend(q_nope, q_rope, latent, k_rope, w_uk, w_uv):
    """Absorbed latent attention of one new token over T tokens -> [H, value]. Try to expand no latent.

    q_nope [H, nope], q_rope [H, rope] (rotated), latent [T, rank], k_rope [T, rope] (rotated),
    w_uk [H, nope, rank], w_uv [H, value, rank]
    """
    # solve
    folded = torch.einsum("hn,hnr->hr", q_nope, w_uk)  # [H, rank]
    scale = (q_nope.shape[1] + q_rope.shape[1]) ** -0.5
    weights = ((folded @ latent.mT + q_rope @ k_rope.mT) * scale).softmax(dim=-1)  # [H, T]
    return torch.einsum("hr,hvr->hv", weights @ latent, w_uv)
    # end


def _attended(width, rope=True, dim=-1):
    """Scaled by the square root of ``width(nope, rope, rank)``."""

    def attend(q_nope, q_rope, latent, k_rope, w_uk, w_uv):
        scores = torch.einsum("hn,hnr,tr->ht", q_nope, w_uk, latent) + rope * (q_rope @ k_rope.mT)
        scores = scores / width(q_nope.shape[1], q_rope.shape[1], latent.shape[1]) ** 0.5
        return torch.einsum("hr,hvr->hv", scores.softmax(dim=dim) @ latent, w_uv)

    return attend


for _wrong, _meaning in (
    (
        _attended(lambda nope, rope, rank: rank + rope),
        "the scale is of the width that the cache sees, rank + rope: it is the head's, nope + rope.",
    ),
    (
        _attended(lambda nope, rope, rank: nope),
        "the scale forgets the rope part: a head's query is nope + rope numbers long.",
    ),
    (
        _attended(lambda nope, rope, rank: rank),
        "the scale is that of the latent: it is the head's, nope + rope.",
    ),
    (
        _attended(lambda nope, rope, rank: 1),
        "the scores are not scaled: divide them by the square root of nope + rope.",
    ),
    (
        _attended(lambda nope, rope, rank: nope + rope, rope=False),
        "positions are missing: add the dot products of q_rope and k_rope to the scores.",
    ),
    (
        _attended(lambda nope, rope, rank: nope + rope, dim=0),
        "the softmax goes over the heads; each head's weights over the *tokens* sum to one.",
    ),
):
    attend.mistake(_meaning)(_wrong)


@attend.mistake("both parts have one scale: add the two dot products first, then divide the sum.")
def _(q_nope, q_rope, latent, k_rope, w_uk, w_uv):
    nope = torch.einsum("hn,hnr,tr->ht", q_nope, w_uk, latent) / q_nope.shape[1] ** 0.5
    weights = (nope + q_rope @ k_rope.mT / q_rope.shape[1] ** 0.5).softmax(dim=-1)
    return torch.einsum("hr,hvr->hv", weights @ latent, w_uv)


RECALL["08"] = [
    Recall(
        "08.kept",
        "What does a token leave in the cache of a layer with latent attention?",
        (
            Option("A latent for each head", "All heads share one: that is where the saving comes from."),
            Option("One latent and one rotated key, for all heads together", "Nothing else.", right=True),
            Option("A latent for keys and one for values", "One latent makes both: there is no factor two."),
        ),
    ),
    Recall(
        "08.rope",
        "Why does MLA carry positions in a key of their own?",
        (
            Option(
                "A rotation after W_uk would need another folded query for every distance",
                "So one folded query no longer serves all tokens.",
                right=True,
            ),
            Option(
                "RoPE cannot be applied to a vector made from a latent",
                "It can; then all has to be expanded.",
            ),
            Option(
                "It makes the cache smaller", "A latent alone would be smaller, by 64 numbers in DeepSeek-V3."
            ),
        ),
    ),
    Recall(
        "08.scale",
        "Heads of 128 + 64 numbers, latents of 512. By what are absorbed scores divided?",
        (
            Option("sqrt(512 + 64)", "That is what the cache sees; the product is the head's, folded."),
            Option("sqrt(128 + 64)", "The width of a head's query and key.", right=True),
            Option("sqrt(128)", "The rope part is in the sum as well."),
        ),
    ),
    Recall(
        "08.when",
        "Prefill of a long prompt with an empty cache. Absorb?",
        (
            Option(
                "No: keys that serve many queries are worth making, and are shorter than latents",
                "More FLOPs for each pair is what absorbing costs.",
                right=True,
            ),
            Option("Yes, absorbing is always faster", "It is for one query. Per pair it costs more FLOPs."),
            Option("It makes no difference", "For DeepSeek-V3 it is about a factor of three in attention."),
        ),
    ),
    Recall(
        "08.ranks",
        "DeepSeek-V3 in tensor parallelism over 8 GPUs: what of a token's cache lies on each?",
        (
            Option("An eighth", "There is one KV head, which cannot be divided."),
            Option("All of it", "That is why engines split sequences over ranks instead.", right=True),
            Option("Nothing, on seven of them", "Every rank's heads read all latents."),
        ),
    ),
    Recall(
        "08.rank",
        "All keys and values of a layer are products of a vector of 144 numbers. What follows?",
        (
            Option(
                "144 numbers a token are enough, before training as after it",
                "From the shapes alone; it says nothing about what was learned.",
                right=True,
            ),
            Option("The model has learned to compress", "Random weights have that property, too."),
            Option("A latent of 64 would lose nothing", "Measured: pressed into 64 afterwards, it loses."),
        ),
    ),
]
