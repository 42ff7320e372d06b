"""Attention itself: which keys a query may see, and the weighted sum. Every cache and model uses these."""

import torch

from kvlab import ledger


def visible(query_positions, key_positions, window=None):
    """May query i see key j? -> bool [..., N, T].

    Causality is a matter of absolute positions: a key is visible when it is not later than the query. A chunk
    that follows a cached prefix therefore needs no special case, and a square triangle is never built.
    ``window`` also hides keys that are ``window`` or more positions back.
    """
    distance = query_positions[..., :, None] - key_positions[..., None, :]
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def attention_scores(q, k, scale):
    """Scaled dot products of every query head with the key head it shares -> [..., Hkv, G, N, T].

    q [..., N, Hq, D], k [..., T, Hkv, D], and G = Hq / Hkv query heads share a KV head. The group's queries
    are stacked as extra rows of one product, so no key is ever repeated in memory.
    """
    *batch, n, num_heads, dim = q.shape
    t, num_kv_heads = k.shape[-3:-1]
    group = num_heads // num_kv_heads
    rows = q.unflatten(-2, (num_kv_heads, group)).movedim(-4, -2)  # [..., Hkv, G, N, D]
    rows = rows.reshape(*batch, num_kv_heads, group * n, dim)
    columns = k.movedim(-3, -1)  # [..., Hkv, D, T]
    ledger.matmul(rows[..., 0].numel(), dim, t)
    scores = (rows * scale) @ columns
    return scores.unflatten(-2, (group, n))


def attention_weights(q, k, query_positions, key_positions, scale, window=None):
    """How much of each key every query takes: rows that sum to one -> [..., Hkv, G, N, T]."""
    scores = attention_scores(q, k, scale)
    hidden = ~visible(query_positions, key_positions, window)  # [N, T]
    return scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)


def attention(q, k, v, query_positions, key_positions, scale, window=None, value_dim=None):
    """softmax(scale * q k^T) v over the keys each query may see -> [..., N, Hq, Dv].

    q [..., N, Hq, D], k [..., T, Hkv, D], v [..., T, Hkv, Dv]; positions [N] and [T]. Without v, the values
    are the first ``value_dim`` entries of the keys, which are read once for both. Nothing is computed
    below the inputs' dtype. (Attention Is All You Need, Vaswani et al. 2017, section 3.2.1; grouped heads:
    GQA, Ainslie et al. 2023, section 2.2.)
    """
    n, num_heads = q.shape[-3:-1]
    weights = attention_weights(q, k, query_positions, key_positions, scale, window)  # [..., Hkv, G, N, T]
    rows = weights.flatten(-3, -2)  # [..., Hkv, G*N, T]
    ledger.read(k.nbytes + (0 if v is None else v.nbytes))
    v = k[..., :value_dim] if v is None else v
    ledger.matmul(rows[..., 0].numel(), k.shape[-3], v.shape[-1])
    out = rows @ v.movedim(-3, -2)  # [..., Hkv, G*N, Dv]
    out = out.unflatten(-2, (-1, n)).movedim(-2, -4)  # [..., N, Hkv, G, Dv]
    return out.reshape(*out.shape[:-3], num_heads, v.shape[-1])
