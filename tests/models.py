"""Small random models whose sizes all differ, so that a mixed-up axis cannot hide."""

from dataclasses import replace

import torch

from kvlab.model.config import Config, LatentSizes
from kvlab.model.decoder import Decoder

SMALL = Config(
    vocab_size=37,
    hidden_size=20,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    mlp_size=28,
    max_positions=300,
)
ABSORBED = replace(
    SMALL,
    num_kv_heads=6,
    head_dim=14,
    latent=LatentSizes(rank=12, nope_dim=10, rope_dim=4, value_dim=7, query_rank=9),
)
NAIVE = replace(ABSORBED, absorbed=False)


def random_model(config=SMALL, dtype=torch.float64, seed=0):
    """A decoder with random weights, biases and norms, so that leaving any of them out shows."""
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(config).to(dtype).requires_grad_(False).eval()
    for parameter in model.parameters():
        centre = 1.0 if parameter.dim() == 1 else 0.0
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(centre + noise * 0.3)
    return model


def random_ids(n, vocab=SMALL.vocab_size, seed=0):
    return torch.randint(vocab, (n,), generator=torch.Generator().manual_seed(seed))
