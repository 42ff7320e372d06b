"""The tiny models are ordinary checkpoints: transformers' Llama computes the same with their weights."""

import torch
from safetensors.torch import load_file

import kvlab
from kvlab.caches import NoCache
from kvlab.model.load import WEIGHTS
from kvlab.training.reference import FILE, reference


def test_ours_transformers_and_the_stored_tensor_agree():
    """1e-4 in float32, as for every family; the stored tensor was made by the same code on another day."""
    stored, live = load_file(WEIGHTS / "tiny-gqa" / FILE), reference()
    model, _ = kvlab.load("tiny-gqa")
    ours = model(live["ids"], NoCache(model.config))
    assert torch.equal(stored["ids"], live["ids"])
    assert (stored["logits"] - live["logits"]).abs().max() < 1e-4
    assert (ours - live["logits"]).abs().max() < 1e-4
    assert ours.abs().max() > 5
