"""Checkpoints that must be refused, each with an error that says what and why. No transformers needed."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvlab.model import hf
from tests.models import SMALL, random_model

CONFIG = {
    "model_type": "llama",
    "vocab_size": SMALL.vocab_size,
    "hidden_size": SMALL.hidden_size,
    "intermediate_size": SMALL.mlp_size,
    "num_hidden_layers": SMALL.num_layers,
    "num_attention_heads": SMALL.num_heads,
    "num_key_value_heads": SMALL.num_kv_heads,
    "head_dim": SMALL.head_dim,
    "max_position_embeddings": SMALL.max_positions,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


@pytest.fixture
def folder(tmp_path):
    """A sound checkpoint to damage."""
    tensors = random_model(dtype=torch.float32).state_dict()
    del tensors["lm_head.weight"]
    save_file({f"model.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def refused(folder, says):
    with pytest.raises(hf.CheckpointError, match=says):
        hf.load(folder)


def write_config(folder, **changes):
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))


def test_the_sound_one_loads(folder):
    model, tokenizer = hf.load(str(folder), dtype=torch.float64)
    assert model.config == SMALL
    assert tokenizer is None
    assert not any(p.requires_grad for p in model.parameters())
    for name, tensor in random_model(dtype=torch.float32).state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.double())


def test_a_tied_output_matrix_stays_tied(folder):
    model, _ = hf.load(folder)
    assert model.lm_head.weight is model.embed_tokens.weight


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"model_type": "mixtral"},
            "model_type 'mixtral' is not covered; known: llama, mistral, qwen2, qwen3, deepseek_v2",
        ),
        ({"model_type": "qwen3_moe"}, "model_type 'qwen3_moe'"),
        ({"model_type": "deepseek_v32"}, "model_type 'deepseek_v32'"),
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"model_type": None}, "model_type None"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not covered"),
        ({"quantization_config": {"bits": 4}}, "quantization_config .* is not covered"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not covered"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "RoPE type 'dynamic' is not covered"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "RoPE type 'yarn' is not covered"),
        ({"rope_parameters": {"rope_type": "linear"}}, "RoPE type 'linear' lacks factor"),
        ({"num_key_value_heads": 4}, "6 query heads cannot share 4 KV heads"),
        (
            {
                "model_type": "qwen2",
                "use_sliding_window": True,
                "sliding_window": 4,
                "layer_types": ["odd"] * 3,
            },
            r"layer_types has \['odd'\]",
        ),
    ],
)
def test_configs_that_are_not_covered(folder, changes, says):
    write_config(folder, **changes)
    refused(folder, says)


def test_a_config_that_lacks_sizes(folder):
    (folder / "config.json").write_text('{"model_type": "llama", "vocab_size": 37}')
    refused(folder, "config.json lacks hidden_size, num_hidden_layers")


def test_a_config_that_is_cut_or_absent(folder):
    (folder / "config.json").write_text('{"model_type": "ll')
    refused(folder, "not valid JSON")
    (folder / "config.json").write_text("[]")
    refused(folder, "holds a list where an object is expected")
    (folder / "config.json").write_text("null")
    refused(folder, "holds null where an object is expected")
    (folder / "config.json").write_text('{"a": ' * 100_000)
    refused(folder, "config.json is nested too deeply")
    (folder / "config.json").write_text('{"vocab_size": ' + "1" * 5000 + "}")
    refused(folder, "config.json is not valid JSON")
    (folder / "config.json").write_bytes(b'{"model_type": "\xff"}')
    refused(folder, "config.json is not UTF-8")
    (folder / "config.json").unlink()
    refused(folder, "config.json is missing")
    (folder / "config.json").mkdir()
    refused(folder, "config.json is a folder")
    refused(folder / "nowhere", "is not a folder")


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1])
def test_truncated_safetensors(folder, keep):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    cut = int(len(whole) * keep) if isinstance(keep, float) else len(whole) + keep if keep < 0 else keep
    file.write_bytes(whole[:cut])
    refused(folder, rf"model.safetensors \({cut:,} bytes\) is damaged or cut short")


def test_a_missing_shard(folder):
    weights = {
        "model.norm.weight": "model-00001-of-00002.safetensors",
        "x": "model-00002-of-00002.safetensors",
    }
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    refused(folder, "1 of 2 shards are missing: model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}")
    refused(folder, "index.json has no weight_map")


def test_pickled_weights_are_never_opened(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "no model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    refused(folder, "pytorch_model.bin is pickled and never opened")


def test_weights_that_do_not_fit_the_config(folder):
    write_config(folder, num_hidden_layers=4)
    refused(folder, "lacks layers.3.input_layernorm.weight, .* and 6 more")
    write_config(folder, num_hidden_layers=2)
    refused(folder, "beyond what its config.json describes, layers.2")
    write_config(folder, intermediate_size=30)
    refused(folder, r"layers.0.mlp.down_proj.weight is \[20, 28\], but by config.json it is \[20, 30\]")
    write_config(folder, tie_word_embeddings=False)
    refused(folder, "lacks lm_head.weight")


def test_a_byte_order_mark_is_no_damage(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8-sig")
    assert hf.load(folder)[0].config == SMALL


@pytest.mark.parametrize("absorbed", [None, 0, "naive"])
def test_a_form_of_latent_attention_that_is_none(folder, absorbed):
    with pytest.raises(TypeError, match="absorbed is .*; it must be True or False"):
        hf.load(folder, absorbed=absorbed)


def test_the_form_has_no_effect_without_a_latent(folder):
    assert hf.load(folder, absorbed=False)[0].config == hf.load(folder)[0].config == SMALL


def test_home_is_expanded(folder, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(folder.parent))
    assert hf.load(Path("~") / folder.name)[0].config == SMALL
    refused("~nobody-of-this-name/model", "is not a folder")


@pytest.mark.parametrize("path", [None, 5, [], b"model"])
def test_a_path_that_is_none(path):
    with pytest.raises(TypeError, match="path is .*; it must be a string or a Path"):
        hf.load(path)


@pytest.mark.parametrize("dtype", [None, "float32", float, torch.int8, torch.bool, torch.complex64])
def test_a_dtype_that_is_none(folder, dtype):
    with pytest.raises(TypeError, match="dtype is .*; it must be a floating torch.dtype"):
        hf.load(folder, dtype)


def change_tensors(folder, **changes):
    tensors = load_file(folder / "model.safetensors")
    save_file(
        tensors | {name.replace("__", "."): t for name, t in changes.items()}, folder / "model.safetensors"
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "complex64"])
def test_weights_that_are_not_floating(folder, dtype):
    change_tensors(folder, model__norm__weight=torch.ones(20).to(getattr(torch, dtype)))
    refused(folder, f"model.norm.weight is {dtype}; weights must be floating-point")


def test_packed_weights(folder):
    packed = torch.zeros(20, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    change_tensors(folder, model__norm__weight=packed)
    refused(folder, "norm.weight")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_weights_of_all_floating_kinds(folder, dtype):
    change_tensors(folder, model__norm__weight=torch.full((20,), 0.5).to(getattr(torch, dtype)))
    norm = hf.load(folder)[0].norm.weight
    assert norm.dtype == torch.float32 and norm.eq(0.5).all()


def test_a_weight_under_two_names(folder):
    change_tensors(folder, norm__weight=torch.ones(20))
    refused(folder, "has norm.weight twice, with the prefix model. and without it")


def test_what_is_computed_or_tied_may_be_stored(folder):
    before = hf.load(folder)[0].state_dict()
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.arange(4)}
    change_tensors(folder, lm_head__weight=torch.zeros(37, 20), **frequencies)
    after = hf.load(folder)[0].state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def write_index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("weight_map", [None, [], {}, ["model.safetensors"], "model.safetensors", 5])
def test_an_index_without_a_map(folder, weight_map):
    write_index(folder, weight_map)
    refused(folder, "index.json has no weight_map")


@pytest.mark.parametrize(
    "name",
    [
        None,
        5,
        ["model.safetensors"],
        "",
        "..",
        "../model.safetensors",
        "/model.safetensors",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "C:model.safetensors",
        "pytorch_model.bin",
    ],
)
def test_an_index_that_names_no_file_of_the_folder(folder, name):
    write_index(folder, {"a": "model.safetensors", "b": name})
    refused(folder, "weight_map names .*; a shard is a .safetensors file of this folder")


def test_a_tensor_in_two_shards(folder):
    save_file({"model.norm.weight": torch.ones(20)}, folder / "other.safetensors")
    write_index(folder, {"a": "model.safetensors", "model.norm.weight": "other.safetensors"})
    refused(folder, "other.safetensors has model.norm.weight, which another shard has too")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_may_not_be_read_is_not_called_damaged(folder, monkeypatch, name):
    opened = Path.open

    def forbidden(self, *arguments, **options):
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", forbidden)
    monkeypatch.setattr(Path, "read_text", lambda self, **options: self.open(**options).read())
    refused(folder, f"{name} may not be read: you lack permission")


def test_weights_that_are_a_folder_or_a_link_to_nowhere(folder):
    (folder / "model.safetensors").rename(folder / "moved")
    (folder / "model.safetensors").symlink_to("nowhere")
    refused(folder, "model.safetensors is missing")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    refused(folder, "model.safetensors is a folder")
