"""A Llama-style decoder, written to be read from bottom to top.

It computes queries, keys and values for the new tokens and hands them to a cache; how the cache keeps them is
none of its business. Tokens come packed: N new tokens, no batch dimension, no padding.
"""

import torch
from torch import nn

from kvlab.model.latent import LatentAttention
from kvlab.model.layers import Embedding, Linear, RMSNorm
from kvlab.model.rope import rope_cos_sin, rope_frequencies, rotate


class Attention(nn.Module):
    """Project to queries, keys and values, rotate, let the cache attend, project back."""

    def __init__(self, config, layer):
        super().__init__()
        self.layer, self.head_dim = layer, config.head_dim
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, q_size, bias=config.qkv_bias)
        self.k_proj = Linear(config.hidden_size, kv_size, bias=config.qkv_bias)
        self.v_proj = Linear(config.hidden_size, kv_size, bias=config.qkv_bias)
        self.o_proj = Linear(q_size, config.hidden_size, bias=config.output_bias)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x, cos, sin, cache):
        q = self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.head_dim)))  # [N, Hq, D]
        k = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.head_dim)))  # [N, Hkv, D]
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))  # [N, Hkv, D]
        out = cache.attend(self.layer, rotate(q, cos, sin), rotate(k, cos, sin), v)  # [N, Hq, D]
        return self.o_proj(out.flatten(-2))  # [N, hidden]


class MLP(nn.Module):
    """SwiGLU: a gate decides how much of each hidden unit passes (GLU Variants, Shazeer 2020)."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.mlp_size, bias=config.mlp_bias)
        self.up_proj = Linear(config.hidden_size, config.mlp_size, bias=config.mlp_bias)
        self.down_proj = Linear(config.mlp_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer: attention and MLP, each reading a normalised copy of the stream and adding to it."""

    def __init__(self, config, layer):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.self_attn = (Attention if config.latent is None else LatentAttention)(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x, cos, sin, cache):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token ids in, one row of logits a token out. Names of parameters are Hugging Face's."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied_embeddings:
            self.lm_head.weight = self.embed_tokens.weight
        # Not a buffer: `.to(torch.bfloat16)` must not round the frequencies.
        self.frequencies = rope_frequencies(config.rope_dim, config.rope_theta, config.rope_scaling)

    @property
    def dtype(self):
        return self.embed_tokens.weight.dtype

    @property
    def device(self):
        return self.embed_tokens.weight.device

    def forward(self, token_ids, cache, rows=None):
        """Logits for the new tokens, whose predecessors are in ``cache`` -> [N, vocab].

        token_ids: int64 [N], the N tokens that follow the ``cache.length`` already stored.
        rows: ``"last"`` computes the logits of the last token only -> [1, vocab]; a list of numbers, those of
        these tokens among the new ones -> [len(rows), vocab].
        Raises ValueError for ids, positions or a ``rows`` that the model cannot take.
        """
        self._check(token_ids, rows, cache)
        positions = self._positions(cache, len(token_ids))
        amplitude = self.config.rope_scaling.amplitude
        cos, sin = rope_cos_sin(positions, self.frequencies.to(positions.device), amplitude)  # [N, D/2] each
        x = self.embed_tokens(token_ids)  # [N, hidden]
        for layer in self.layers:
            x = layer(x, cos, sin, cache)
        cache.advance(len(token_ids))
        rows = [-1] if rows == "last" else rows
        return self.lm_head(self.norm(x if rows is None else x[rows]))

    def _positions(self, cache, n):
        positions = cache.positions(n)  # [N]
        limit = self.config.max_positions
        if int(positions.max()) >= limit:
            raise ValueError(
                f"position {int(positions.max())} is past the model's {limit} positions (0 to {limit - 1}): "
                "shorten the text or truncate the cache"
            )
        return positions.to(self.device)

    def _check(self, token_ids, rows, cache):
        if not hasattr(cache, "attend"):
            raise TypeError(
                f"cache is {type(cache).__name__}; give one of kvlab.caches, made from model.config"
            )
        if cache.config is not self.config and cache.config != self.config:
            raise ValueError("this cache was made for a model of another shape: make one from model.config")
        if not (rows is None or rows == "last" or isinstance(rows, list)):
            raise ValueError(
                f"rows is {rows!r}; it is None for all, 'last' for the last one, or a list of numbers"
            )
        if not isinstance(token_ids, torch.Tensor) or token_ids.dtype != torch.int64:
            kind = token_ids.dtype if isinstance(token_ids, torch.Tensor) else type(token_ids).__name__
            raise TypeError(f"token_ids is {kind}; it must be a tensor of int64, such as torch.tensor(ids)")
        if token_ids.dim() != 1 or len(token_ids) == 0:
            raise ValueError(
                f"token_ids has shape {list(token_ids.shape)}; it must be [N] with at least one token "
                "(there is no batch dimension)"
            )
        low, high = int(token_ids.min()), int(token_ids.max())
        if low < 0 or high >= self.config.vocab_size:
            bad = low if low < 0 else high
            raise ValueError(f"token id {bad} is outside the vocabulary: 0 to {self.config.vocab_size - 1}")
