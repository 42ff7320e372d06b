"""The layers that everything else is made of."""

import torch
from torch import nn

from kvlab import ledger


class Linear(nn.Linear):
    """``nn.Linear`` that bills its product."""

    def forward(self, x):
        ledger.matmul(x[..., 0].numel(), self.in_features, self.out_features)
        return super().forward(x)


class Embedding(nn.Embedding):
    """``nn.Embedding`` that draws no numbers where there is no memory for them: for that torch would first
    import its compiler, which takes a second."""

    def reset_parameters(self):
        if not self.weight.is_meta:
            super().reset_parameters()


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension, in the input's dtype (Zhang, Sennrich 2019)."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
