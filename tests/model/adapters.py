"""Random adapters, and the model that an adapter comes to when it is merged."""

from copy import deepcopy

import torch

from kvlab.model.lora import Adapter
from tests.models import SMALL


def random_adapter(config=SMALL, dtype=torch.float64, seed=0, rank=3, alpha=5.0):
    """Both matrices random, so that it changes something, and a scale that is not 1."""
    generator = torch.Generator().manual_seed(seed)
    adapter = Adapter(config, rank, alpha).to(dtype).requires_grad_(False)
    for parameter in adapter.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return adapter


def merged(model, adapter):
    """A copy of the model whose weights are W + alpha / rank * B A (section 4.1: no latency is added)."""
    copy = deepcopy(model)
    for number, block in enumerate(copy.layers if adapter is not None else ()):
        for name in ("q_proj", "v_proj"):
            change = adapter.layers[number][name]
            product = change.lora_B.weight @ change.lora_A.weight  # [out, in]
            getattr(block.self_attn, name).weight += adapter.alpha / adapter.rank * product
    return copy
