"""How good a tiny model is: its loss on works it has not seen, and whether it learned to copy."""

import torch
from torch.nn.functional import cross_entropy

from kvlab.caches.none import NoCache
from kvlab.training.data import stream


def loss_of(model, ids, targets):
    """Mean cross-entropy in nats a token over rows [B, T]."""
    logits = model(ids.flatten(), NoCache(model.config, rows=len(ids)))  # [B * T, vocab]
    return cross_entropy(logits, targets.flatten())


@torch.no_grad()
def held_out_loss(model, length=256, rows=64):
    """Mean loss in nats a token on the held-out works, in rows of ``length`` spread over them."""
    tokens = stream(held_out=True)
    starts = torch.linspace(0, len(tokens) - length - 1, rows).long().tolist()
    losses = []
    for chunk in torch.tensor(starts).split(8):
        text = torch.stack([tokens[start : start + length] for start in chunk.tolist()])
        ids = torch.cat([torch.zeros(len(text), 1, dtype=torch.int64), text[:, :-1]], dim=1)
        losses.append(float(loss_of(model, ids, text)) * len(text))
    return sum(losses) / rows


@torch.no_grad()
def copying_losses(model, length=100, rows=8):
    """Loss on random tokens, and on the same tokens when they come a second time -> (first, again).

    Random tokens cannot be guessed, so whatever is better the second time was copied from the first.
    """
    random = torch.Generator().manual_seed(0)
    once = torch.randint(2, model.config.vocab_size, (rows, length), generator=random)
    text = torch.cat([once, once], dim=1)  # [rows, 2 * length]
    ids = torch.cat([torch.zeros(rows, 1, dtype=torch.int64), text[:, :-1]], dim=1)
    logits = model(ids.flatten(), NoCache(model.config, rows=rows)).unflatten(0, (rows, -1))
    first, again = logits.split(length, dim=1)
    return tuple(float(cross_entropy(part.flatten(0, 1), once.flatten())) for part in (first, again))
