"""What a decoder is made of: numbers only, read by the model and by every cache."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LayerKV:
    """What one layer hands to a cache, and how attention reads it back."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float  # multiplies q . k before the softmax
    window: int | None = None  # a query sees this many latest tokens, itself included; None: all


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched to longer contexts ("default", "linear" or "llama3")."""

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0

    def __post_init__(self):
        if not self.factor > 0:  # said so that NaN fails too
            raise ValueError(f"RoPE's factor is {self.factor}; it must be above 0")
        if self.kind == "llama3" and not self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"RoPE's low_freq_factor {self.low_freq_factor} must be below its high_freq_factor "
                f"{self.high_freq_factor}"
            )


@dataclass(frozen=True)
class Config:
    """A Llama-style decoder. Field by field it becomes Llama, Mistral, Qwen2 or Qwen3.

    ``head_dim`` is explicit: it need not be ``hidden_size / num_heads`` (Qwen3 and Mistral-Nemo differ).
    ``windows`` gives a sliding window to each layer, or ``None`` where the layer sees everything.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    max_positions: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    norm_eps: float = 1e-5
    tied_embeddings: bool = True
    qkv_bias: bool = False  # Qwen2
    output_bias: bool = False  # Llama with attention_bias
    mlp_bias: bool = False  # Llama with mlp_bias
    qk_norm: bool = False  # Qwen3: RMSNorm over each head of q and k, before the rotation
    windows: tuple = ()

    def __post_init__(self):
        sizes = "vocab_size hidden_size num_layers num_heads num_kv_heads head_dim mlp_size max_positions"
        for name in sizes.split():
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a positive integer")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads evenly: "
                "num_heads must be a multiple of num_kv_heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE rotates pairs, so it must be even")
        if self.windows and len(self.windows) != self.num_layers:
            raise ValueError(
                f"{len(self.windows)} windows for {self.num_layers} layers: give one each, or none"
            )
        if any(window is not None and not (_is_integer(window) and window > 0) for window in self.windows):
            raise ValueError(
                f"windows are {self.windows}; a window holds at least the token itself, and whole tokens"
            )

    def layer_kv(self, layer):
        """The :class:`LayerKV` of layer number ``layer``."""
        if not 0 <= layer < self.num_layers:
            raise IndexError(f"layer {layer} of a model with layers 0 to {self.num_layers - 1}")
        return LayerKV(
            num_kv_heads=self.num_kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            scale=1 / math.sqrt(self.head_dim),
            window=self.windows[layer] if self.windows else None,
        )


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)  # Python's True is an int
