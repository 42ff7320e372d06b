"""LoRA: adapters that change what q_proj and v_proj compute, many of them over one model, token by token.

An adapter adds ``alpha / rank * B A x`` to a projection's ``W x``, with A [rank, in] and B [out, rank] far
smaller than W (Hu et al. 2021, arXiv:2106.09685, section 4; queries and values are its section 7.1's choice).
The decoder's own code and weights stay as they are, so tokens of many adapters can share a batch: W x once
for all, and a small product for each adapter (Punica, Chen et al. 2023, arXiv:2310.18547, section 3).
"""

import math
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import index
from weakref import WeakSet

import torch
from torch import nn

from kvlab.model.layers import Linear

TARGETS = ("q_proj", "v_proj")


class LowRank(nn.Module):
    """The change of one projection, ``scale * B A x``; both products are billed."""

    def __init__(self, inputs, outputs, rank, scale):
        super().__init__()
        self.lora_A = Linear(inputs, rank, bias=False)  # [rank, in]
        self.lora_B = Linear(rank, outputs, bias=False)  # [out, rank]
        self.scale = scale
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.lora_B(self.lora_A(x)) * self.scale  # [n, out]


class Adapter(nn.Module):
    """Low-rank changes of every layer's q_proj and v_proj, for models of this config.

    It is made in float32 and changes nothing, since B is zero; ``.to(model.dtype)`` makes it the model's.
    Raises ValueError for a config with latent attention (MLA), a rank that is none, an alpha not above 0.
    """

    def __init__(self, config, rank=4, alpha=8.0):
        super().__init__()
        refuse_latent(config)
        if not 1 <= index(rank) <= config.hidden_size:
            raise ValueError(f"rank is {rank}; it must be from 1 to the model's width, {config.hidden_size}")
        if not 0 < alpha < math.inf:
            raise ValueError(f"alpha is {alpha}; it must be a number above 0")
        self.config, self.rank, self.alpha = config, index(rank), alpha
        heads = {"q_proj": config.num_heads, "v_proj": config.num_kv_heads}
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    target: LowRank(config.hidden_size, heads[target] * config.head_dim, rank, alpha / rank)
                    for target in TARGETS
                }
            )
            for _ in range(config.num_layers)
        )

    @property
    def dtype(self):
        return self.layers[0]["q_proj"].lora_A.weight.dtype

    @property
    def device(self):
        return self.layers[0]["q_proj"].lora_A.weight.device


def refuse_latent(config):
    """Raise ValueError for a config with latent attention."""
    if config.latent is not None:
        raise ValueError(
            "this model has latent attention (MLA), whose values come from a latent: there is no v_proj to "
            "adapt; take a model with ordinary attention"
        )


@contextmanager
def adapted(model, runs):
    """In this block the model computes with adapters.

    runs: (adapter, n) pairs in the order of the packed tokens: n tokens of the adapter, or of the model
    alone where it is None. Runs of one adapter, wherever they stand, are computed together. In place of the
    list one adapter, or None, takes all tokens, however many come.
    Raises ValueError for a model that is adapted already or has no v_proj, for an adapter of another shape
    or device, a negative n, and, when the model is called, for another number of tokens; TypeError for an
    adapter of another dtype or none at all.
    """
    refuse_latent(model.config)
    rows, total = _rows(model, runs)
    if model in _adapted:
        raise ValueError("model is adapted already: put all adapters of a step into one list of runs")
    with ExitStack() as hooks:
        _adapted.add(model)
        hooks.callback(_adapted.discard, model)
        for layer, block in enumerate(model.layers):
            for target in TARGETS:
                products = [(adapter.layers[layer][target], at) for adapter, at in rows.items()]
                projection = getattr(block.self_attn, target)
                hooks.enter_context(projection.register_forward_hook(partial(_add, products, total)))
        yield


def is_adapted(model):
    """Is it inside such a block?"""
    return model in _adapted


_adapted = WeakSet()  # models inside their block


def _add(products, total, projection, arguments, output):
    """The hook of one projection. A gather and two products for each adapter, however many runs it has."""
    (x,) = arguments  # [N, hidden]
    if total not in (None, len(x)):
        raise ValueError(f"runs are of {total} tokens and the model was given {len(x)}: they must agree")
    for low_rank, rows in products:
        output[rows] += low_rank(x[rows])  # [n, out]


def _rows(model, runs):
    """The rows of each adapter, {adapter: int64 [n] or all}, and how many there are, None for any number."""
    if runs is None or isinstance(runs, Adapter):
        return ({} if runs is None else {_fitting(model, runs): slice(None)}), None
    rows, total = {}, 0
    for adapter, n in runs:
        if index(n) < 0:
            raise ValueError(f"runs have {n} tokens of one adapter; there cannot be fewer than none")
        if adapter is not None and n:
            rows.setdefault(_fitting(model, adapter), []).extend(range(total, total + n))
        total += n
    return {adapter: torch.tensor(at, device=model.device) for adapter, at in rows.items()}, total


def _fitting(model, adapter):
    if not isinstance(adapter, Adapter):
        raise TypeError(
            f"adapter is {type(adapter).__name__}; it must be an Adapter, or None for the model alone"
        )
    if adapter.config != model.config:
        raise ValueError("adapter was made for a model of another shape: make one from model.config")
    if adapter.dtype != model.dtype:
        raise TypeError(
            f"adapter is {adapter.dtype} and the model {model.dtype}: use adapter.to(model.dtype)"
        )
    if adapter.device != model.device:
        raise ValueError(f"adapter is on {adapter.device} and the model on {model.device}: move one of them")
    return adapter
