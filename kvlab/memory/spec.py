"""A model as the calculator sees it: its layers, one by one, and how large its weights are."""

import json
import reprlib
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from kvlab.checkpoint import CheckpointError, read_json
from kvlab.memory import catalogue
from kvlab.memory.errors import UnknownName, whole
from kvlab.memory.families import read_config
from kvlab.memory.families.quantized import remark
from kvlab.memory.formats import format_named
from kvlab.memory.layers import Attention, Latent, Layer

# Numbers, and the least that each may be; parameters are 0 where a model is drawn without its weights.
_MAY_BE_NONE = {"max_tokens": 1, "experts": 0, "experts_per_token": 1} | dict.fromkeys(
    ("parameters", "active_parameters", "expert_parameters"), 0
)


@dataclass(frozen=True)
class ModelSpec:
    """What decides the cost of a model's cache.

    ``layers``             one :class:`~kvlab.memory.layers.Layer` a layer
    ``query_heads``        query heads of an attention layer that says no other number
    ``max_tokens``         the longest text it was made for, None where unknown
    ``dtype``              format that it computes in, and of its cache and weights but for what follows
    ``weights_dtype``      format of its weights unless another is asked for, where it is not ``dtype``
    ``expert_dtype``       the same of its routed experts, where it is not that of the other weights
    ``cache_dtype``        format of its cache unless another is asked for, where it is not ``dtype``
    ``parameters``         of all weights, None where unknown; ``active_parameters``: that one token uses
    ``expert_parameters``  those of all routed experts together, None where unknown
    ``parameters_rounded`` why ``parameters`` is a rounded figure, None where it is as exact as it was given
    ``experts``            routed experts a layer, 0 without; ``experts_per_token``: that one token uses
    ``notes``              what a reader of the numbers should know: assumptions, and what is not counted

    Raises TypeError or ValueError for what is no layer, number or format.
    """

    name: str
    layers: tuple
    query_heads: int
    max_tokens: int | None = None
    dtype: str = "bf16"
    weights_dtype: str | None = None
    expert_dtype: str | None = None
    cache_dtype: str | None = None
    parameters: int | None = None
    active_parameters: int | None = None
    expert_parameters: int | None = None
    parameters_rounded: str | None = None
    experts: int = 0
    experts_per_token: int | None = None
    notes: tuple = ()

    def __post_init__(self):
        if not self.layers or not all(isinstance(layer, Layer) for layer in self.layers):
            raise TypeError(f"layers is {reprlib.repr(self.layers)}; it must be one Layer or more")
        whole(self.query_heads, "query_heads", least=1)
        for name, least in _MAY_BE_NONE.items():
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, least)
        format_named(self.dtype)
        for form in (self.weights_dtype, self.expert_dtype, self.cache_dtype):
            if form is not None:
                format_named(form)
        for name in ("expert_parameters", "active_parameters"):
            part, whole_of = getattr(self, name) or 0, self.parameters or 0
            if part > whole_of:
                raise ValueError(f"{name} is {part:,}, more than all {whole_of:,} parameters")
        if self.experts and (self.experts_per_token or 0) > self.experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token:,}, and a layer has {self.experts:,} experts"
            )

    @classmethod
    def named(cls, name):
        """A model of the catalogue by its name or its Hugging Face id. Raises UnknownName."""
        row = catalogue.model(name)
        spec = cls.from_config(row["config"], name=row["name"])
        if row.get("note"):
            spec = replace(spec, notes=(row["note"], *spec.notes))
        if row["parameters"] is None:
            return spec
        numbers = ("parameters", "active_parameters", "expert_parameters")
        spec = spec.with_parameters(*(row.get(name) for name in numbers))
        spec = replace(spec, parameters_rounded=row.get("parameters_rounded"))
        return replace(spec, notes=(*spec.notes, *filter(None, [_rounded(spec)])))

    @classmethod
    def from_config(cls, config, name=None):
        """A Hugging Face config.json: its dict, its path, or the folder it lies in; its text: from_json.

        Raises UnknownArchitecture for one we do not know, CheckpointError for one that is damaged or does
        not say what is needed; both name the field.
        """
        if isinstance(config, str | PathLike):
            path = _path(config)
            path = path / "config.json" if path.is_dir() else path
            name = name or path.resolve().parent.name
            config = read_json(path)
            beside = path.with_name("hf_quant_config.json")  # where older ModelOpt kept it
            if isinstance(config, dict) and "quantization_config" not in config and beside.exists():
                config = config | {"quantization_config": read_json(beside) | {"quant_method": "modelopt"}}
        if not isinstance(config, dict):
            raise TypeError(f"from_config was given {type(config).__name__}; it takes a dict or a path")
        read = read_config(config)
        spec = cls(name or config.get("_name_or_path") or config.get("model_type") or "a model", **read)
        return replace(spec, notes=(*spec.notes, *filter(None, [remark(spec)])))

    @classmethod
    def from_json(cls, text, name=None):
        """The text of a config.json, as pasted. Raises ValueError when it is none."""
        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is no JSON ({error}): paste a whole config.json") from error
        if not isinstance(config, dict):
            raise ValueError(
                f"this is a JSON {type(config).__name__}: paste a whole config.json, with its {{ }}"
            )
        return cls.from_config(config, name)

    @classmethod
    def uniform(cls, *, layers, kv_heads, head_dim, query_heads=None, value_dim=None, window=None, **more):
        """By hand: equal layers of keys and values. ``query_heads`` equal ``kv_heads`` unless given."""
        layer = Attention(kv_heads, head_dim, head_dim if value_dim is None else value_dim, window)
        query_heads = whole(kv_heads if query_heads is None else query_heads, "query_heads", 1)
        if query_heads % kv_heads:
            raise ValueError(f"{query_heads} query heads cannot share {kv_heads} KV heads evenly")
        return cls(more.pop("name", "by hand"), (layer,) * whole(layers, "layers", 1), query_heads, **more)

    @classmethod
    def uniform_latent(cls, *, layers, kv_lora_rank, rope_dim, query_heads, nope_dim=0, value_dim=0, **more):
        """By hand: equal MLA layers. nope_dim and value_dim matter for prefill's FLOPs alone."""
        rank, rope = whole(kv_lora_rank, "kv_lora_rank", 1), whole(rope_dim, "rope_dim", 1)
        nope, value = whole(nope_dim, "nope_dim"), whole(value_dim, "value_dim")
        layer = Latent(1, rank + rope, rank, naive_dims=(nope and nope + rope, value))
        query_heads = whole(query_heads, "query_heads", 1)
        return cls(more.pop("name", "by hand"), (layer,) * whole(layers, "layers", 1), query_heads, **more)

    def with_parameters(self, parameters, active_parameters=None, expert_parameters=None):
        """The same model with its number of weights, which a config.json does not say."""
        parameters = whole(parameters, "parameters", least=1)
        numbers = {"active_parameters": active_parameters, "expert_parameters": expert_parameters}
        changed = replace(self, parameters=parameters, parameters_rounded=None, **numbers)
        notes = [note for note in self.notes if note != _rounded(self)]
        notes = [remark(changed) if note == remark(self) else note for note in notes]
        return replace(changed, notes=tuple(notes))

    def kinds(self):
        """How many layers of each kind -> {kind: count}, in the order of first appearance."""
        counted = {}
        for layer in self.layers:
            counted[layer.kind] = counted.get(layer.kind, 0) + 1
        return counted


def _rounded(spec):
    """The note of a number of parameters that is no exact one."""
    if spec.parameters_rounded is None:
        return None
    return f"Its weights go by {spec.parameters:,} parameters, a rounded figure: {spec.parameters_rounded}."


def spec_of(model):
    """A ModelSpec, a catalogue name, or a path to a config.json -> ModelSpec."""
    if isinstance(model, ModelSpec):
        return model
    if isinstance(model, PathLike):
        return ModelSpec.from_config(model)
    if not isinstance(model, str):
        raise TypeError(f"a model is a name, a path or a ModelSpec, and not {type(model).__name__}")
    try:
        return ModelSpec.named(model)
    except UnknownName:
        path = _path(model)
        if model and (path.exists() or model.endswith(".json")):
            return ModelSpec.from_config(path)
        raise


def _path(text):
    """A path as it was written, ``~`` and all. Raises ValueError for what cannot be one."""
    if isinstance(text, str) and text.lstrip().startswith("{"):
        raise ValueError(
            "this is the text of a config.json: give the file's path, or ModelSpec.from_json(text)"
        )
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{reprlib.repr(str(text))} is neither a model of the catalogue nor a path that can be opened "
            f"({why}): give the path of a config.json"
        ) from None
    return path
