"""DeepSeek-V2 and V3 folders: sizes that must be there, experts that must not, rotary rows in our order."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvlab.caches import NoCache
from kvlab.model import hf
from tests.model.test_hf import CONFIG
from tests.models import ABSORBED, random_ids, random_model

LATENT = CONFIG | {
    "model_type": "deepseek_v3",
    "num_key_value_heads": 6,
    "kv_lora_rank": 12,
    "q_lora_rank": 9,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "rope_interleave": False,
    "first_k_dense_replace": 3,
    "n_routed_experts": 8,
    "attention_bias": False,
}
V2 = {"model_type": "deepseek_v2", "rope_interleave": True}
FAMILIES = [{}, V2]
YARN = {
    "rope_type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 4096,
    "beta_fast": 16,
    "beta_slow": 2,
    "mscale": 0.8,
    "mscale_all_dim": 0.7,
}


def read(*absent, **changes):
    raw = LATENT | changes
    return hf.config_from_hf({name: value for name, value in raw.items() if name not in absent})


def refused(says, *absent, **changes):
    with pytest.raises(hf.CheckpointError, match=says):
        read(*absent, **changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sizes(family):
    assert read(**family) == ABSORBED
    assert read(**family, q_lora_rank=None).latent == replace(ABSORBED.latent, query_rank=None)
    assert read("num_key_value_heads", "rope_interleave", **family) == ABSORBED
    assert read("rms_norm_eps", **family).norm_eps == 1e-6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head_dim", [None, 4, 14, 64, "none"])
def test_head_dim_has_no_part(family, head_dim):
    assert read(**family, head_dim=head_dim) == ABSORBED


SIZES = ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", [*SIZES, "q_lora_rank"])
def test_sizes_are_stated(family, name):
    refused(f"config.json lacks {name}", name, **family)
    for value in (True, 4.0, "4", [4], 0, -4):
        refused(f"{name} is .*; it must be an integer, 1 or more", **family, **{name: value})
    if name != "q_lora_rank":
        refused(f"{name} is null", **family, **{name: None})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("absent", "changes", "says"),
    [
        ((), {"first_k_dense_replace": 1}, "n_routed_experts 8 .* 2 of 3 layers are a mixture of experts"),
        ((), {"first_k_dense_replace": 0}, "3 of 3 layers are a mixture of experts"),
        (("first_k_dense_replace",), {"num_hidden_layers": 4}, "are a mixture of experts"),
        (("n_routed_experts",), {"first_k_dense_replace": 2}, "n_routed_experts .* mixture of experts"),
        ((), {"n_routed_experts": 1, "first_k_dense_replace": 2}, "1 of 3 layers are a mixture of experts"),
        ((), {"n_routed_experts": [8]}, "n_routed_experts is .*; it must be an integer, 0 or more or null"),
        ((), {"first_k_dense_replace": None}, "first_k_dense_replace is null"),
        ((), {"num_local_experts": 8}, "num_local_experts 8 is not covered"),
        ((), {"num_key_value_heads": 2}, "num_key_value_heads is 2, but .* 6 num_attention_heads"),
        ((), {"num_key_value_heads": 12}, "num_key_value_heads is 12, but"),
        ((), {"attention_bias": True}, "attention_bias True is not covered"),
        ((), {"attention_bias": None}, "attention_bias is null"),
        ((), {"rope_interleave": None}, "rope_interleave is null"),
        ((), {"qk_rope_head_dim": 5}, "latent.rope_dim is 5; .* even"),
        ((), {"index_topk": 2048}, "index_topk 2048 is not covered"),
        ((), {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ((), {"layer_types": ["sliding_attention"] * 3}, "every layer is full_attention"),
    ],
)
def test_what_is_not_covered(family, absent, changes, says):
    refused(says, *absent, **family | changes)


def test_experts_by_name_in_a_file_as_released():
    """DeepSeek-V2-Lite's: one dense layer, then 26 of experts."""
    released = {"num_hidden_layers": 27, "n_routed_experts": 64, "first_k_dense_replace": 1}
    refused("n_routed_experts 64 is not covered: .* 26 of 27 layers", **V2 | released)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("experts", [None, 0])
