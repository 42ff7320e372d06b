"""Multi-head latent attention (MLA): all heads' keys and values are made from one small latent a token.

Two ways to compute the same thing, behind the same ``cache.attend``:

naive      expand each new latent to every head's key and value, and keep those: as large as without a latent
absorbed   fold the expansion into the query and into the output, and keep the latent: multi-query attention
           with one KV head, whose values are the first entries of its keys

(DeepSeek-V2, arXiv:2405.04434, section 2.1.) Parameter names are those of Hugging Face's DeepSeek-V3.
"""

import torch
from torch import nn

from kvlab import ledger
from kvlab.model.layers import Linear, RMSNorm
from kvlab.model.rope import rotate

LATENT_EPS = 1e-6  # of the norms on latents, whatever the model's other norms use


class LatentAttention(nn.Module):
    """Project to queries and a latent, rotate what carries positions, let the cache attend, project back."""

    def __init__(self, config, layer):
        super().__init__()
        sizes = config.latent
        self.layer, self.absorbed, self.num_heads = layer, config.absorbed, config.num_heads
        self.key_parts = [sizes.nope_dim, sizes.rope_dim]
        self.latent_parts = [sizes.rank, sizes.rope_dim]
        self.expanded_parts = [sizes.nope_dim, sizes.value_dim]
        q_size, expanded = config.num_heads * config.head_dim, config.num_heads * sum(self.expanded_parts)
        if sizes.query_rank is None:
            self.q_proj = Linear(config.hidden_size, q_size, bias=False)
        else:
            self.q_a_proj = Linear(config.hidden_size, sizes.query_rank, bias=False)
            self.q_a_layernorm = RMSNorm(sizes.query_rank, LATENT_EPS)
            self.q_b_proj = Linear(sizes.query_rank, q_size, bias=False)
        self.kv_a_proj_with_mqa = Linear(config.hidden_size, sum(self.latent_parts), bias=False)
        self.kv_a_layernorm = RMSNorm(sizes.rank, LATENT_EPS)
        self.kv_b_proj = Linear(sizes.rank, expanded, bias=False)
        self.o_proj = Linear(config.num_heads * sizes.value_dim, config.hidden_size, bias=False)

    def forward(self, x, cos, sin, cache):
        q = self.queries(x).unflatten(-1, (self.num_heads, -1))  # [N, H, nope + rope]
        q_nope, q_rope = q.split(self.key_parts, dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split(self.latent_parts, dim=-1)  # [N, rank], [N, rope]
        latent = self.kv_a_layernorm(latent)
        q_rope = rotate(q_rope, cos, sin)  # [N, H, rope]
        k_rope = rotate(k_rope[:, None], cos, sin)  # [N, 1, rope]: one for all heads
        attend = self.attend_absorbed if self.absorbed else self.attend_naive
        out = attend(cache, q_nope, q_rope, latent, k_rope)  # [N, H, value]
        return self.o_proj(out.flatten(-2))  # [N, hidden]

    def queries(self, x):
        if hasattr(self, "q_proj"):
            return self.q_proj(x)
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))

    def attend_naive(self, cache, q_nope, q_rope, latent, k_rope):
        expanded = self.kv_b_proj(latent).unflatten(-1, (self.num_heads, -1))  # [N, H, nope + value]
        k_nope, v = expanded.split(self.expanded_parts, dim=-1)
        k = torch.cat([k_nope, k_rope.expand(-1, self.num_heads, -1)], dim=-1)  # [N, H, nope + rope]
        return cache.attend(self.layer, torch.cat([q_nope, q_rope], dim=-1), k, v)

    def attend_absorbed(self, cache, q_nope, q_rope, latent, k_rope):
        """q . (W_uk c) = (W_uk^T q) . c, and W_uv can wait until the latents have been averaged."""
        weights = self.kv_b_proj.weight.unflatten(0, (self.num_heads, -1))  # [H, nope + value, rank]
        w_uk, w_uv = weights.split(self.expanded_parts, dim=1)
        q = torch.cat([per_head(q_nope, w_uk), q_rope], dim=-1)  # [N, H, rank + rope]
        k = torch.cat([latent[:, None], k_rope], dim=-1)  # [N, 1, rank + rope]
        out = cache.attend(self.layer, q, k, None)  # [N, H, rank]
        return per_head(out, w_uv.mT)  # [N, H, value]


def per_head(x, weights):
    """Each head's own product: x [N, H, a] with weights [H, a, b] -> [N, H, b]."""
    ledger.matmul(x[..., 0].numel(), *weights.shape[1:])
    return torch.einsum("nha,hab->nhb", x, weights)
