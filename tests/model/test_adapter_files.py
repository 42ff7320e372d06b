"""Adapters in PEFT's format: read as they were written, found by name, and refused by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import kvlab
from kvlab.checkpoint import CheckpointError
from kvlab.model import peft
from kvlab.model.lora import adapted
from tests.model.adapters import random_adapter
from tests.models import ABSORBED, SMALL, random_ids, random_model

# What PEFT 0.21.2 writes for such an adapter, whole.
WRITTEN_BY_PEFT = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "somewhere/small",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": False,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "kasa_config": None,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_alpha": 5,
    "lora_bias": False,
    "lora_dropout": 0.1,
    "lora_ga_config": None,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "monteclora_config": None,
    "peft_type": "LORA",
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "r": 3,
    "rank_pattern": {},
    "revision": None,
    "target_modules": ["v_proj", "q_proj"],
    "target_parameters": None,
    "task_type": "CAUSAL_LM",
    "trainable_token_indices": None,
    "use_bdlora": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
    "velora_config": None,
}


@pytest.fixture
def model():
    return random_model()


@pytest.fixture
def folder(tmp_path):
    """A sound adapter to damage."""
    peft.save_adapter(random_adapter(), tmp_path, "small")
    return tmp_path


def refused(folder, model, says):
    with pytest.raises(CheckpointError, match=says):
        kvlab.load_adapter(folder, model)


def change(folder, **fields):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def change_tensors(folder, change):
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def test_what_is_saved_reads_back_rounded(folder, model):
    read, saved = kvlab.load_adapter(str(folder), model), random_adapter()
    assert (read.rank, read.alpha, read.config) == (3, 5.0, SMALL)
    assert read.state_dict().keys() == saved.state_dict().keys()
    for name, tensor in saved.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor.half().double())
    assert not read.training and not any(p.requires_grad for p in read.parameters())
    ids = random_ids(7)
    with adapted(model, read):
        close = model(ids, kvlab.caches.NoCache(SMALL))
    with adapted(model, saved):
        assert 0 < (model(ids, kvlab.caches.NoCache(SMALL)) - close).abs().max() < 1e-2


def test_the_files_are_peft_s(folder):
    tensors = load_file(folder / "adapter_model.safetensors")
    a, b = (f"base_model.model.model.layers.1.self_attn.v_proj.lora_{x}.weight" for x in "AB")
    assert len(tensors) == 12
    assert (tensors[a].shape, tensors[b].shape, tensors[b].dtype) == ((3, 20), (16, 3), torch.float16)
    written = json.loads((folder / "adapter_config.json").read_text())
    ours = {"base_model_name_or_path": "small", "lora_alpha": 5.0, "lora_dropout": 0.0}
    assert written == {name: (WRITTEN_BY_PEFT | ours)[name] for name in written} | {
        "target_modules": ["q_proj", "v_proj"]
    }


def test_a_folder_written_by_peft(folder, model):
    before = kvlab.load_adapter(folder, model).state_dict()
    (folder / "adapter_config.json").write_text(json.dumps(WRITTEN_BY_PEFT))
    after = kvlab.load_adapter(folder, model).state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float64])
def test_it_gets_the_model_s_dtype(folder, dtype, stored):
    change_tensors(folder, lambda tensors: tensors.update({n: t.to(stored) for n, t in tensors.items()}))
    model = random_model(dtype=dtype)
    adapter = kvlab.load_adapter(folder, model)
    assert {p.dtype for p in adapter.parameters()} == {dtype}
    with adapted(model, adapter):
        assert model(random_ids(3), kvlab.caches.NoCache(SMALL)).dtype == dtype


def test_the_course_s_own_are_found_by_name(monkeypatch, tmp_path):
    model, _ = kvlab.load("tiny-gqa")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask").mkdir()
    for name in ("ask", "exclaim"):
        adapter = kvlab.load_adapter(name, model)
        assert adapter.config == model.config
        settings = json.loads((peft.SHIPPED / name / "adapter_config.json").read_text())
        assert settings["base_model_name_or_path"] == "tiny-gqa"
    refused("./ask", model, "adapter_config.json is missing")
    refused("tell", model, r"tell is no adapter of the course \(ask, exclaim\) and not a folder")
    refused(tmp_path / "nowhere", model, "not a folder; give the folder that holds adapter_config.json")
    refused(
        "ask", kvlab.load("tiny-mha")[0], r"v_proj.lora_B.weight is \[64, 4\], but by .* it is \[192, 4\]"
    )
    with pytest.raises(ValueError, match="known: tiny-gqa, tiny-mha, tiny-mla, tiny-mqa, smollm2-135m"):
        kvlab.load("adapters")


def test_home_is_expanded(folder, model, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(folder.parent))
    assert kvlab.load_adapter(Path("~") / folder.name, model).rank == 3


@pytest.mark.parametrize("name", [None, 5, b"ask", ["ask"]])
def test_a_name_that_is_none(model, name):
    with pytest.raises(TypeError, match="name_or_path is .*; it must be a string or a Path"):
        kvlab.load_adapter(name, model)


def test_a_model_that_is_none(folder, model):
    with pytest.raises(TypeError, match="model is tuple; kvlab.load gives two things"):
        kvlab.load_adapter(folder, (model, None))
    with pytest.raises(ValueError, match="this model has latent attention"):
        kvlab.load_adapter(folder, random_model(ABSORBED))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"peft_type": "LOHA"}, "peft_type 'LOHA' is not covered; LORA is"),
        ({"peft_type": None}, "peft_type is null; it must be a string"),
        ({"target_modules": ["q_proj"]}, r"target_modules \['q_proj'\] are not covered; train it again on"),
        (
            {"target_modules": ["q_proj", "k_proj", "v_proj"]},
            r"target_modules \['q_proj', 'k_proj', 'v_proj'\] are not covered",
        ),
        ({"target_modules": "all-linear"}, "target_modules is 'all-linear'; it must be a list of strings"),
        ({"target_modules": None}, "target_modules is null"),
        ({"use_dora": True}, "use_dora True is not covered"),
        ({"use_rslora": True}, "use_rslora True is not covered; the decoder knows False only"),
        ({"use_qalora": True}, "use_qalora True"),
        ({"bias": "lora_only"}, "bias 'lora_only' is not covered; the decoder knows 'none' only"),
        ({"lora_bias": True}, "lora_bias True"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save \['lm_head'\] is not covered"),
        ({"exclude_modules": ["layers.0"]}, "exclude_modules"),
        ({"target_parameters": ["x"]}, "target_parameters"),
        ({"layers_to_transform": [0]}, r"layers_to_transform \[0\] is not covered"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"rank_pattern": {"q_proj": 8}}, r"rank_pattern \{'q_proj': 8\} is not covered"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"arrow_config": {}}, "arrow_config"),
        ({"kasa_config": {}}, "kasa_config"),
        ({"monteclora_config": {}}, "monteclora_config"),
        ({"use_bdlora": {}}, "use_bdlora"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa' is not covered"),
        ({"task_type": "SEQ_CLS"}, "task_type 'SEQ_CLS' is not covered"),
        ({"r": 0}, "r is 0; it must be an integer, 1 or more"),
        ({"r": "3"}, "r is '3'"),
        ({"r": True}, "r is True"),
        ({"r": 10**30}, "rank is 10+; it must be from 1 to the model's width, 20"),
        ({"lora_alpha": 0}, "lora_alpha is 0; it must be a number above 0"),
        ({"lora_alpha": None}, "lora_alpha is null"),
    ],
)
def test_configs_that_are_not_covered(folder, model, fields, says):
    change(folder, **fields)
    refused(folder, model, f"adapter_config.json: {says}")


@pytest.mark.parametrize("name", ["peft_type", "target_modules", "r", "lora_alpha"])
def test_a_config_that_lacks_something(folder, model, name):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({n: v for n, v in json.loads(file.read_text()).items() if n != name}))
    refused(folder, model, f"adapter_config.json lacks {name}")


@pytest.mark.parametrize(
    ("content", "says"),
    [('{"r": ', "is not valid JSON"), ("[]", "holds a list"), ("", "is not valid JSON")],
)
def test_a_config_that_is_damaged(folder, model, content, says):
    (folder / "adapter_config.json").write_text(content)
    refused(folder, model, f"adapter_config.json {says}")
    (folder / "adapter_config.json").unlink()
    refused(folder, model, "adapter_config.json is missing")


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1])
def test_truncated_tensors(folder, model, keep):
    file = folder / "adapter_model.safetensors"
    whole = file.read_bytes()
    cut = int(len(whole) * keep) if isinstance(keep, float) else keep % len(whole)
    file.write_bytes(whole[:cut])
    refused(folder, model, rf"adapter_model.safetensors \({cut:,} bytes\) is damaged or cut short")


def test_tensors_that_are_not_there(folder, model):
    file = folder / "adapter_model.safetensors"
    file.unlink()
    refused(folder, model, "adapter_model.safetensors is missing")
    (folder / "adapter_model.bin").write_bytes(b"not even a pickle")
    refused(folder, model, "adapter_model.bin is pickled and never opened")
    file.mkdir()
    refused(folder, model, "adapter_model.safetensors is a folder")


NAME = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda t: t.pop(NAME), f"lacks {NAME}: is it for another model"),
        (lambda t: t.update(x=torch.ones(1)), "has, beyond what its adapter_config.json describes, x: is it"),
        (
            lambda t: t.update({NAME.replace(".1.", ".3."): t[NAME].clone()}),
            "has, beyond .*layers.3.self_attn.q_pr",
        ),
        (
            lambda t: t.update({NAME: t[NAME].T.contiguous()}),
            rf"{NAME} is \[3, 48\], but by .* it is \[48, 3\]",
        ),
        (
            lambda t: t.update({NAME: t[NAME][:24].clone()}),
            rf"{NAME} is \[24, 3\], but by .* it is \[48, 3\]",
        ),
        (
            lambda t: t.update({NAME: t[NAME].to(torch.int8)}),
            f"{NAME} is int8; weights must be floating-point",
        ),
        (lambda t: t.clear(), "lacks base_model.model.model.layers.0.* and 9 more"),
    ],
)
def test_tensors_that_do_not_fit(folder, model, damage, says):
    change_tensors(folder, damage)
    refused(folder, model, f"adapter_model.safetensors:? {says}")


def test_packed_numbers_are_refused(folder, model):
    packed = torch.zeros(48, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    change_tensors(folder, lambda tensors: tensors.update({NAME: packed}))
    refused(folder, model, "adapter_model.safetensors")


@pytest.mark.parametrize("changes", [{"num_layers": 2}, {"num_layers": 4}, {"hidden_size": 24}])
def test_an_adapter_of_another_model(folder, changes):
    refused(folder, random_model(replace(SMALL, **changes)), "is it for another model")
