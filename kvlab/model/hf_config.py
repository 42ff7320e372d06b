"""A Hugging Face config.json -> Config. What it asks for and the decoder does not do is refused by name."""

import math

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.model import hf_latent
from kvlab.model.config import Config, RopeScaling

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", *hf_latent.FAMILIES)

# What Hugging Face's own configuration classes take for a field that is absent. Null is not absence: it is
# a value, and means "none" for a window and "the usual" for num_key_value_heads and head_dim.
_DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": None,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "layer_types": None,
    "rope_parameters": None,
    "rope_scaling": None,
}
_FAMILY_DEFAULTS = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
    **hf_latent.DEFAULTS,
}
_DEFAULT_THETA = 10_000.0

_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "mlp_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}

# Fields that change what is computed, mostly other architectures', with the values that change nothing here.
_COVERED = {
    "hidden_act": ("silu",),
    "quantization_config": (),
    "partial_rotary_factor": (1.0,),
    "use_mrope": (False,),  # Qwen2-VL
    "num_experts": (0, 1),  # mixtures of experts
    "num_local_experts": (0, 1),
    "index_topk": (),  # DeepSeek-V3.2
    "attn_logit_softcapping": (),  # Gemma
    "final_logit_softcapping": (),
    "residual_multiplier": (1,),  # Granite
    "embedding_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),  # Cohere
    "clip_qkv": (),  # OLMo
    "no_rope_layers": (),  # SmolLM3
    "attention_chunk_size": (),  # Llama 4
}
_COVERED_WITHOUT_LATENT = {"kv_lora_rank": (), "n_routed_experts": (0, 1)}  # DeepSeek's own


def config_from_hf(raw):
    """The dictionary of a config.json -> Config.

    Raises CheckpointError, which names what is missing, malformed, contradictory or not covered.
    """
    if not isinstance(raw, dict):
        raise TypeError(f"config_from_hf was given {type(raw).__name__}; it takes a config.json's dictionary")
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(f"model_type {family!r} is not covered; known: {', '.join(FAMILIES)}")
    fields = Fields(_DEFAULTS | _FAMILY_DEFAULTS[family] | raw, "config.json")
    has_latent = family in hf_latent.FAMILIES
    for name, covered in (_COVERED | ({} if has_latent else _COVERED_WITHOUT_LATENT)).items():
        fields.only(name, *covered)
    fields.require(_SIZES.values())
    sizes = {ours: fields.integer(theirs) for ours, theirs in _SIZES.items()}
    latent = hf_latent.latent_sizes(fields, family) if has_latent else None
    # A DeepSeek file's head_dim has no part: it is the rotary part's width, or left over.
    head_dim = latent.nope_dim + latent.rope_dim if has_latent else _head_dim(fields)
    fields.only("attention_multiplier", 1 / math.sqrt(head_dim))
    fields.only("query_pre_attn_scalar", head_dim)
    attention_bias, mlp_bias = fields.flag("attention_bias"), fields.flag("mlp_bias")
    try:
        return Config(
            **sizes,
            num_kv_heads=fields.integer("num_key_value_heads", null=True) or sizes["num_heads"],
            head_dim=head_dim,
            norm_eps=fields.number("rms_norm_eps"),
            tied_embeddings=fields.flag("tie_word_embeddings"),
            qkv_bias=family == "qwen2" or (family != "mistral" and attention_bias),
            output_bias=family in ("llama", "qwen3") and attention_bias,
            mlp_bias=family in ("llama", "deepseek_v2") and mlp_bias,
            qk_norm=family == "qwen3",
            windows=_windows(fields, family),
            latent=latent,
            **_rope(fields, family),
        )
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"config.json: {error}") from error


def _head_dim(fields):
    given = fields.integer("head_dim", null=True)
    hidden_size, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if given is None and hidden_size % num_heads:
        raise CheckpointError(
            f"config.json: head_dim is not given, and hidden_size {hidden_size} does not divide into "
            f"num_attention_heads {num_heads}"
        )
    return given or hidden_size // num_heads


