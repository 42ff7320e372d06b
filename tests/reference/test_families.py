"""Our decoder against transformers, family by family, prefill and decode."""

import json

import pytest
import torch

import kvlab
from kvlab.caches import GrowingCache, NoCache
from kvlab.model import attention, config, decoder
from kvlab.model.config import LayerKV
from kvlab.model.rope import rotate as half_split_rotate
from tests.models import random_ids
from tests.reference.checkpoints import FAMILIES, SIZES, compute_in_the_inputs_dtype, logits, make

CHUNKS = [
    13,
    1,
    1,
    6,
    1,
    1,
    1,
]  # prefill, decode, a chunk after a prefix, decode: 24 tokens, past every window
IDS = random_ids(sum(CHUNKS), SIZES["vocab_size"])


def save(model, folder):
    model.save_pretrained(folder)
    return folder


def ours(model, sizes):
    if sizes is None:
        return model(IDS, NoCache(model.config))
    cache = GrowingCache(model.config)
    return torch.cat([model(chunk, cache) for chunk in IDS.split(sizes)])


@pytest.mark.parametrize("kind", FAMILIES)
def test_float32_as_released(tmp_path, kind):
    """1e-4: transformers rounds norms, rotary tables and softmax its own way; logits here are of size 10."""
    reference = make(kind)
    reference.set_attn_implementation("eager")
    model, _ = kvlab.hf.load(save(reference, tmp_path))
    for sizes in (None, CHUNKS):
        expected = logits(reference, IDS, sizes or [len(IDS)])
        assert expected.abs().max() > 1
        assert (ours(model, sizes) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("kind", FAMILIES)
def test_float64_to_nine_digits(tmp_path, monkeypatch, kind):
    """1e-9: in float64, with transformers' float32 places lifted, only the order of sums differs."""
    folder = save(make(kind), tmp_path)
    reference = make(kind).double()
    reference.set_attn_implementation("sdpa")
    compute_in_the_inputs_dtype(monkeypatch, reference)
    model, _ = kvlab.hf.load(folder, dtype=torch.float64)
    for sizes in (None, CHUNKS):
        assert (ours(model, sizes) - logits(reference, IDS, sizes or [len(IDS)])).abs().max() < 1e-9


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("head_dim", [None, 10, 24])
def test_every_grouping_and_head_size(tmp_path, monkeypatch, num_kv_heads, head_dim):
    changes = {"num_key_value_heads": num_kv_heads, "head_dim": head_dim}
    folder = save(make("llama", **changes), tmp_path)
    reference = make("llama", **changes).double()
    reference.set_attn_implementation("sdpa")
    compute_in_the_inputs_dtype(monkeypatch, reference)
    model, _ = kvlab.hf.load(folder, dtype=torch.float64)
    assert model.config.num_kv_heads == num_kv_heads
    for sizes in (None, CHUNKS):
        assert (ours(model, sizes) - logits(reference, IDS, sizes or [len(IDS)])).abs().max() < 1e-9


def test_shards_are_one_model(tmp_path):
    reference = make("llama")
    reference.save_pretrained(tmp_path / "shards", max_shard_size="60KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    whole, _ = kvlab.hf.load(save(reference, tmp_path / "whole"))
    shards, _ = kvlab.hf.load(tmp_path / "shards")
    assert torch.equal(ours(whole, None), ours(shards, None))


def test_older_config_files(tmp_path):
    """rope_theta and rope_scaling, as before rope_parameters came; nulls where fields are absent."""
    folder = save(make("llama 3.1 rope"), tmp_path)
    expected = kvlab.hf.load(folder)[0].config
    raw = json.loads((folder / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    raw["rope_theta"] = rope.pop("rope_theta")
    raw["rope_scaling"] = rope
    raw["attention_bias"] = raw["mlp_bias"] = False
    assert kvlab.hf.config_from_hf(raw) == expected
    raw["rope_scaling"] = None
    raw["head_dim"] = None
    plain = kvlab.hf.config_from_hf(raw)
    assert plain.rope_scaling.kind == "default"
    assert plain.head_dim == SIZES["hidden_size"] // SIZES["num_attention_heads"]


MUTATIONS = {
    "no causal mask": (attention, "visible", lambda q, k, window=None: q[:, None] >= -k),
    "no rope": (decoder, "rotate", lambda x, cos, sin: x),
    "interleaved rope": (decoder, "rotate", lambda x, cos, sin: interleaved(x, cos, sin)),
    "no scale": (config, "LayerKV", lambda scale, **rest: LayerKV(scale=1.0, **rest)),
    "no rms norm": (decoder.RMSNorm, "forward", lambda self, x: x * self.weight),
}


def interleaved(x, cos, sin):
    """The other rotary layout: pairs (2i, 2i + 1)."""
    return half_split_rotate(torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1), cos, sin)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_comparison_notices(tmp_path, monkeypatch, mutation):
    """With a part taken out of our model, the same comparison is off by far more than its tolerance."""
    reference = make("llama")
    model, _ = kvlab.hf.load(save(reference, tmp_path))
    expected = logits(reference, IDS, [len(IDS)])
    assert (ours(model, None) - expected).abs().max() < 1e-4
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert (ours(model, None) - expected).abs().max() > 0.1
