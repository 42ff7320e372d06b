"""The tiny models are ordinary checkpoints: transformers computes the same with their weights."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import kvlab
from kvlab.caches import NoCache
from kvlab.model.load import WEIGHTS
from kvlab.training.reference import FILE, reference
from kvlab.training.variants import VARIANTS


@pytest.mark.parametrize(("variant", "absorbed"), [*((name, True) for name in VARIANTS), ("tiny-mla", False)])
def test_ours_and_transformers_agree(variant, absorbed):
    """1e-4 in float32, as for every family."""
    live, (model, _) = reference(variant), kvlab.load(variant, absorbed=absorbed)
    ours = model(live["ids"], NoCache(model.config))
    assert (ours - live["logits"]).abs().max() < 1e-4
    assert ours.abs().max() > 5


@pytest.mark.parametrize("variant", VARIANTS)
def test_they_are_what_their_recipe_says(variant):
    assert replace(kvlab.load(variant)[0].config, absorbed=VARIANTS[variant].absorbed) == VARIANTS[variant]


def test_the_stored_tensor_is_transformers():
    """It was made by the same code on another day."""
    stored, live = load_file(WEIGHTS / "tiny-gqa" / FILE), reference()
    assert torch.equal(stored["ids"], live["ids"])
    assert (stored["logits"] - live["logits"]).abs().max() < 1e-4
