"""Configurations of the catalogue, and of families it has no model of, made small: the same pattern of
layers, but few and narrow ones, whose sizes differ."""

from kvlab.memory import models

WINDOW = 37
LIMIT = 5000  # tokens
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"

# For the fields that a configuration states, whatever its family. KV heads become six, two or one, as many
# as query heads, fewer, or one for all.
SMALL = {
    **dict.fromkeys(("hidden_size", "n_embd", "word_embed_proj_dim", "lru_width"), 48),
    **dict.fromkeys(("num_attention_heads", "n_head"), 6),
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 4),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "dense_intermediate_size"), 40),
    **dict.fromkeys(("ffn_dim", "n_inner"), 40),
    **dict.fromkeys(("moe_intermediate_size", "shared_intermediate_size", "share_expert_dim"), 24),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "experts_per_token"), 2),
    **dict.fromkeys(("moe_top_k", "top_k_experts"), 2),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "attention_window_size"), WINDOW),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "model_max_length"), LIMIT),
    **{"head_dim": 10, "global_head_dim": 14, "v_head_dim": 8},
    **{"kv_lora_rank": 20, "q_lora_rank": 22, "qk_nope_head_dim": 14, "qk_rope_head_dim": 6},
    **{"index_head_dim": 12, "index_n_heads": 3, "index_topk": 16},
    **{"linear_key_head_dim": 10, "linear_value_head_dim": 14},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 10, "mamba_n_groups": 2, "mamba_dt_rank": 5},
    **dict.fromkeys(("mamba_d_conv", "conv_kernel", "linear_conv_kernel_dim", "conv1d_width"), 5),
    **{"mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 10, "n_groups": 2},
}
# What makes a family what it is, so small that it still is; and what its transformers class wants to be told.
OWN = {
    "deepseek_v3": {"n_group": 1, "topk_group": 1},
    "deepseek_v32": {"n_group": 1, "topk_group": 1},
    "deepseek_v4": {
        "num_hidden_layers": 3,
        "compress_ratios": [0, 4, 128, 0],
        **{"head_dim": 16, "qk_rope_head_dim": 4, "o_groups": 2, "o_lora_rank": 18, "num_hash_layers": 1},
    },
    "gemma3_text": {"sliding_window_pattern": 3, "num_hidden_layers": 5},
    "gemma3n_text": {
        **{"num_hidden_layers": 10, "num_kv_shared_layers": 5, "intermediate_size": [40] * 10},
        **{"hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 61},
    },
    "gemma4_text": {"num_hidden_layers": 6, "num_global_key_value_heads": 3},
    "glm_moe_dsa": {"indexer_types": ["full", "full", "shared", "full"], "n_group": 1, "topk_group": 1},
    "gpt_oss": {"num_hidden_layers": 3},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "mamba"]},
    "jamba": {"attn_layer_period": 4, "attn_layer_offset": 2},
    "kimi_k2": {"n_group": 1, "topk_group": 1},
    "kimi_linear": {
        "linear_attn_config": {
            **{"full_attn_layers": [3], "kda_layers": [1, 2, 4]},
            **{"num_heads": 5, "head_dim": 16, "short_conv_kernel_size": 5},
        }
    },
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [0, 1, 1, 0],
        "layer_types": [FULL, SLIDING, SLIDING, FULL],  # transformers does not read the pattern
        **{"num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 12},
        **{"swa_num_attention_heads": 12, "swa_num_key_value_heads": 4, "swa_head_dim": 12},
        **{"swa_v_head_dim": 8, "sliding_window_size": WINDOW},
    },
    "minimax_m3": {
        "sparse_attention_config": {
            **{"use_sparse_attention": True, "sparse_attention_freq": [0, 1, 1, 1]},
            **{"sparse_index_dim": 12, "sparse_num_index_heads": 2, "sparse_local_block": 1},
            **{"sparse_topk_blocks": 2, "sparse_block_size": 8, "sparse_init_block": 0},
        }
    },
    "nemotron_h": {"num_hidden_layers": 6, "hybrid_override_pattern": "MEM*E-"},
    "recurrent_gemma": {"num_hidden_layers": 5},
    "step3p5": {"attention_other_setting": {"num_attention_heads": 12, "num_attention_groups": 2}},
}
PER_LAYER = ("layer_types", "indexer_types", "moe_layer_freq")
FORGOTTEN = ("quantization_config", "moe_layers_enum", "num_nextn_predict_layers", "mlp_layer_types")

