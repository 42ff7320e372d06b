"""Train a tiny model: ``python3 -m kvlab train tiny-gqa``. Seeded, resumable, on the CPU.

The rows of step s depend on the seed and on s alone: a run that was cut goes on as if it had not been, and
every variant sees the same text in the same order.
"""

import math
import os
from pathlib import Path

import torch
from tqdm import tqdm

from kvlab import paths
from kvlab.model.decoder import Decoder
from kvlab.training.data import batch
from kvlab.training.evaluate import loss_of
from kvlab.training.publish import publish
from kvlab.training.variants import VARIANTS, Recipe

SAVE_EVERY = 100


def learning_rate(recipe, step):
    """Linear warm-up, then half a cosine down to a twentieth."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)


def initialise(model, seed):
    """Normal weights that keep the size of what passes through them, 1 / sqrt(inputs).

    What writes into the residual stream is smaller by sqrt(2 * layers), as in GPT-2 (Radford et al. 2019,
    section 2.3).
    """
    random = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            writers = 2 * model.config.num_layers if residual else 1
            std = 1 / math.sqrt(parameter.shape[1] * writers)
            torch.nn.init.normal_(parameter, std=std, generator=random)


def optimiser(model, recipe):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True)


def train(variant, recipe, folder, quiet=False, start=None):
    """Train to the end, resuming from ``folder`` when a run was cut there -> (model, list of losses).

    start: a model to train further, in place of a new one; ``variant`` is then only a name for its file.
    """
    if start is None:
        model = Decoder(VARIANTS[variant])
        initialise(model, recipe.seed)
    else:
        model = start.requires_grad_(True)
    optimizer = optimiser(model, recipe)
    losses, state_file = [], Path(folder) / f"{variant}.pt"
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        if state["recipe"] != repr(recipe):
            raise ValueError(f"{state_file} belongs to another recipe; remove it to start anew")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        losses = state["losses"]
    bar = tqdm(range(len(losses), recipe.steps), initial=len(losses), total=recipe.steps, disable=quiet)
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        loss = loss_of(model, *batch(recipe, step))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
        if len(losses) % SAVE_EVERY == 0 or len(losses) == recipe.steps:
            state_file.parent.mkdir(parents=True, exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
            torch.save(state | {"recipe": repr(recipe)}, state_file.with_suffix(".part"))
            os.replace(state_file.with_suffix(".part"), state_file)
    return model, losses


def main(variant, seed=Recipe.seed, out=None):
    """Train a variant and write its checkpoint to ``out``, or to its place in the repository."""
    recipe = Recipe(seed=seed)
    model, losses = train(variant, recipe, paths.ROOT / "build" / "training" / f"seed-{seed}")
    publish(variant, model, recipe, losses, out)
