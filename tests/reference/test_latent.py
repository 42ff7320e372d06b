"""Latent attention against transformers' dense DeepSeek-V2 and V3, naive and absorbed, prefill and decode."""

import json

import pytest
import torch
import transformers
from safetensors.torch import save_file

import kvlab
from kvlab.caches import GrowingCache, NoCache
from kvlab.model import config as config_module
from kvlab.model import hf, latent
from kvlab.model.config import Config, LatentSizes, LayerKV
from kvlab.training import publish
from tests.models import random_ids, random_model
from tests.reference.checkpoints import (
    LATENT_FAMILIES,
    LATENT_SIZES,
    compute_in_the_inputs_dtype,
    logits,
    make,
)

CHUNKS = [13, 1, 1, 6, 1, 1, 1]  # prefill, decode, a chunk after a prefix, decode
IDS = random_ids(sum(CHUNKS), LATENT_SIZES["vocab_size"])


def read(reference, folder, dtype=torch.float32, absorbed=True):
    reference.save_pretrained(folder)
    return kvlab.hf.load(folder, dtype, absorbed)[0]


def ours(model, sizes):
    if sizes is None:
        return model(IDS, NoCache(model.config))
    cache = GrowingCache(model.config)
    return torch.cat([model(chunk, cache) for chunk in IDS.split(sizes)])


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("kind", LATENT_FAMILIES)
def test_float32_as_released(tmp_path, kind, absorbed):
    reference = make(kind)
    reference.set_attn_implementation("eager")
    model = read(reference, tmp_path, absorbed=absorbed)
    assert model.config.absorbed is absorbed
    for sizes in (None, CHUNKS):
        expected = logits(reference, IDS, sizes or [len(IDS)])
        assert expected.abs().max() > 1
        assert (ours(model, sizes) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("kind", LATENT_FAMILIES)
def test_float64_to_nine_digits(tmp_path, monkeypatch, kind, absorbed):
    reference = make(kind)
    model = read(reference, tmp_path, torch.float64, absorbed)
    reference = reference.double()
    reference.set_attn_implementation("sdpa")
    compute_in_the_inputs_dtype(monkeypatch, reference)
    for sizes in (None, CHUNKS):
        assert (ours(model, sizes) - logits(reference, IDS, sizes or [len(IDS)])).abs().max() < 1e-9


@pytest.mark.parametrize("theta", [10.0, 100.0, 1e6])
@pytest.mark.parametrize("context", [5, 32, 4096])
@pytest.mark.parametrize("betas", [(4.0, 1.0), (32, 1), (2.0, 2.0)])
def test_yarn_frequencies_and_amplitude_in_every_corner(tmp_path, theta, context, betas):
    """Contexts so short that no pair turns, and so long that all do: the same as transformers' table."""
    rope = {"rope_type": "yarn", "rope_theta": theta, "factor": 4.0, "mscale": 1.3, "mscale_all_dim": 0.6}
    rope |= {"original_max_position_embeddings": context, "beta_fast": betas[0], "beta_slow": betas[1]}
    reference = make("deepseek v3", rope_parameters=rope)
    model = read(reference, tmp_path)
    theirs = reference.model.rotary_emb
    assert torch.allclose(model.frequencies.float(), theirs.inv_freq, rtol=1e-5)
    assert model.config.rope_scaling.amplitude == pytest.approx(theirs.attention_scaling)


def test_an_older_config_file(tmp_path):
    """As DeepSeek released them: rope_scaling with its type, no head_dim, experts null."""
    reference = make("deepseek v2, yarn as released")
    expected = read(reference, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    raw["rope_theta"], rope["type"] = rope.pop("rope_theta"), rope.pop("rope_type")
    raw |= {"rope_scaling": rope, "n_routed_experts": None, "first_k_dense_replace": 0}
    del raw["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    model, _ = kvlab.hf.load(tmp_path)
    assert model.config == expected.config
    assert torch.equal(ours(model, None), ours(expected, None))


@pytest.mark.parametrize("query_rank", [None, 34])
@pytest.mark.parametrize("absorbed", [True, False])
def test_what_we_publish_is_a_deepseek_v3_to_transformers(tmp_path, query_rank, absorbed):
    """The same logits from one folder, read by both, and by kvlab in both forms."""
    sizes = LatentSizes(rank=20, nope_dim=10, rope_dim=12, value_dim=14, query_rank=query_rank)
    config = Config(97, 60, 3, 6, 6, 22, 76, 128, latent=sizes, absorbed=absorbed)
    tensors = random_model(config, torch.float32).state_dict()
    del tensors["lm_head.weight"]  # tied
    save_file({f"model.{name}": t for name, t in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(publish.hf_config(config)))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert type(theirs).__name__ == "DeepseekV3ForCausalLM"
    model, _ = kvlab.hf.load(tmp_path, absorbed=absorbed)
    assert model.config == config
    with torch.no_grad():
        expected = logits(theirs, IDS, CHUNKS)
    assert expected.abs().max() > 1
    assert (ours(model, CHUNKS) - expected).abs().max() < 1e-4


def naive_width(num_kv_heads, key_dim, value_dim, scale, *rest, **more):
    """The scale of the width that the cache sees, which absorbing has changed."""
    return LayerKV(num_kv_heads, key_dim, value_dim, key_dim**-0.5, *rest, **more)


class Forgetful(latent.RMSNorm):
    def forward(self, x):
        return x * self.weight


MUTATIONS = {
    "rows left interleaved": (hf, "half_split", lambda tensors, config: tensors),
    "no rope": (latent, "rotate", lambda x, cos, sin: x),
    "scale of the cached width": (config_module, "LayerKV", naive_width),
    "no mscale in the scores": (config_module.RopeScaling, "score_factor", 1.0),
    "no amplitude": (config_module.RopeScaling, "amplitude", 1.0),
    "no norm on latents": (latent, "RMSNorm", Forgetful),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_comparison_notices(tmp_path, monkeypatch, mutation):
    reference = make("deepseek v2, yarn", rope_parameters=LATENT_FAMILIES[MOST][1]["rope_parameters"])
    expected = logits(reference, IDS, [len(IDS)])
    assert (ours(read(reference, tmp_path), None) - expected).abs().max() < 1e-4
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert (ours(kvlab.hf.load(tmp_path)[0], None) - expected).abs().max() > 0.1


MOST = "deepseek v3, yarn, two mscales"  # a rope of which every part shows


def test_the_comparison_notices_the_models_eps_on_the_latents(tmp_path, monkeypatch):
    """1e-3 in place of 1e-6 moves logits of size 10 by little, but by far more than rounding does."""
    reference = make("deepseek v3")
    expected = logits(reference, IDS, [len(IDS)])
    monkeypatch.setattr(latent, "LATENT_EPS", LATENT_SIZES["rms_norm_eps"])
    assert (ours(read(reference, tmp_path), None) - expected).abs().max() > 1e-3