def test_no_experts(family, experts):
    changes = family | {"n_routed_experts": experts}
    assert read(**changes, num_experts_per_tok=8) == ABSORBED
    assert read("first_k_dense_replace", **changes) == ABSORBED


def test_v2_is_always_interleaved():
    refused("rope_interleave is false, but DeepSeek-V2 is always", **V2 | {"rope_interleave": False})


def test_mlp_biases_are_v2s():
    assert read(**V2, mlp_bias=True).mlp_bias
    assert not read(mlp_bias=True).mlp_bias


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_yarn_elsewhere(family):
    with pytest.raises(hf.CheckpointError, match="RoPE type 'yarn' is not covered; known: .*llama3$"):
        hf.config_from_hf(CONFIG | {"model_type": family, "rope_scaling": YARN})


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize(("name", "value"), [("kv_lora_rank", 12), ("index_topk", 64)])
def test_latents_elsewhere(family, name, value):
    with pytest.raises(hf.CheckpointError, match=f"{name} {value} is not covered"):
        hf.config_from_hf(CONFIG | {"model_type": family, name: value})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_yarn(family, place):
    scaling = read(**family, **{place: YARN}).rope_scaling
    assert (scaling.kind, scaling.factor, scaling.original_max_positions) == ("yarn", 40.0, 4096)
    assert (scaling.beta_fast, scaling.beta_slow) == (16.0, 2.0)
    assert (scaling.mscale, scaling.mscale_all_dim) == (0.8, 0.7)
    least = {name: YARN[name] for name in ("rope_type", "factor", "original_max_position_embeddings")}
    nulls = dict.fromkeys(("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"))
    scaling = read(**family, **{place: least}).rope_scaling
    assert (scaling.beta_fast, scaling.beta_slow) == (32.0, 1.0)
    assert (scaling.mscale, scaling.mscale_all_dim) == (0.0, 0.0)
    zeros = least | {"mscale": 0, "mscale_all_dim": 0.0, "truncate": True}
    for same in (least | nulls, zeros):
        assert read(**family, **{place: same}).rope_scaling == scaling


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"factor": None}, "'yarn': factor is null"),
        ({"original_max_position_embeddings": 4096.5}, "original_max_position_embeddings is"),
        ({"attention_factor": 1.2}, "'yarn': attention_factor 1.2 is not covered"),
        ({"truncate": False}, "'yarn': truncate False is not covered; the decoder knows True only"),
        ({"beta_fast": 0}, "beta_fast is 0; it must be a number above 0"),
        ({"beta_slow": "1"}, "beta_slow is '1'; it must be a number above 0"),
        ({"beta_slow": 17}, "beta_slow 17.0 must be above 0 and not above beta_fast 16.0"),
        ({"mscale": -0.7}, "mscale is -0.7; it must be a number, 0 or above"),
        ({"mscale": False}, "mscale is False; it must be a number, 0 or above"),
        ({"mscale_all_dim": "0.7"}, "mscale_all_dim is '0.7'; it must be a number, 0 or above"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"rope_theta": 1}, "rope_theta is 1.0; YaRN needs"),
        ({"low_freq_factor": 1.0}, "'yarn': low_freq_factor 1.0 is not covered"),
    ],
)
def test_yarn_that_is_more_than_the_decoder_does(changes, says):
    refused(says, rope_scaling=YARN | changes)


@pytest.mark.parametrize("name", ["factor", "original_max_position_embeddings"])
def test_yarn_that_lacks_something(name):
    refused(f"'yarn' lacks {name}", rope_scaling={k: v for k, v in YARN.items() if k != name})


