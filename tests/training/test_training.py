"""Training in small: seeded, resumable to the bit, on rows that are what the model card says."""

import json
from dataclasses import replace

import pytest
import torch

from kvlab.memory import ModelSpec
from kvlab.model import hf
from kvlab.model.config import LatentSizes
from kvlab.training import data, publish, train, variants
from kvlab.training.corpus import HELD_OUT, texts, tidy, works
from kvlab.training.evaluate import held_out_loss
from kvlab.training.variants import Recipe, Stage

RECIPE = Recipe(stages=(Stage(4, 2, 32, 0.5), Stage(2, 1, 40, 0.5)), warmup=2)


@pytest.fixture(autouse=True)
def smaller_model(monkeypatch):
    small = replace(variants.VARIANTS["tiny-gqa"], hidden_size=16, num_layers=1, mlp_size=24)
    monkeypatch.setitem(variants.VARIANTS, "tiny-gqa", small)


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_run_that_was_cut_ends_with_the_same_weights(tmp_path, monkeypatch, cut):
    whole, losses = train.train("tiny-gqa", RECIPE, tmp_path / "whole", quiet=True)
    monkeypatch.setattr(train, "SAVE_EVERY", 1)

    class Cut(Exception):
        pass

    def batch_until_the_cut(recipe, step):
        if step == cut:
            raise Cut
        return data.batch(recipe, step)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(train, "batch", batch_until_the_cut)
        train.train("tiny-gqa", RECIPE, tmp_path / "cut", quiet=True)
    resumed, again = train.train("tiny-gqa", RECIPE, tmp_path / "cut", quiet=True)
    assert again == losses
    assert len(losses) == RECIPE.steps
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name])


def test_a_state_of_another_recipe_is_refused(tmp_path):
    train.train("tiny-gqa", RECIPE, tmp_path, quiet=True)
    with pytest.raises(ValueError, match="belongs to another recipe"):
        train.train("tiny-gqa", replace(RECIPE, seed=2), tmp_path, quiet=True)


def test_rows_begin_with_bos_and_are_shifted_by_one():
    ids, following = data.batch(RECIPE, step=3)
    assert ids.shape == following.shape == (2, 32)
    assert (ids[:, 0] == 0).all()
    assert torch.equal(ids[:, 1:], following[:, :-1])
    again, _ = data.batch(RECIPE, step=3)
    assert torch.equal(ids, again)
    assert not torch.equal(ids, data.batch(RECIPE, step=2)[0])
    assert data.batch(RECIPE, step=5)[0].shape == (1, 40)


@pytest.mark.parametrize("seed", range(20))
def test_a_repeated_span_stands_earlier_in_the_row(seed):
    """On numbers that all differ, the end of the row shows which span was taken, and that it goes round."""
    row = torch.arange(240)
    data.repeat_a_span(row, torch.Generator().manual_seed(seed))
    target = int((row != torch.arange(240)).nonzero()[0])
    tail, source = row[target:], int(row[target])
    span = next((j for j in range(len(tail)) if tail[j] != source + j), len(tail))
    assert 8 <= span <= 60
    assert source + span <= target <= 120
    assert torch.equal(tail, source + torch.arange(len(tail)) % span)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_as_many_rows_repeat_as_the_recipe_says(share):
    def rows(repeats):
        return data.batch(Recipe(stages=(Stage(1, 200, 40, repeats),)), step=0)[1]

    changed = (rows(share) != rows(0.0)).any(dim=1).float().mean()
    assert abs(changed - share) < 0.11  # three standard deviations


def test_stages_follow_each_other():
    assert [RECIPE.stage(step).rows for step in range(6)] == [2, 2, 2, 2, 1, 1]
    assert (RECIPE.steps, RECIPE.tokens) == (6, 4 * 2 * 32 + 2 * 40)
    with pytest.raises(IndexError, match="ends after 6 steps"):
        RECIPE.stage(6)


def test_the_learning_rate_rises_then_falls():
    recipe = Recipe()
    rates = [train.learning_rate(recipe, step) for step in range(recipe.steps)]
    assert max(rates) == pytest.approx(recipe.learning_rate)
    assert rates[: recipe.warmup] == sorted(rates[: recipe.warmup])
    assert rates[recipe.warmup :] == sorted(rates[recipe.warmup :], reverse=True)
    assert rates[-1] == pytest.approx(recipe.learning_rate / 20, rel=0.01)


def test_held_out_works_are_held_out():
    assert len(works()) == 42
    assert len(texts()) + len(texts(held_out=True)) == 42
    assert len(texts(held_out=True)) == len(HELD_OUT) == 2
    assert "Is this a dagger" in texts(held_out=True)[0]
    assert not any("Is this a dagger" in text for text in texts())


def test_tidy():
    assert tidy("\n a\r\n\n\n\n\tb  \n") == "a\n\nb\n"


def test_a_published_model_reads_back(tmp_path):
    model, losses = train.train("tiny-gqa", RECIPE, tmp_path / "run", quiet=True)
    publish.publish("tiny-gqa", model, RECIPE, losses, tmp_path / "made")
    read, tokenizer = hf.load(tmp_path / "made")
    assert read.config == model.config
    assert tokenizer.stop_ids == (1,)
    for name, tensor in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor.half().float())
    assert held_out_loss(read, 24, 4) == pytest.approx(held_out_loss(model, 24, 4), abs=1e-2)
    card = (tmp_path / "made" / "README.md").read_text()
    for promise in ("Shakespeare", "public domain", "repeated", "Apache-2.0", "nats a token", "macbeth"):
        assert promise.lower() in card.lower()


def test_a_published_model_with_a_latent_reads_back(tmp_path, monkeypatch):
    sizes = LatentSizes(rank=10, nope_dim=6, rope_dim=4, value_dim=7)
    small = replace(variants.VARIANTS["tiny-gqa"], num_kv_heads=6, head_dim=10, latent=sizes)
    monkeypatch.setitem(variants.VARIANTS, "tiny-gqa", small)
    model, losses = train.train("tiny-gqa", RECIPE, tmp_path / "run", quiet=True)
    publish.publish("tiny-gqa", model, RECIPE, losses, tmp_path / "made")
    written = json.loads((tmp_path / "made" / "config.json").read_text())
    assert (written["model_type"], written["rope_interleave"]) == ("deepseek_v3", False)
    assert ModelSpec.from_config(written).kinds() == {"latent": 1}
    for absorbed in (True, False):
        read, _ = hf.load(tmp_path / "made", absorbed=absorbed)
        assert read.config == replace(small, absorbed=absorbed)
        for name, tensor in model.state_dict().items():
            assert torch.equal(read.state_dict()[name], tensor.half().float())
    card = (tmp_path / "made" / "README.md").read_text()
    assert "| latent and rope key, kept for each token and layer | 10 + 4 numbers |" in card
    assert "| a head's nope, rope and value widths | 6, 4, 7 |\n| query latent | none |" in card
    squeezed = replace(small, latent=replace(sizes, query_rank=9))
    assert hf.config_from_hf(publish.hf_config(squeezed)) == squeezed


def test_the_config_of_a_published_llama_is_the_model():
    for heads in (6, 2, 1):
        config = replace(variants.VARIANTS["tiny-gqa"], num_kv_heads=heads)
        assert hf.config_from_hf(publish.hf_config(config)) == config
