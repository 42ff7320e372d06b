"""The four variants are alike where they should be, and the comparison is resumable and honest."""

import json
from dataclasses import replace

import pytest
import torch

from kvlab.caches import NoCache
from kvlab.memory import ModelSpec, kv_bytes
from kvlab.model.decoder import Decoder
from kvlab.training import compare, publish
from kvlab.training.variants import VARIANTS, Recipe, Stage
from tests.models import ABSORBED, SMALL, random_ids, random_model

MHA = replace(SMALL, num_kv_heads=6)


def test_the_variants_have_as_many_parameters():
    counts = [sum(p.numel() for p in Decoder(config).parameters()) for config in VARIANTS.values()]
    assert max(counts) < 1.03 * min(counts)


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_per_token_are_the_calculators(variant):
    config = replace(VARIANTS[variant], absorbed=True)
    spec = ModelSpec.from_config(publish.hf_config(config))
    assert compare.values_per_token(config) == kv_bytes(spec, 1, dtype="fp8")


def test_pooling_equal_heads_changes_nothing():
    model = random_model(MHA)
    for name, weight in model.state_dict().items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            heads = weight.unflatten(0, (2, 3, MHA.head_dim))  # [groups, members, D, hidden]
            heads.copy_(heads[:, :1].expand_as(heads))
    ids, pooled = random_ids(9), compare.pool_heads(model, 2)
    assert pooled.config == SMALL
    assert (pooled(ids, NoCache(SMALL)) - model(ids, NoCache(MHA))).abs().max() < 1e-12


def test_pooling_takes_the_mean_of_neighbours():
    model = random_model(MHA)
    pooled = compare.pool_heads(model, 3)
    old, new = (each.layers[1].self_attn.k_proj.weight.unflatten(0, (-1, 8)) for each in (model, pooled))
    assert torch.allclose(new[1], (old[2] + old[3]) / 2)
    same = compare.pool_heads(model, 6)
    assert all(torch.equal(a, b) for a, b in zip(same.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(("config", "heads"), [(MHA, 4), (MHA, 5), (ABSORBED, 1)])
def test_heads_that_do_not_pool_are_refused(config, heads):
    with pytest.raises(ValueError, match=f"6 KV heads cannot be pooled into {heads}"):
        compare.pool_heads(random_model(config), heads)


def test_the_comparison_goes_on_where_it_was_cut(monkeypatch, tmp_path):
    small = {name: replace(config, num_layers=1, vocab_size=1280) for name, config in VARIANTS.items()}
    tiny = Recipe(stages=(Stage(2, 2, 16, 0.5),), warmup=1)
    for name, value in {"VARIANTS": small, "SHORT": tiny, "UPTRAIN": tiny, "SEEDS": (1, 2)}.items():
        monkeypatch.setattr(compare, name, value)
    monkeypatch.setattr("kvlab.training.train.VARIANTS", small)
    rows = random_ids(32).unflatten(0, (2, 16))
    monkeypatch.setattr("kvlab.training.train.batch", lambda recipe, step: (rows, rows))
    monkeypatch.setattr(compare, "RESULTS", tmp_path / "comparison.json")
    monkeypatch.setattr(compare.paths, "ROOT", tmp_path)
    monkeypatch.setattr(compare, "load", lambda name: (Decoder(small[name]), None))
    monkeypatch.setattr(compare, "held_out_loss", lambda model, *sizes: model.norm.weight.sum().item())
    run, ran = compare.short_run, []

    def noted(variant, seed, folder):
        ran.append((variant, seed))
        if len(ran) == 4:
            raise KeyboardInterrupt
        return run(variant, seed, folder)

    monkeypatch.setattr(compare, "short_run", noted)
    with pytest.raises(KeyboardInterrupt):
        compare.compare()
    assert len(json.loads(compare.RESULTS.read_text())["short"]) == 3
    compare.compare()
    done = json.loads(compare.RESULTS.read_text())
    assert len(ran) == 2 * len(VARIANTS) + 1 and len({(r["variant"], r["seed"]) for r in done["short"]}) == 8
    assert [run["kv_heads"] for run in done["pooled"]] == [6, 3, 2, 1]
    before = compare.RESULTS.read_text()
    compare.compare()
    assert compare.RESULTS.read_text() == before
