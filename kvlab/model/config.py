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
    values_in_keys: bool = False  # there is no v: the first value_dim entries of a key are the value


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched to longer contexts ("default", "linear", "llama3" or "yarn").

    The last four are YaRN's (Peng et al. 2023, section 3): turns in the first context between which it
    blends, and how strongly attention is sharpened, by cos and sin (``mscale``) and by the scores' scale
    (``mscale_all_dim``, which DeepSeek uses).
    """

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0

    def __post_init__(self):
        if not self.factor > 0:  # said so that NaN fails too
            raise ValueError(f"RoPE's factor is {self.factor}; it must be above 0")
        if self.kind == "yarn":
            self._check_yarn()
        if self.kind == "llama3" and not self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"RoPE's low_freq_factor {self.low_freq_factor} must be below its high_freq_factor "
                f"{self.high_freq_factor}"
            )

    def _check_yarn(self):
        if not self.original_max_positions > 0:
            raise ValueError(
                f"RoPE's original_max_positions is {self.original_max_positions}; YaRN needs it above 0"
            )
        if not 0 < self.beta_slow <= self.beta_fast:
            raise ValueError(
                f"RoPE's beta_slow {self.beta_slow} must be above 0 and not above beta_fast {self.beta_fast}"
            )
        if not (self.mscale >= 0 and self.mscale_all_dim >= 0):
            raise ValueError(
                f"RoPE's mscale is {self.mscale} and mscale_all_dim {self.mscale_all_dim}; neither is below 0"
            )

    @property
    def amplitude(self):
        """What cos and sin are multiplied by. As in transformers, one of the mscales alone has no part."""
        if self.kind != "yarn":
            return 1.0
        if self.mscale and self.mscale_all_dim:
            return self._sharper(self.mscale) / self._sharper(self.mscale_all_dim)
        return self._sharper(1.0)

    @property
    def score_factor(self):
        """What the scores of a layer with a latent are multiplied by besides 1 / sqrt(width)."""
        return self._sharper(self.mscale_all_dim) ** 2 if self.kind == "yarn" and self.mscale_all_dim else 1.0

    def _sharper(self, strength):
        return 0.1 * strength * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


@dataclass(frozen=True)
class LatentSizes:
    """Multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1).

    ``rank``        width of the latent from which all heads' keys and values are made (kv_lora_rank)
    ``nope_dim``    entries of a head's query and key that carry no position; made from the latent
    ``rope_dim``    entries that do; one such key serves all heads
    ``value_dim``   width of a head's value
    ``query_rank``  width through which queries are squeezed, None where they are not
    """

    rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    query_rank: int | None = None


@dataclass(frozen=True)
class Config:
    """A Llama-style decoder. Field by field it becomes Llama, Mistral, Qwen2, Qwen3 or a dense DeepSeek.

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
    latent: LatentSizes | None = None  # MLA in place of separate keys and values
    absorbed: bool = True  # MLA over the latents themselves, or else over keys and values made of them

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
        if self.latent is not None:
            self._check_latent()
        elif self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; RoPE rotates pairs, so it must be even")
        if self.rope_scaling.kind == "yarn" and not self.rope_theta > 1:
            raise ValueError(f"rope_theta is {self.rope_theta}; YaRN needs frequencies that fall: above 1")
        if self.windows and len(self.windows) != self.num_layers:
            raise ValueError(
                f"{len(self.windows)} windows for {self.num_layers} layers: give one each, or none"
            )
        if any(window is not None and not (_is_integer(window) and window > 0) for window in self.windows):
            raise ValueError(
                f"windows are {self.windows}; a window holds at least the token itself, and whole tokens"
            )

    def _check_latent(self):
        sizes = self.latent
        for name in ("rank", "nope_dim", "rope_dim", "value_dim", "query_rank"):
            value = getattr(sizes, name)
            if not (_is_integer(value) and value > 0 or (name == "query_rank" and value is None)):
                raise ValueError(f"latent.{name} is {value!r}; it must be a positive integer")
        if sizes.rope_dim % 2:
            raise ValueError(f"latent.rope_dim is {sizes.rope_dim}; RoPE rotates pairs, so it must be even")
        if self.num_kv_heads != self.num_heads or self.head_dim != sizes.nope_dim + sizes.rope_dim:
            raise ValueError(
                f"with a latent, num_kv_heads is num_heads {self.num_heads} and head_dim nope_dim + rope_dim "
                f"{sizes.nope_dim + sizes.rope_dim}; they are {self.num_kv_heads} and {self.head_dim}"
            )
        if self.qk_norm or self.qkv_bias or self.output_bias:
            raise ValueError("with a latent there is no qk_norm, no qkv_bias and no output_bias")

    @property
    def rope_dim(self):
        """Entries of a query or key that are rotated."""
        return self.head_dim if self.latent is None else self.latent.rope_dim

    def layer_kv(self, layer):
        """The :class:`LayerKV` of layer number ``layer``."""
        if not 0 <= layer < self.num_layers:
            raise IndexError(f"layer {layer} of a model with layers 0 to {self.num_layers - 1}")
        window = self.windows[layer] if self.windows else None
        if self.latent is not None:
            return self._latent_kv(window)
        return LayerKV(
            num_kv_heads=self.num_kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            scale=1 / math.sqrt(self.head_dim),
            window=window,
        )

    def _latent_kv(self, window):
        """The scale is that of the original heads, whatever width the cache sees."""
        sizes, scale = self.latent, self.rope_scaling.score_factor / math.sqrt(self.head_dim)
        if self.absorbed:
            return LayerKV(1, sizes.rank + sizes.rope_dim, sizes.rank, scale, window, values_in_keys=True)
        return LayerKV(self.num_heads, self.head_dim, sizes.value_dim, scale, window)


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)  # Python's True is an int
