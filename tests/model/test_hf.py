"""Checkpoints that must be refused, each with an error that says what and why. No transformers needed."""

import json

import pytest
import torch
from safetensors.torch import save_file

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
            "model_type 'mixtral' is not covered; known: llama, mistral, qwen2, qwen3",
        ),
        ({"model_type": "qwen3_moe"}, "model_type 'qwen3_moe'"),
        ({"model_type": "deepseek_v3"}, "model_type 'deepseek_v3'"),
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
    (folder / "config.json").unlink()
    refused(folder, "config.json is missing")
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
