"""Adapters as files in the format of the PEFT library: adapter_config.json and adapter_model.safetensors.

The course's own are found by name. What our adapters do not cover is refused by name, as for checkpoints.
"""

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from kvlab.checkpoint import CheckpointError, Fields, check_tensors, is_there, read_json, unreadable
from kvlab.model.decoder import Decoder
from kvlab.model.load import WEIGHTS
from kvlab.model.lora import TARGETS, Adapter, refuse_latent

SHIPPED = WEIGHTS / "adapters"
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"

# Fields that change what is computed, with the values under which it is what our adapters compute.
_COVERED = {
    "task_type": ("CAUSAL_LM",),
    "bias": ("none",),
    "lora_bias": (False,),
    "fan_in_fan_out": (False,),
    "use_dora": (False,),
    "use_rslora": (False,),
    "use_qalora": (False,),
    "modules_to_save": ([],),
    "exclude_modules": ([],),
    "target_parameters": ([],),
    "layers_to_transform": (),
    "layer_replication": (),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "trainable_token_indices": (),
    "alora_invocation_tokens": (),  # activated only behind these tokens
    "arrow_config": (),
    "kasa_config": (),
    "monteclora_config": (),
    "use_bdlora": (),
    # The others change the base model's weights at the start, and the adapter is for the changed ones.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
}


def load_adapter(name_or_path, model):
    """An adapter of the course by name, or PEFT's folder -> Adapter in the model's dtype, not to be trained.

    ``~`` in a path is the home folder. Whether the adapter was trained on this very model cannot be seen;
    its shapes must fit. Raises CheckpointError for the files, ValueError for a model with latent attention,
    TypeError for what is no model, no name and no path.
    """
    if not isinstance(model, Decoder):
        raise TypeError(f"model is {type(model).__name__}; kvlab.load gives two things: model, tokenizer")
    refuse_latent(model.config)
    folder = _folder(name_or_path)
    with torch.device("meta"):  # shapes without memory: the tensors read become the parameters
        adapter = _described(folder / CONFIG, model.config)
    expected = {_peft_name(name): name for name in adapter.state_dict()}
    tensors = _read(folder)
    shapes = {stored: adapter.get_parameter(name) for stored, name in expected.items()}
    check_tensors(folder / TENSORS, tensors, shapes, CONFIG, ": is it for another model?")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{folder / TENSORS}: {name} is {kind}; weights must be floating-point numbers"
            )
    ours = {expected[stored]: tensor.to(model.device, model.dtype) for stored, tensor in tensors.items()}
    adapter.load_state_dict(ours, assign=True)
    return adapter.requires_grad_(False).eval()


def save_adapter(adapter, folder, base_model=None):
    """Write the two files, weights rounded to fp16. base_model: the name of the model it belongs to."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {_peft_name(name): tensor.half().cpu() for name, tensor in adapter.state_dict().items()}
    save_file(tensors, folder / TENSORS, {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(TARGETS),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_dora": False,
        "use_rslora": False,
        "modules_to_save": None,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")


def _folder(name_or_path):
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise TypeError(f"name_or_path is {name_or_path!r}; it must be a string or a Path")
    shipped = sorted(file.parent.name for file in SHIPPED.glob(f"*/{CONFIG}"))
    if name_or_path in shipped:
        return SHIPPED / name_or_path
    folder = Path(os.path.expanduser(name_or_path))
    if not folder.is_dir():
        raise CheckpointError(
            f"{name_or_path} is no adapter of the course ({', '.join(shipped)}) and not a folder; give the "
            f"folder that holds {CONFIG}"
        )
    return folder


def _described(file, config):
    """The adapter that adapter_config.json describes."""
    fields = Fields(read_json(file), str(file))
    if fields.text("peft_type") != "LORA":
        raise CheckpointError(f"{file}: peft_type {fields.text('peft_type')!r} is not covered; LORA is")
    targets = fields.texts("target_modules")
    if set(targets) != set(TARGETS):
        raise CheckpointError(
            f"{file}: target_modules {targets} are not covered; train it again on {' and '.join(TARGETS)}"
        )
    for name, covered in _COVERED.items():
        fields.only(name, *covered)
    rank, alpha = fields.integer("r"), fields.number("lora_alpha")
    try:
        return Adapter(config, rank, alpha)
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from error


def _peft_name(name):
    """``layers.0.q_proj.lora_A.weight`` -> its name in the file."""
    layers, number, projection = name.split(".", 2)
    return f"base_model.model.model.{layers}.{number}.self_attn.{projection}"


def _read(folder):
    """All tensors of adapter_model.safetensors, by their names in the file."""
    file = folder / TENSORS
    if not is_there(file) and is_there(folder / "adapter_model.bin"):
        raise CheckpointError(
            f"{folder}: adapter_model.bin is pickled and never opened: save it as {TENSORS}"
        )
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from error
    try:
        return load(content)
    except (
        SafetensorError,
        KeyError,
        RuntimeError,
    ) as error:  # the last two: kinds of numbers it cannot read
        raise CheckpointError(
            f"{file} ({len(content):,} bytes) is damaged or cut short ({error}): fetch it again"
        ) from error