def test_mscale_belongs_to_yarn():
    refused("'linear': mscale 1.0", rope_scaling={"type": "linear", "factor": 2.0, "mscale": 1.0})


@pytest.fixture
def folder(tmp_path):
    tensors = random_model(ABSORBED, torch.float32).state_dict()
    del tensors["lm_head.weight"]
    save_file({f"model.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LATENT))
    return tmp_path


def test_half_split_weights_are_taken_as_they_are(folder):
    model, tokenizer = hf.load(folder)
    assert model.config == ABSORBED and tokenizer is None
    for name, tensor in random_model(ABSORBED, torch.float32).state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    assert hf.load(folder, absorbed=False)[0].config == replace(ABSORBED, absorbed=False)


@pytest.mark.parametrize("q_lora_rank", [9, None])
@pytest.mark.parametrize("changes", [V2, {"rope_interleave": True}])
def test_interleaved_rows_are_put_in_our_order(folder, changes, q_lora_rank):
    """Rows numbered from 0: in each head of 14 the last four come as 10, 12, 11, 13; other rows stay."""
    (folder / "config.json").write_text(json.dumps(LATENT | changes | {"q_lora_rank": q_lora_rank}))
    tensors, name = load_file(folder / "model.safetensors"), "model.layers.0.self_attn."
    last = "q_b_proj" if q_lora_rank else "q_proj"
    if not q_lora_rank:
        for layer in range(3):
            for part in ("q_a_proj", "q_a_layernorm", "q_b_proj"):
                del tensors[f"model.layers.{layer}.self_attn.{part}.weight"]
            tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = torch.zeros(84, 20)
    columns = tensors[f"{name}{last}.weight"].shape[1]
    tensors[f"{name}{last}.weight"] = torch.arange(84.0)[:, None].repeat(1, columns)
    tensors[f"{name}kv_a_proj_with_mqa.weight"] = torch.arange(16.0)[:, None].repeat(1, 20)
    save_file(tensors, folder / "model.safetensors")
    attention = hf.load(folder)[0].layers[0].self_attn
    rows = getattr(attention, last).weight[:, 0].unflatten(0, (6, 14))
    expected = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 11, 13.0])
    assert torch.equal(rows, expected + 14 * torch.arange(6.0)[:, None])
    latent_rows = attention.kv_a_proj_with_mqa.weight[:, 0].tolist()
    assert latent_rows == [*range(12), 12, 14, 13, 15]
    assert torch.equal(attention.kv_b_proj.weight, tensors[f"{name}kv_b_proj.weight"])


def test_the_two_layouts_are_two_models(folder):
    """A file whose switch is wrong computes something else, so the switch cannot be ignored unnoticed."""
    ids, half = random_ids(6), hf.load(folder)[0]
    (folder / "config.json").write_text(json.dumps(LATENT | {"rope_interleave": True}))
    interleaved, _ = hf.load(folder)
    difference = half(ids, NoCache(ABSORBED)) - interleaved(ids, NoCache(ABSORBED))
    assert difference.abs().max() > 0.1


def test_weights_that_do_not_fit(folder):
    def refused(says, **changes):
        (folder / "config.json").write_text(json.dumps(LATENT | {"rope_interleave": True} | changes))
        with pytest.raises(hf.CheckpointError, match=says):
            hf.load(folder)

    refused(r"lacks layers.0.self_attn.q_proj.weight", q_lora_rank=None)
    refused(r"kv_a_layernorm.weight is \[12\], but by config.json it is \[13\]", kv_lora_rank=13)
    refused(r"kv_a_proj_with_mqa.weight is \[16, 20\], but .* \[18, 20\]", qk_rope_head_dim=6)
    tensors = load_file(folder / "model.safetensors")
    gate = {"model.layers.2.mlp.gate.weight": torch.zeros(8, 20)}
    save_file(tensors | gate, folder / "model.safetensors")
    refused("beyond what its config.json describes, layers.2.mlp.gate.weight", n_routed_experts=0)