PLAIN = {"num_hidden_layers": 4, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2}
PLAIN |= {"intermediate_size": 40, "max_position_embeddings": LIMIT}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
SLIDES = {"sliding_window": WINDOW, "num_hidden_layers": 5}
THREE_AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
UPPER = {"sliding_window": WINDOW, "max_window_layers": 3}
# Families that the catalogue has no model of, and windows that it has only switched off.
MORE = {
    "bloom": {"n_layer": 3, "n_head": 6, "hidden_size": 48},
    "cohere2": PLAIN | SLIDES,
    "gptj": {"n_layer": 3, "n_head": 6, "n_embd": 48, "rotary_dim": 4, "n_positions": LIMIT},
    "granite": PLAIN,
    "granitemoe": PLAIN | LOCAL_EXPERTS,
    "ministral3": PLAIN | SLIDES | {"head_dim": 10},
    "olmo": PLAIN,
    "olmo2": PLAIN,
    "olmo3": PLAIN | SLIDES,
    "phi": PLAIN,
    "phimoe": PLAIN | LOCAL_EXPERTS | {"sliding_window": WINDOW},
    "qwen2 with its window on": PLAIN | UPPER | {"use_sliding_window": True},
    "qwen2 with its window off": PLAIN | UPPER | {"use_sliding_window": False},
    "qwen2_vl_text": PLAIN | UPPER | THREE_AXES | {"use_sliding_window": True},
    "qwen2_5_vl_text": PLAIN | UPPER | THREE_AXES | {"use_sliding_window": True},
    "qwen2_moe": PLAIN | EXPERTS | {"shared_expert_intermediate_size": 24},
    "qwen3 with its window on": PLAIN | UPPER | {"use_sliding_window": True, "head_dim": 10},
    "qwen3_vl_text": PLAIN | {"head_dim": 10},
    "qwen3_vl_moe_text": PLAIN | EXPERTS | {"head_dim": 10},
    "smollm3": PLAIN | SLIDES | {"use_sliding_window": True, "layer_types": [SLIDING, SLIDING, FULL] * 2},
    "stablelm": PLAIN,
}
MORE["smollm3"]["layer_types"].pop()
BY_NAME = ("Falcon-40B", "Granite-4.0-Micro (dense)", "Llama-2-7B", "Gemma-2B", "Mistral-7B-v0.3")


def shrunk(config):
    """A catalogue's configuration, small."""
    family, small = config["model_type"], {}
    for name, value in config.items():
        if name in PER_LAYER and isinstance(value, list):
            small[name] = value[: OWN.get(family, {}).get("num_hidden_layers", SMALL["num_hidden_layers"])]
        elif name not in FORGOTTEN:
            small[name] = SMALL[name] if name in SMALL and value else value
    for name in ("num_key_value_heads", "num_kv_heads", "num_attention_groups"):
        if config.get(name):
            same, one = config[name] == config["num_attention_heads"], config[name] == 1
            small[name] = 6 if same else 1 if one else 2
    return small | OWN.get(family, {})


def cases():
    """{name: small configuration}: one a family of the catalogue, and MORE."""
    found = {}
    for name, row in models().items():
        family = row["config"]["model_type"]
        if family not in found:
            found[family] = shrunk(row["config"])
        elif name in BY_NAME:
            found[name] = shrunk(row["config"])
    for name, config in MORE.items():
        found[name] = config | {"model_type": name.split()[0]}
    return found
