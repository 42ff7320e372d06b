"""Rotary position embedding (RoFormer, Su et al. 2021, section 3.2).

A head's vector is cut into pairs, and pair i of a token at position p is turned by the angle p * f_i. The dot
product of a query at p and a key at s then depends on p - s alone, which is why a key can be rotated once,
cached, and stay right for every later query.

Which entries make a pair is a convention, and checkpoints disagree: *half-split* pairs entry i with i + D/2
(Llama on Hugging Face, and this file), *interleaved* pairs 2i with 2i + 1 (the paper, and GGUF files).
"""

import math

import torch


def rope_frequencies(head_dim, theta, scaling=None):
    """Angle per position of each pair -> float64 [head_dim / 2].

    ``scaling`` is a :class:`~kvlab.model.config.RopeScaling`. "linear" divides all frequencies (Chen et al.
    2023, section 2); "llama3" divides the slow ones, leaves the fast ones and blends between (Llama 3.1's
    released code); so does "yarn", with another blend (Peng et al. 2023, section 3.2).
    """
    frequencies = theta ** -(
        torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu") / head_dim
    )  # [D/2]
    if scaling is None or scaling.kind == "default":
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "llama3":
        turns = (
            scaling.original_max_positions * frequencies / (2 * math.pi)
        )  # turns made in the first context
        span = scaling.high_freq_factor - scaling.low_freq_factor
        keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
        return keep * frequencies + (1 - keep) * frequencies / scaling.factor
    if scaling.kind == "yarn":
        # Pairs that turn beta_fast times or more in the first context stay; below beta_slow they are divided.
        first, last = (
            head_dim
            * math.log(scaling.original_max_positions / (turns * 2 * math.pi))
            / (2 * math.log(theta))
            for turns in (scaling.beta_fast, scaling.beta_slow)
        )
        first, last = max(math.floor(first), 0), min(math.ceil(last), head_dim - 1)
        pairs = torch.arange(head_dim // 2, dtype=torch.float64, device="cpu")
        keep = 1 - ((pairs - first) / (last - first or 0.001)).clamp(0, 1)
        return keep * frequencies + (1 - keep) * frequencies / scaling.factor
    raise ValueError(f"unknown RoPE scaling {scaling.kind!r}; known: default, linear, llama3, yarn")


def rope_cos_sin(positions, frequencies, amplitude=1.0):
    """cos and sin of every token's angles, in float64: positions [N], frequencies [D/2] -> two [N, D/2]."""
    angles = positions.to(frequencies.dtype)[..., None] * frequencies
    return amplitude * angles.cos(), amplitude * angles.sin()


def rotate(x, cos, sin):
    """Turn each pair (i, i + D/2) of ``x`` [..., H, D] by its token's angle; cos and sin are [..., D/2]."""
    cos, sin = (
        cos[..., None, :].to(x.dtype),
        sin[..., None, :].to(x.dtype),
    )  # [..., 1, D/2]: the same for all heads
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
