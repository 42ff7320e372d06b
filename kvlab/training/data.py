"""Rows of text to train on, and the held-out text to measure on."""

from functools import cache

import torch

from kvlab.training.corpus import texts
from kvlab.training.tokenizer import train_tokenizer


@cache
def stream(held_out=False):
    """All tokens of one split, works one behind the other, each closed by <eos> -> int64 [tokens]."""
    tokenizer = train_tokenizer()
    end = [tokenizer.token_to_id("<eos>")]
    return torch.tensor(
        sum((tokenizer.encode(t, add_special_tokens=False).ids + end for t in texts(held_out)), [])
    )


def batch(recipe, step):
    """The rows of one step: ids [B, T] beginning with <bos>, and what follows each [B, T]."""
    stage = recipe.stage(step)
    rows, length = stage.rows, stage.length
    random = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
    tokens = stream()
    starts = torch.randint(len(tokens) - length, (rows,), generator=random)
    text = torch.stack([tokens[start : start + length] for start in starts.tolist()])  # [B, T]
    for row in range(rows):
        if torch.rand((), generator=random) < stage.repeats:
            repeat_a_span(text[row], random)
    bos = torch.zeros(rows, 1, dtype=torch.int64)
    return torch.cat([bos, text[:, :-1]], dim=1), text


def repeat_a_span(text, random):
    """Overwrite the end of ``text`` [T], in place: an earlier span of it, over and over.

    Plain prose repeats too little for a small model to learn that what came before can be looked up.
    """
    length = len(text)
    span = int(torch.randint(8, length // 4 + 1, (), generator=random))
    source = int(torch.randint(length // 2 - span + 1, (), generator=random))
    target = int(torch.randint(source + span, length // 2 + 1, (), generator=random))
    copies = text[source : source + span].repeat(length // span + 1)
    text[target:] = copies[: length - target]
