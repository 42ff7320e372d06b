"""Tiny random checkpoints made by transformers, and transformers made exact in float64."""

import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

# head_dim differs from hidden_size / num_attention_heads, and no two sizes agree.
SIZES = dict(
    vocab_size=97,
    hidden_size=60,
    intermediate_size=76,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
)
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 777.0}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, other theta and eps": ("Llama", {"rope_parameters": DEFAULT_ROPE, "rms_norm_eps": 1e-3}),
    "llama, linear rope": ("Llama", {"rope_parameters": LINEAR_ROPE}),
    "llama 3.1 rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "mistral, window": ("Mistral", {"sliding_window": 7}),
    "mistral, no window": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2, windows in the upper layers": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen2, window switched off": ("Qwen2", {"use_sliding_window": False, "sliding_window": 5}),
    "qwen3": ("Qwen3", {}),
    "qwen3, biases": ("Qwen3", {"attention_bias": True}),
    "qwen3, windows by layer": (
        "Qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}


def make(kind, seed=0, **changes):
    """A random model of transformers, biases and norms random too -> PreTrainedModel in float32."""
    name, options = FAMILIES[kind]
    config = getattr(transformers, f"{name}Config")(**(SIZES | options | changes))
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        centre = 1.0 if parameter.dim() == 1 else 0.0
        parameter.copy_(centre + 0.25 * torch.randn(parameter.shape, generator=generator))
    return model


def logits(model, ids, sizes):
    """The reference's logits when the tokens come in chunks -> [N, vocab]."""
    cache, rows = transformers.DynamicCache(config=model.config), []
    for chunk in ids.split(sizes):
        rows.append(model(chunk[None], cache=cache, use_cache=True).logits[0])
    return torch.cat(rows)


def compute_in_the_inputs_dtype(monkeypatch, model):
    """Lift the places where transformers computes in float32 whatever the dtype: norms and rotary tables.

    (Attention's softmax is the third; attn_implementation="sdpa" does not have it.)
    """

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        angles = position_ids[..., None].to(x.dtype) * float64_frequencies(model.config).to(x.dtype)
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    for module in (modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3):
        for name in dir(module):
            if name.endswith("RMSNorm"):
                monkeypatch.setattr(getattr(module, name), "forward", norm)
            elif name.endswith("RotaryEmbedding"):
                monkeypatch.setattr(getattr(module, name), "forward", rotary)


def float64_frequencies(config):
    """The frequencies by the published formulas, written apart from kvlab's: loops over scalars."""
    import math

    rope, dim = config.rope_parameters, config.head_dim
    result = []
    for pair in range(dim // 2):
        frequency = 1.0 / rope["rope_theta"] ** (2 * pair / dim)
        if rope["rope_type"] == "linear":
            frequency /= rope["factor"]
        if rope["rope_type"] == "llama3":
            context, wavelength = rope["original_max_position_embeddings"], 2 * math.pi / frequency
            if wavelength > context / rope["low_freq_factor"]:
                frequency /= rope["factor"]
            elif wavelength > context / rope["high_freq_factor"]:
                smooth = (context / wavelength - rope["low_freq_factor"]) / (
                    rope["high_freq_factor"] - rope["low_freq_factor"]
                )
                frequency = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
        result.append(frequency)
    return torch.tensor(result, dtype=torch.float64)
