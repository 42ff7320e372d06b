"""Models by name: the tiny ones trained for the course, and SmolLM2 once set-up has fetched it."""

from pathlib import Path

import torch

from kvlab.model import hf, smollm2

WEIGHTS = Path(__file__).with_name("weights")


class ModelNotInstalled(FileNotFoundError):
    """The model is known, but set-up has not fetched it."""


def load(name, dtype=torch.float32, absorbed=True):
    """A model of the course by name -> (Decoder, Tokenizer).

    dtype: what the weights, stored in 16 bits, are widened to; float64 is for proofs.
    absorbed: which form of latent attention (MLA) a model that has it computes with; no effect on others.
    Raises ValueError for an unknown name, ModelNotInstalled for a model that has to be fetched first.
    """
    tiny = sorted(file.parent.name for file in WEIGHTS.glob("*/config.json"))
    if name in tiny:
        return hf.load(WEIGHTS / name, dtype, absorbed)
    if name == smollm2.NAME:
        if not smollm2.installed():
            raise ModelNotInstalled(
                f"{name} has not been fetched yet: run `python3 -m kvlab setup` (a 93 MB download)"
            )
        return hf.load(smollm2.folder(), dtype, absorbed)
    raise ValueError(
        f"unknown model {name!r}; known: {', '.join([*tiny, smollm2.NAME])} "
        "(a checkpoint of your own: kvlab.hf.load(path))"
    )
