"""Tiny random checkpoints made by transformers, and transformers made exact in float64."""

import math

import torch
import transformers
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3
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

LATENT_SIZES = dict(
    vocab_size=97,
    hidden_size=60,
    intermediate_size=76,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=6,
    kv_lora_rank=20,
    q_lora_rank=34,
    qk_nope_head_dim=10,
    qk_rope_head_dim=12,
    v_head_dim=14,
    max_position_embeddings=128,
    first_k_dense_replace=3,
    rms_norm_eps=1e-3,  # the norms on latents have another
)
YARN = {  # of the six pairs one keeps its frequency, two are blended and three are divided
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
LATENT_FAMILIES = {
    "deepseek v2": ("DeepseekV2", {}),
    "deepseek v2, queries not squeezed": ("DeepseekV2", {"q_lora_rank": None, "n_routed_experts": 0}),
    "deepseek v2, mlp biases, tied": ("DeepseekV2", {"mlp_bias": True, "tie_word_embeddings": True}),
    "deepseek v2, linear rope": ("DeepseekV2", {"rope_parameters": LINEAR_ROPE}),
    "deepseek v2, yarn": ("DeepseekV2", {"rope_parameters": YARN}),
    "deepseek v2, yarn as released": (
        "DeepseekV2",
        {"rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}},
    ),
    "deepseek v3": ("DeepseekV3", {}),
    "deepseek v3, queries not squeezed": ("DeepseekV3", {"q_lora_rank": None, "n_routed_experts": 0}),
    "deepseek v3, half-split": ("DeepseekV3", {"rope_interleave": False}),
    "deepseek v3, llama 3.1 rope": ("DeepseekV3", {"rope_parameters": LLAMA3_ROPE}),
    "deepseek v3, yarn, mscale_all_dim alone": (
        "DeepseekV3",
        {"rope_parameters": YARN | {"mscale_all_dim": 0.9}},
    ),
    "deepseek v3, yarn, two mscales": (
        "DeepseekV3",
        {"rope_parameters": YARN | {"mscale": 1.3, "mscale_all_dim": 0.6}, "q_lora_rank": None},
    ),
}


def make(kind, seed=0, **changes):
    """A random model of transformers, biases and norms random too -> PreTrainedModel in float32."""
    name, options = (FAMILIES | LATENT_FAMILIES)[kind]
    sizes = SIZES if kind in FAMILIES else LATENT_SIZES
    config = getattr(transformers, f"{name}Config")(**(sizes | options | changes))
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

    (Attention's softmax is the third; attn_implementation="sdpa" does not have it. DeepSeek-V2 also rotates
    in float32, as complex numbers.)
    """

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def rotary(self, x, position_ids):
        angles = position_ids[..., None].to(x.dtype) * float64_frequencies(model.config).to(x.dtype)
        angles = torch.cat([angles, angles], dim=-1)
        return self.attention_scaling * angles.cos(), self.attention_scaling * angles.sin()

    def complex_rotary(self, x, position_ids):
        angles = position_ids[..., None].to(x.dtype) * float64_frequencies(model.config).to(x.dtype)
        return torch.polar(torch.full_like(angles, self.attention_scaling), angles)

    def complex_rotation(q, k, turns):
        pairs = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
        return tuple(torch.view_as_real(x * turns[:, None]).flatten(-2) for x in pairs)

    modules = modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3, modeling_deepseek_v3
    for module in (*modules, modeling_deepseek_v2):
        for name in dir(module):
            if name.endswith("RMSNorm"):
                monkeypatch.setattr(getattr(module, name), "forward", norm)
            elif name.endswith("RotaryEmbedding"):
                turning = complex_rotary if module is modeling_deepseek_v2 else rotary
                monkeypatch.setattr(getattr(module, name), "forward", turning)
    monkeypatch.setattr(modeling_deepseek_v2, "apply_rotary_emb", complex_rotation)


def float64_frequencies(config):
    """The frequencies by the published formulas, written apart from kvlab's: loops over scalars."""
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
        if rope["rope_type"] == "yarn":
            frequency *= 1 - yarn_share(rope, dim, pair) * (1 - 1 / rope["factor"])
        result.append(frequency)
    return torch.tensor(result, dtype=torch.float64)


def yarn_share(rope, dim, pair):
    """How far YaRN divides this pair: 0 not at all, 1 by the whole factor, on a line between two pairs."""

    def pair_that_turns(times):  # in the first context, its number not rounded
        wavelength = rope["original_max_position_embeddings"] / times
        return dim / 2 * math.log(wavelength / (2 * math.pi), rope["rope_theta"])

    start = max(0, math.floor(pair_that_turns(rope["beta_fast"])))
    end = math.ceil(pair_that_turns(rope["beta_slow"]))
    return min(1.0, max(0.0, (pair - start) / (end - start)))
