"""Read a Hugging Face checkpoint folder: config.json, safetensors (one file or shards), tokenizer.json.

Pickled weights are never opened: unpickling runs whatever code the file contains. What the decoder does not
cover is refused by name rather than loaded into something that nearly fits.
"""

import os
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import torch
from safetensors import SafetensorError, safe_open

from kvlab.checkpoint import CheckpointError, check_tensors, is_there, read_json, unreadable
from kvlab.model.decoder import Decoder
from kvlab.model.hf_config import config_from_hf
from kvlab.model.hf_latent import half_split, is_interleaved
from kvlab.model.tokenizer import Tokenizer

__all__ = ["CheckpointError", "config_from_hf", "load"]


def load(path, dtype=torch.float32, absorbed=True):
    """A checkpoint folder -> (Decoder in ``dtype``, ready for inference, and its Tokenizer).

    The tokenizer is ``None`` where the folder has no tokenizer.json. ``~`` in the path is the home folder.
    absorbed: which form of latent attention (MLA) a model that has it computes with, see ``latent.py``; it
    has no effect on other models.
    Raises CheckpointError; TypeError for a path, a dtype or an ``absorbed`` that is none.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is {path!r}; it must be a string or a Path, of the folder with config.json")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype is {dtype!r}; it must be a floating torch.dtype, such as torch.float32")
    if not isinstance(absorbed, bool):
        raise TypeError(f"absorbed is {absorbed!r}; it must be True or False")
    folder = Path(os.path.expanduser(path))
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give the one that holds config.json")
    raw = read_json(folder / "config.json")
    config = config_from_hf(raw)
    if config.latent is not None:
        config = replace(config, absorbed=absorbed)
    tensors = _decoder_names(folder, _read_tensors(folder), config, dtype)
    with torch.device("meta"):  # shapes without memory: the tensors read become the parameters
        model = Decoder(config)
    check_tensors(folder, tensors, model.state_dict(), "config.json")
    if is_interleaved(raw):
        tensors = half_split(tensors, config)
    model.load_state_dict(tensors, assign=True)
    if config.tied_embeddings:
        model.lm_head.weight = model.embed_tokens.weight
    return model.requires_grad_(False).eval(), Tokenizer.from_folder(folder)


def _read_tensors(folder):
    """All tensors of the folder, by their names in the files."""
    tensors = {}
    for file in _weight_files(folder):
        try:
            file.open("rb").close()  # safe_open would call whatever is in the way damage
        except OSError as error:
            raise unreadable(file, error) from error
        try:
            with safe_open(file, framework="pt") as shard:
                found = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            size = file.stat().st_size
            raise CheckpointError(
                f"{file} ({size:,} bytes) is damaged or cut short ({error}): fetch it again"
            ) from error
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError(
                f"{file} has {twice[0]}, which another shard has too: fetch the shards again"
            )
        tensors |= found
    return tensors


def _weight_files(folder):
    """The safetensors files: those that the index names, or the only one."""
    index = folder / "model.safetensors.index.json"
    if is_there(index):
        files = [folder / name for name in _shard_names(index)]
        missing = [file.name for file in files if not file.exists()]
        if missing:
            raise CheckpointError(
                f"{folder}: {len(missing)} of {len(files)} shards are missing: {', '.join(missing)}; "
                "fetch them again"
            )
        return files
    if is_there(folder / "model.safetensors"):
        return [folder / "model.safetensors"]
    pickled = sorted(file.name for file in folder.glob("*.bin"))
    hint = f" ({pickled[0]} is pickled and never opened: save it as safetensors first)" if pickled else ""
    raise CheckpointError(f"{folder} has no model.safetensors and no index of shards{hint}")


def _shard_names(index):
    weight_map = read_json(index).get("weight_map")
    if not weight_map or not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map that names shards: fetch it again")
    names = list(weight_map.values())
    for name in names:
        # A path would lead out of the folder. Windows' rules forbid the slashes of both kinds, and drives.
        plain = isinstance(name, str) and PureWindowsPath(name).name == name
        if not plain or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: weight_map names {name!r}; a shard is a .safetensors file of this folder"
            )
    return sorted(set(names))


def _decoder_names(folder, tensors, config, dtype):
    """Rename to the decoder's parameters and convert; a tied output matrix is the embedding itself."""
    named = {}
    for stored, tensor in tensors.items():
        name = stored.removeprefix("model.")
        if name.endswith("rotary_emb.inv_freq"):  # computed from config.json
            continue
        if name in named:
            raise CheckpointError(f"{folder} has {name} twice, with the prefix model. and without it")
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"{folder}: {stored} is {kind}; weights must be floating-point numbers")
        try:
            named[name] = tensor.to(dtype)
        except RuntimeError as error:  # such as packed 4-bit floats, which PyTorch only stores
            raise CheckpointError(
                f"{folder}: {stored} is {tensor.dtype}, which cannot be read as {dtype} ({error})"
            ) from error
    if config.tied_embeddings and "embed_tokens.weight" in named:
        named["lm_head.weight"] = named["embed_tokens.weight"]
    return named
