"""DeepSeek-V2 and V3 on Hugging Face: the sizes of their latents, and their rotary entries in our order.

Two layouts of what RoPE turns (see ``rope.py``): these files store it *interleaved*, pairs (2i, 2i + 1), and
this model turns it *half-split*, pairs (i, i + D/2). A dot product does not mind in which order both sides
list their entries, so the rows of the weights are put in the other order once, when they are read.
"""

import torch

from kvlab.checkpoint import CheckpointError
from kvlab.model.config import LatentSizes

FAMILIES = ("deepseek_v2", "deepseek_v3")

# What Hugging Face's classes take for a field that is absent; the sizes of the latents have to be there.
DEFAULTS = {
    "deepseek_v2": {"n_routed_experts": 64, "first_k_dense_replace": 0, "rope_interleave": True},
    "deepseek_v3": {"n_routed_experts": 256, "first_k_dense_replace": 3, "rope_interleave": True},
}
_SIZES = {
    "rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "value_dim": "v_head_dim",
}


def latent_sizes(fields, family):
    """The fields of a config.json -> LatentSizes. Raises CheckpointError for what the decoder does not do."""
    fields.require([*_SIZES.values(), "q_lora_rank"])
    _check_dense(fields)
    fields.only("attention_bias", False)
    if not fields.flag("rope_interleave") and family == "deepseek_v2":
        raise CheckpointError("config.json: rope_interleave is false, but DeepSeek-V2 is always interleaved")
    heads, kv_heads = fields.integer("num_attention_heads"), fields.integer("num_key_value_heads", null=True)
    if kv_heads not in (None, heads):
        raise CheckpointError(
            f"config.json: num_key_value_heads is {kv_heads}, but a latent gives each of the {heads} "
            "num_attention_heads its own key and value: the two are equal"
        )
    sizes = {ours: fields.integer(theirs) for ours, theirs in _SIZES.items()}
    return LatentSizes(**sizes, query_rank=fields.integer("q_lora_rank", null=True))


def _check_dense(fields):
    layers, experts = fields.integer("num_hidden_layers"), fields.integer("n_routed_experts", 0, null=True)
    dense = fields.integer("first_k_dense_replace", least=0)
    if experts and dense < layers:
        raise CheckpointError(
            f"config.json: n_routed_experts {experts} is not covered: with first_k_dense_replace {dense}, "
            f"{layers - dense} of {layers} layers are a mixture of experts; the decoder knows dense ones only"
        )


def is_interleaved(raw):
    """Whether the weights beside this config.json, which ``config_from_hf`` accepts, are interleaved."""
    return raw["model_type"] in FAMILIES and raw.get("rope_interleave", True)


def half_split(tensors, config):
    """The decoder's weights by name, interleaved -> the same with rotary rows half-split."""
    sizes = config.latent
    rows = {
        "q_proj": (config.num_heads, sizes.nope_dim),
        "q_b_proj": (config.num_heads, sizes.nope_dim),
        "kv_a_proj_with_mqa": (1, sizes.rank),  # one rotary key serves all heads
    }
    turned = {}
    for name, tensor in tensors.items():
        heads, first = rows.get(name.split(".")[-2], (0, 0))
        turned[name] = tensor[_half_split_order(heads, first, sizes.rope_dim)] if heads else tensor
    return turned


def _half_split_order(heads, first, rope_dim):
    """Of which row each row is made: in every head, from entry ``first`` on, even entries before odd ones."""
    order = torch.arange(heads * (first + rope_dim)).unflatten(0, (heads, -1))  # [H, first + rope]
    rotary = order[:, first:]
    return torch.cat([order[:, :first], rotary[:, 0::2], rotary[:, 1::2]], dim=1).flatten()