def _windows(fields, family):
    """One window, or None, a layer. A window that is configured but switched off is no window."""
    layers, given = fields.integer("num_hidden_layers"), fields.texts("layer_types", null=True)
    window = fields.integer("sliding_window", least=0, null=True)
    switch, lowest = fields.flag("use_sliding_window"), fields.integer("max_window_layers", least=0)
    by_layer = family in ("qwen2", "qwen3") and switch and window is not None
    if not by_layer:  # Llama has no windows, and Mistral no switch: all its layers have one, or none
        lowest = 0 if family == "mistral" and window is not None else layers
    usual = [_SLIDING if layer >= lowest else _FULL for layer in range(layers)]
    kinds = usual if given is None else given
    if unknown := set(kinds) - {_FULL, _SLIDING}:
        raise CheckpointError(f"config.json: layer_types has {sorted(unknown)}; known: {_FULL}, {_SLIDING}")
    if len(kinds) != layers:
        raise CheckpointError(f"config.json: layer_types has {len(kinds)} entries for {layers} layers")
    if kinds != usual and not by_layer:
        raise CheckpointError(
            f"config.json: layer_types contradicts the other fields, by which every layer is {usual[0]}"
        )
    return tuple(window if kind == _SLIDING else None for kind in kinds) if _SLIDING in kinds else ()


_FULL, _SLIDING = "full_attention", "sliding_attention"


def _rope(fields, family):
    """rope_parameters (newer files) or rope_scaling (older ones), which must not contradict each other."""
    named = {name: fields.object(name, null=True) for name in ("rope_parameters", "rope_scaling")}
    kinds = [kind for kind in _ROPE_FIELDS if kind != "yarn" or family in hf_latent.FAMILIES]
    readings = [_read_rope(fields, name, values, kinds) for name, values in named.items() if values]
    readings = readings or [_read_rope(fields, "rope_parameters", {}, kinds)]
    if readings[0] != readings[-1]:
        raise CheckpointError("config.json: rope_parameters and rope_scaling disagree: keep the right one")
    return readings[0]


def _read_rope(fields, name, values, covered):
    rope = Fields(values, f"config.json: {name}")
    nested = [key for key, value in values.items() if isinstance(value, dict) or key.endswith("_attention")]
    if nested:
        raise CheckpointError(f"{rope.where} differs by layer ({', '.join(nested)}); that is not covered")
    kinds = [rope.text(key) for key in ("rope_type", "type") if key in rope]
    if not kinds and (name == "rope_scaling" or values.keys() - _EVERY_ROPE):
        raise CheckpointError(f"{rope.where} lacks rope_type; known: {', '.join(covered)}")
    kind = _agreed(f"{name}'s type", kinds or ["default"])
    if kind not in covered:
        raise CheckpointError(f"{rope.where}: RoPE type {kind!r} is not covered; known: {', '.join(covered)}")
    rope.where = f"config.json: RoPE type {kind!r}"
    wanted, optional = _ROPE_FIELDS[kind], _OPTIONAL_ROPE_FIELDS.get(kind, ())
    rope.require(wanted.values())
    rope.only("partial_rotary_factor", 1.0)
    for extra in values.keys() - _EVERY_ROPE - _IDLE - {*wanted.values(), *optional}:
        rope.only(extra, *_USUAL_ROPE.get((kind, extra), ()))
    thetas = [place.number("rope_theta") for place in (rope, fields) if "rope_theta" in place]
    numbers = {ours: rope.number(theirs) for ours, theirs in wanted.items()}
    for option in optional:  # null, like absence, means the usual
        if values.get(option) is not None:
            numbers[option] = rope.number(option, zero=option.startswith("mscale"))
    if "original_max_positions" in wanted:
        context = "original_max_position_embeddings"
        given = [place.integer(context) for place in (rope, fields) if context in place]
        numbers["original_max_positions"] = _agreed(context, given)
    return {
        "rope_theta": _agreed("rope_theta", thetas or [_DEFAULT_THETA]),
        "rope_scaling": RopeScaling(kind, **numbers),
    }


def _agreed(what, values):
    """The value that is given once or more; two that differ would have to be half obeyed."""
    if any(value != values[0] for value in values):
        raise CheckpointError(
            f"config.json gives {what} twice, as {values[0]!r} and {values[1]!r}: keep the right one"
        )
    return values[0]


_ROPE_FIELDS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_positions": "original_max_position_embeddings",
    },
    "yarn": {"factor": "factor", "original_max_positions": "original_max_position_embeddings"},
}
_OPTIONAL_ROPE_FIELDS = {"yarn": ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")}
_USUAL_ROPE = {("yarn", "truncate"): (True,)}  # what a type does anyway
_EVERY_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_IDLE = {"original_max_position_embeddings", "finetuned"}  # told of the training, and used by some types only
