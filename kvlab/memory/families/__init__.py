"""A Hugging Face config.json -> the layers of its cache. An architecture that is not listed is refused.

The traps of this field live here: a head_dim that is not hidden/heads, multi-query flags, windows that are
configured but switched off, layers that slide, share or keep nothing, fields left over from another model.
"""

from contextlib import suppress

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.memory.errors import UnknownArchitecture, UnknownName
from kvlab.memory.families import heads, quantized, recurrent, windows
from kvlab.memory.formats import format_named

_READERS = {**heads.READERS, **windows.READERS, **recurrent.READERS}
MOST_LAYERS = 10_000
FAMILIES = tuple(sorted(_READERS))  # the values of model_type that are known

# Other spellings of one thing, the usual one first.
_SPELLINGS = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "n_ctx", "model_max_length"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts"),
    "dtype": ("dtype", "torch_dtype"),
    "sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern"),
    "block_types": ("block_types", "_block_types"),
}
_MUST_BE_THERE = ("num_hidden_layers", "num_attention_heads", "hidden_size")
# fmt: off
_OPTIONAL = [
    "head_dim", "num_key_value_heads", "sliding_window", "use_sliding_window", "layer_types",
    "layers_block_type", "index_topk_blocks", "index_topk_freq", "index_topk_pattern", "use_mla",
    "index_block_size", "attention_chunk_size", "no_rope_layers", "no_rope_layer_interval",
    "num_kv_shared_layers", "num_global_key_value_heads", "attention_k_eq_v", "hybrid_layer_pattern",
    "multi_query", "num_kv_heads", "new_decoder_architecture", "block_configs", "index_head_dim",
    "index_topk", "indexer_types", "compress_ratios", "sparse_attention_config", "num_nextn_predict_layers",
    "mtp_num_hidden_layers", "num_mtp_modules", "full_attention_interval", "attn_layer_period",
    "attn_layer_offset",
    "attention_head_dim", "attention_other_setting", "lru_width", "conv1d_width", "mamba_ssm_cache_dtype",
    "mamba_ssm_dtype", "index_skip_topk_offset", "swa_num_attention_heads", "use_bidirectional_attention",
]
# fmt: on
# Those of them that a family's class in transformers has another default for: absent is not null.
_MUST_BE_SAID = {
    **dict.fromkeys(("mistral", *windows.QWEN), "sliding_window"),
    "gemma3n_text": "num_kv_shared_layers",
    "llama4_text": "attention_chunk_size",
}
# Objects in which other programs than transformers keep the language model.
_INNER = ("llm_config", "language_config", "thinker_config")


class _Config(Fields):
    """The fields of a model's own object, ``where`` in its file. An absent optional one is null."""

    def __init__(self, values, where, family):
        unsaid = {name: None for name in _OPTIONAL if name != _MUST_BE_SAID.get(family)}
        super().__init__(unsaid | values, where)

    def require(self, names):
        try:
            super().require(names)
        except CheckpointError as error:
            none = ", null for none" if set(names) <= set(_OPTIONAL) else ""
            raise CheckpointError(
                f"{error}; transformers leaves out what its class has by default, which is not guessed here: "
                f"add the field{none}"
            ) from None


def read_config(config):
    """A config.json's dict -> the keywords of a ModelSpec that it decides.

    Raises UnknownArchitecture for a model_type that is not in ``FAMILIES``, CheckpointError for a file that
    is damaged, contradicts itself or does not say what is needed.
    """
    inner, family, where = _language_model(config)
    if inner.get("per_layer_config"):
        raise CheckpointError(
            f"{where} has a per_layer_config, by which layers differ in ways that are not read here: "
            f"{heads.BY_HAND}"
        )
    fields, notes = _Config(_respelled(inner, where), where, family), []
    if "num_hidden_layers" in fields and fields.integer("num_hidden_layers") > MOST_LAYERS:
        raise CheckpointError(f"{where}: num_hidden_layers is above {MOST_LAYERS:,}: that is no model")
    dtype = fields.values["dtype"] = _dtype(fields, notes)
    layers = tuple(_READERS[family](fields, family))
    windows.check_types(fields, layers)
    _note_what_is_not_counted(fields, family, notes)
    recurrent.note_unsaid_states(fields, family, layers, notes)
    quantization = quantized.stated(inner, config)
    weights_dtype, expert_dtype = quantized.of_weights(inner, quantization, notes)
    return {
        "layers": layers,
        "query_heads": fields.integer("num_attention_heads"),
        "max_tokens": fields.integer("max_position_embeddings", null=True),
        "dtype": dtype,
        "weights_dtype": weights_dtype,
        "expert_dtype": expert_dtype,
        "cache_dtype": quantized.cache_dtype(quantization, dtype, notes),
        "experts": fields.integer("experts", least=0, null=True) or 0,
        "experts_per_token": fields.integer("experts_per_token", least=0, null=True) or None,
        "notes": tuple(notes),
    }


def _language_model(config):
    """(fields, family, where they stand) of the language model, which may be one deeper in its file."""
    inner, family, where = config, config.get("model_type"), "config.json"
    if isinstance(config.get("text_config"), dict):
        inner, where = config["text_config"], "config.json, text_config"
        outer = {name: config[name] for name in _SPELLINGS["dtype"] if config.get(name) not in (None, "auto")}
        if outer:  # it holds for all parts
            inner = {name: inner[name] for name in inner if name not in _SPELLINGS["dtype"]} | outer
        family = inner.get("model_type") or f"{family}_text"
    if not isinstance(family, str) or family not in _READERS:
        said = "does not say its model_type" if family is None else f"is of model_type {family!r}"
        inside = [name for name in _INNER if isinstance(config.get(name), dict)]
        hint = f"Its language model stands in {inside[0]}: give that object alone. " if inside else ""
        raise UnknownArchitecture(
            f"this config.json {said}; a formula that fits another would give a wrong number. {hint}Known: "
            f"{', '.join(FAMILIES)}. For another model {heads.BY_HAND}"
        )
    return inner, family, where


def _respelled(config, where):
    found = dict(config)
    for name, spellings in _SPELLINGS.items():
        said = {each: config[each] for each in spellings if config.get(each) is not None}
        meant = {_meant(name, value) for value in said.values()}
        if name != "max_position_embeddings" and len(meant) > 1:
            raise CheckpointError(f"{where} contradicts itself: {said}")
        if said or name not in _MUST_BE_THERE:
            found[name] = next(iter(said.values()), None)
    return found


def _meant(name, value):
    """A value in one spelling: "torch.bfloat16" is bf16, as is "bfloat16"."""
    if name == "dtype":
        with suppress(UnknownName):
            return format_named(value).name
    return str(value)


def _note_what_is_not_counted(fields, family, notes):
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    extra = max(fields.integer(name, least=0, null=True) or 0 for name in names)
    if extra:
        layers = "layer predicts" if extra == 1 else "layers predict"
        notes.append(
            f"{extra} more {layers} tokens further ahead (MTP), with a cache only when used: not counted."
        )
    if family == "deepseek_v4":
        notes.append("The few tokens on their way into the next compressed row are not counted.")


def _dtype(fields, notes):
    if fields.values["dtype"] in (None, "auto"):
        notes.append("The config does not say its dtype: bf16 is assumed.")
        return "bf16"
    try:
        return format_named(fields.text("dtype")).name
    except UnknownName as error:
        raise CheckpointError(f"{fields.where}: {error}") from error
