"""Read a Hugging Face checkpoint folder: config.json, safetensors (one file or shards), tokenizer.json.

Pickled weights are never opened: unpickling runs whatever code the file contains. What the decoder does not
cover is refused by name rather than loaded into something that nearly fits.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from kvlab.model.config import Config, RopeScaling
from kvlab.model.decoder import Decoder
from kvlab.model.tokenizer import Tokenizer


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, is damaged, or is of a model that the decoder does not cover."""


FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def load(path, dtype=torch.float32):
    """A checkpoint folder -> (Decoder in ``dtype``, ready for inference, and its Tokenizer).

    The tokenizer is ``None`` where the folder has no tokenizer.json. Raises CheckpointError.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give the one that holds config.json")
    config = config_from_hf(_read_json(folder / "config.json"))
    tensors = _decoder_names(_read_tensors(folder), config, dtype)
    with torch.device("meta"):  # shapes without memory: the tensors read become the parameters
        model = Decoder(config)
    _check_tensors(folder, tensors, model.state_dict())
    model.load_state_dict(tensors, assign=True)
    if config.tied_embeddings:
        model.lm_head.weight = model.embed_tokens.weight
    return model.requires_grad_(False).eval(), Tokenizer.from_folder(folder)


def config_from_hf(raw):
    """The dictionary of a config.json -> Config; CheckpointError names what is not covered."""
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(f"model_type {family!r} is not covered; known: {', '.join(FAMILIES)}")
    _refuse(raw, "hidden_act", "silu")
    _refuse(raw, "quantization_config", None)
    missing = [name for name in _SIZES.values() if name not in raw]
    if missing:
        raise CheckpointError(f"config.json lacks {', '.join(missing)}")
    sizes = {ours: raw[theirs] for ours, theirs in _SIZES.items()}
    bias = bool(raw.get("attention_bias", False))
    try:
        return Config(
            **sizes,
            # `or`: newer files write null where older ones leave the field out
            num_kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
            head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or (family != "mistral" and bias),
            output_bias=family in ("llama", "qwen3") and bias,
            mlp_bias=family == "llama" and bool(raw.get("mlp_bias", False)),
            qk_norm=family == "qwen3",
            windows=_windows(raw, family),
            **_rope(raw),
        )
    except ValueError as error:
        raise CheckpointError(f"config.json: {error}") from error


_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "mlp_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
}


def _refuse(raw, name, covered):
    value = raw.get(name, covered)
    if value != covered:
        raise CheckpointError(f"{name} {value!r} is not covered; the decoder knows {covered!r} only")


def _windows(raw, family):
    """One window, or None, a layer. A window that is configured but switched off is no window."""
    layers, window = raw["num_hidden_layers"], raw.get("sliding_window")
    if family == "llama" or window is None:
        return ()
    if family == "mistral":
        return (window,) * layers
    if not raw.get("use_sliding_window", False):
        return ()
    kinds = raw.get("layer_types")
    if kinds is None:
        full = raw.get("max_window_layers", layers)
        kinds = ["full_attention" if layer < full else "sliding_attention" for layer in range(layers)]
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise CheckpointError(f"layer_types has {sorted(unknown)}; known: full_attention, sliding_attention")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _rope(raw):
    """rope_parameters (newer files) or rope_theta with rope_scaling (older ones)."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = rope.get("rope_theta", raw.get("rope_theta", 10_000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    for source in (raw, rope):
        _refuse(source, "partial_rotary_factor", 1.0)
    if kind not in _ROPE_FIELDS:
        raise CheckpointError(f"RoPE type {kind!r} is not covered; known: {', '.join(_ROPE_FIELDS)}")
    missing = [name for name in _ROPE_FIELDS[kind].values() if name not in rope]
    if missing:
        raise CheckpointError(f"RoPE type {kind!r} lacks {', '.join(missing)}")
    scaling = RopeScaling(kind, **{ours: rope[theirs] for ours, theirs in _ROPE_FIELDS[kind].items()})
    return {"rope_theta": float(theta), "rope_scaling": scaling}


_ROPE_FIELDS = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_positions": "original_max_position_embeddings",
    },
}


def _read_json(file):
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing: is this a Hugging Face checkpoint folder?") from None
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds a {type(content).__name__} where an object is expected")
    return content


def _read_tensors(folder):
    """All tensors of the folder, by their names in the files."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = sorted(set(_read_json(index).get("weight_map", {}).values()))
        if not files:
            raise CheckpointError(f"{index} has no weight_map: fetch it again")
        missing = [name for name in files if not (folder / name).exists()]
        if missing:
            raise CheckpointError(
                f"{folder}: {len(missing)} of {len(files)} shards are missing: {', '.join(missing)}; "
                "fetch them again"
            )
    elif (folder / "model.safetensors").exists():
        files = ["model.safetensors"]
    else:
        pickled = sorted(file.name for file in folder.glob("*.bin"))
        hint = f" ({pickled[0]} is pickled and never opened: save it as safetensors first)" if pickled else ""
        raise CheckpointError(f"{folder} has no model.safetensors and no index of shards{hint}")
    tensors = {}
    for name in files:
        try:
            with safe_open(folder / name, framework="pt") as shard:
                tensors.update((key, shard.get_tensor(key)) for key in shard.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            size = (folder / name).stat().st_size
            raise CheckpointError(
                f"{folder / name} ({size:,} bytes) is damaged or cut short ({error}): fetch it again"
            ) from error
    return tensors


def _decoder_names(tensors, config, dtype):
    """Rename to the decoder's parameters and convert; a tied output matrix is the embedding itself."""
    named = {name.removeprefix("model."): tensor.to(dtype) for name, tensor in tensors.items()}
    named = {name: tensor for name, tensor in named.items() if not name.endswith("rotary_emb.inv_freq")}
    if config.tied_embeddings and "embed_tokens.weight" in named:
        named["lm_head.weight"] = named["embed_tokens.weight"]
    return named


def _check_tensors(folder, tensors, expected):
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    for problem, names in (("lacks", missing), ("has, beyond what its config.json describes,", extra)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(f"{folder} {problem} {', '.join(names[:3])}{more}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{folder}: {name} is {list(tensor.shape)}, but by config.json it is "
                f"{list(expected[name].shape)}"
            )
