"""A Hugging Face config.json -> the layers of its cache. An architecture that is not listed is refused.

The traps of this field live here: a head_dim that is not hidden/heads, multi-query flags, windows that are
configured but switched off, layers that slide, share or keep nothing, fields left over from another model.
"""

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.memory.errors import UnknownArchitecture, UnknownName
from kvlab.memory.families import heads, recurrent, windows
from kvlab.memory.formats import FORMATS, format_named

_READERS = {**heads.READERS, **windows.READERS, **recurrent.READERS}
MOST_LAYERS = 10_000
FAMILIES = tuple(sorted(_READERS))  # the values of model_type that are known

# Other spellings of one thing, the usual one first.
_SPELLINGS = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "n_ctx", "model_max_length"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "dtype": ("dtype", "torch_dtype"),
}
_MAY_BE_ABSENT = ("max_position_embeddings", "experts", "experts_per_token", "dtype")
# fmt: off
_OPTIONAL = [
    "head_dim", "num_key_value_heads", "sliding_window", "use_sliding_window", "layer_types",
    "sliding_window_pattern", "_sliding_window_pattern", "layers_block_type", "index_topk_blocks",
    "index_block_size", "attention_chunk_size", "no_rope_layers", "no_rope_layer_interval",
    "num_kv_shared_layers", "num_global_key_value_heads", "attention_k_eq_v", "hybrid_layer_pattern",
    "multi_query", "num_kv_heads", "new_decoder_architecture", "block_configs", "index_head_dim",
    "index_topk", "indexer_types", "compress_ratios", "sparse_attention_config", "num_nextn_predict_layers",
    "mtp_num_hidden_layers", "full_attention_interval", "attn_layer_period", "attn_layer_offset",
    "attention_head_dim", "attention_other_setting", "block_types", "_block_types", "lru_width",
    "conv1d_width", "mamba_ssm_cache_dtype", "mamba_ssm_dtype",
]
# fmt: on


def read_config(config):
    """A config.json's dict -> the keywords of a ModelSpec that it decides.

    Raises UnknownArchitecture for a model_type that is not in ``FAMILIES``, CheckpointError for a file that
    is damaged, contradicts itself or does not say what is needed.
    """
    inner, family = _language_model(config)
    if inner.get("per_layer_config"):
        raise CheckpointError(
            "config.json has a per_layer_config, by which layers differ in ways that are not read here: give "
            "the layers by hand"
        )
    quantization = inner.get("quantization_config") or config.get("quantization_config")
    fields = Fields(dict.fromkeys(_OPTIONAL) | _respelled(inner), "config.json")
    if "num_hidden_layers" in fields and fields.integer("num_hidden_layers") > MOST_LAYERS:
        raise CheckpointError(f"config.json: num_hidden_layers is above {MOST_LAYERS:,}: that is no model")
    notes = []
    if extra := fields.values["num_nextn_predict_layers"] or fields.values["mtp_num_hidden_layers"]:
        layers = "layer predicts" if extra == 1 else "layers predict"
        notes.append(
            f"{extra} more {layers} tokens further ahead (MTP), with a cache only when used: not counted."
        )
    if family == "deepseek_v4":
        notes.append("The few tokens on their way into the next compressed row are not counted.")
    dtype = _dtype(fields, notes)
    return {
        "layers": tuple(_READERS[family](fields, family)),
        "query_heads": fields.integer("num_attention_heads"),
        "max_tokens": fields.integer("max_position_embeddings", null=True),
        "dtype": dtype,
        "weights_dtype": _weights_dtype(quantization, notes),
        "experts": fields.integer("experts", least=0, null=True) or 0,
        "experts_per_token": fields.integer("experts_per_token", least=0, null=True) or None,
        "notes": tuple(notes),
    }


def _language_model(config):
    """(fields, family) of the language model, which stands one deeper in a multimodal model's file."""
    inner, family = config, config.get("model_type")
    if isinstance(config.get("text_config"), dict):
        outer = {name: config[name] for name in ("dtype", "torch_dtype") if name in config}
        inner = outer | config["text_config"]
        family = inner.get("model_type") or f"{family}_text"
    if not isinstance(family, str) or family not in _READERS:
        said = "does not say its model_type" if family is None else f"is of model_type {family!r}"
        raise UnknownArchitecture(
            f"this config.json {said}; a formula that fits another would give a wrong number. Known: "
            f"{', '.join(FAMILIES)}. For another model give its layers by hand: "
            f"ModelSpec.uniform(layers=..., kv_heads=..., head_dim=...)"
        )
    return inner, family


def _respelled(config):
    found = dict(config)
    for name, spellings in _SPELLINGS.items():
        said = {each: config[each] for each in spellings if config.get(each) is not None}
        if name != "max_position_embeddings" and len({str(value) for value in said.values()}) > 1:
            raise CheckpointError(f"config.json contradicts itself: {said}")
        if said or name in _MAY_BE_ABSENT:
            found[name] = next(iter(said.values()), None)
    return found


def _weights_dtype(quantization, notes):
    """The format of quantised weights, where it is one that we know; None where they are not quantised."""
    if not isinstance(quantization, dict):
        return None
    method = quantization.get("quant_method")
    if isinstance(method, str) and method in FORMATS:
        return method
    notes.append(
        f"Its weights are quantised by {method!r}; they are counted in its dtype unless you say more."
    )
    return None


def _dtype(fields, notes):
    if fields.values["dtype"] in (None, "auto"):
        notes.append("The config does not say its dtype: bf16 is assumed.")
        return "bf16"
    try:
        return format_named(fields.text("dtype")).name
    except UnknownName as error:
        raise CheckpointError(f"config.json: {error}") from error
