"""Training in small: seeded, resumable to the bit, on rows that are what the model card says."""

from dataclasses import replace

import pytest
import torch

from kvlab.model import hf
from kvlab.training import data, publish, train, variants
from kvlab.training.corpus import HELD_OUT, texts, tidy, works
from kvlab.training.evaluate import held_out_loss
from kvlab.training.variants import Recipe

RECIPE = Recipe(short_steps=4, short_rows=(2, 30), long_steps=2, long_rows=(1, 40), warmup=2)


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
    assert ids.shape == following.shape == (2, 30)
    assert (ids[:, 0] == 0).all()
    assert torch.equal(ids[:, 1:], following[:, :-1])
    again, _ = data.batch(RECIPE, step=3)
    assert torch.equal(ids, again)
    assert not torch.equal(ids, data.batch(RECIPE, step=2)[0])
    assert data.batch(RECIPE, step=5)[0].shape == (1, 40)


def test_repeated_spans_are_copies_of_what_came_before():
    """With and without repeating, a row differs in one stretch, which stands earlier in the row too."""
    rows = (4, 240)
    plain = data.batch(Recipe(short_rows=rows, repeat_share=0.0), step=0)[1]
    repeated = data.batch(Recipe(short_rows=rows, repeat_share=1.0), step=0)[1]
    for row, other in zip(repeated, plain, strict=True):
        changed = (row != other).nonzero().flatten().tolist()
        first, end = changed[0], changed[-1] + 1
        copies = [
            back for back in range(1, first + 1) if row[first:end].equal(row[first - back : end - back])
        ]
        assert copies


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
