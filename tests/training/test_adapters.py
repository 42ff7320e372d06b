"""The course's adapters: trained on rows that are what their cards say, and they write as their cards say."""

import re
from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.model.lora import adapted
from kvlab.model.peft import SHIPPED
from kvlab.training import adapters
from kvlab.training.styles import STYLES, marks, restyled
from kvlab.training.variants import Stage

RECIPE = replace(adapters.RECIPE, stages=(Stage(12, 4, 48, 0.0),), warmup=2)


@pytest.fixture(scope="module")
def base():
    return kvlab.load(adapters.BASE)


def test_a_style_is_one_mark():
    assert (
        restyled("Ham. To be,\nor not?! [Exit.] All's--'well.'", "!")
        == "Ham! To be!\nor not! [Exit!] All's--'well!'"
    )
    assert restyled("no marks - here", "?") == "no marks - here"
    assert marks("a.b,, c?! (d)") == [".", ",", ",", "?", "!"]
    assert len(set(STYLES.values())) == len(STYLES) == 2


@pytest.mark.parametrize("held_out", [False, True])
def test_a_row_is_the_text_and_then_the_style(base, held_out):
    tokenizer = base[1]
    ids, following = adapters.batch(tokenizer, "?", RECIPE, 3, held_out)
    assert ids.shape == following.shape == (4, 48)
    assert (ids[:, 0] == tokenizer.bos_id).all()
    learned = following != adapters.NOT_LEARNED
    assert torch.equal(following[:, :-1][learned[:, :-1]], ids[:, 1:][learned[:, :-1]])
    for row, counts, targets in zip(ids, learned, following, strict=True):
        prompt = int((~counts).sum())
        assert 4 <= prompt <= 24 and counts[prompt:].all() and not counts[:prompt].any()
        begin, rest = tokenizer.decode(row[: prompt + 1]), tokenizer.decode(targets[prompt:])
        whole = adapters.text(held_out)
        assert set(marks(rest)) <= {"?"}
        assert any(
            restyled(whole[found.end() :][:600], "?").startswith(rest)
            for found in re.finditer(re.escape(begin), whole)
        )


def test_rows_depend_on_the_seed_and_the_step_alone(base):
    def rows(step, seed=1):
        return adapters.batch(base[1], "!", replace(RECIPE, seed=seed), step)[0]

    assert torch.equal(rows(2), rows(2))
    assert not torch.equal(rows(2), rows(3)) and not torch.equal(rows(2), rows(2, seed=2))


def test_a_few_steps_lower_the_loss(base):
    """On rows that it has not seen, in the style that it was trained in, and more than in the other."""
    model, tokenizer = base
    (adapter, losses), (again, same) = (adapters.train_adapter("ask", RECIPE, quiet=True) for _ in range(2))
    assert losses == same and len(losses) == 12
    assert all(torch.equal(a, b) for a, b in zip(adapter.parameters(), again.parameters(), strict=True))
    lower = {}
    for mark in STYLES.values():
        before = adapters.styled_loss(model, tokenizer, mark, RECIPE)
        with adapted(model, adapter):
            lower[mark] = before - adapters.styled_loss(model, tokenizer, mark, RECIPE)
    assert lower["?"] > 0.1 and lower["?"] > lower["!"]


@pytest.mark.parametrize("name", STYLES)
def test_the_shipped_ones_write_as_their_cards_say(base, name):
    """Behind prompts that neither they nor the model were trained on; every fourth of the card's."""
    model, tokenizer = base
    prompts = adapters.unseen_prompts()[::4]
    adapter = kvlab.load_adapter(name, model)
    card = (SHIPPED / name / "README.md").read_text()
    [(alone, changed)] = re.findall(r"likeliest tokens \| (\d+)% \| (\d+)% \|", card)
    assert int(alone) < 10 and int(changed) > 90
    for mark in STYLES.values():
        with adapted(model, adapter):
            written = adapters.share(model, tokenizer, mark, prompts)
        assert written > 0.8 if mark == STYLES[name] else written < 0.15
    assert adapters.share(model, tokenizer, STYLES[name], prompts) < 0.2


@pytest.mark.parametrize("name", STYLES)
def test_the_shipped_ones_lower_the_loss_in_their_style_as_their_cards_say(base, name):
    model, tokenizer = base
    card = (SHIPPED / name / "README.md").read_text()
    [(alone, changed)] = re.findall(r"in this style, nats a token \| ([\d.]+) \| ([\d.]+) \|", card)
    assert adapters.styled_loss(model, tokenizer, STYLES[name]) == pytest.approx(float(alone), abs=0.01)
    with adapted(model, kvlab.load_adapter(name, model)):
        assert adapters.styled_loss(model, tokenizer, STYLES[name]) == pytest.approx(float(changed), abs=0.01)
    assert float(changed) < float(alone) - 0.3


@pytest.mark.parametrize("name", STYLES)
def test_the_shipped_ones_are_small_and_in_16_bits(name):
    size = (SHIPPED / name / "adapter_model.safetensors").stat().st_size
    assert size < 40_000
    card = (SHIPPED / name / "README.md").read_text()
    for promise in (
        "Shakespeare",
        "macbeth and twelfth_night",
        "Apache-2.0",
        f"kvlab train {name}",
        "rank, alpha | 4, 16",
    ):
        assert promise in card


def test_what_is_published_is_what_was_trained(monkeypatch, tmp_path, base, capsys):
    monkeypatch.setattr(adapters, "RECIPE", RECIPE)
    monkeypatch.setattr(adapters, "unseen_prompts", lambda: ["My lord, I", "What is the"])
    monkeypatch.setattr(adapters, "held_out_loss", lambda model: 1.234)
    adapters.main("exclaim", seed=5, out=tmp_path / "made")
    assert "about a minute; a run that is cut starts anew" in capsys.readouterr().out
    trained, losses = adapters.train_adapter("exclaim", replace(RECIPE, seed=5), quiet=True)
    read = kvlab.load_adapter(tmp_path / "made", base[0])
    for name, tensor in trained.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor.half().float())
    card = (tmp_path / "made" / "README.md").read_text()
    for line in (
        "# exclaim\n",
        "| seed | 5 |",
        "2,304 tokens: 12 steps of 4 rows of 48",
        f"| training loss at the end | {sum(losses) / 12:.3f} nats a token |",
        "| loss on held-out text as it is, nats a token | 1.234 | 1.234 |",
        "behind 2 prompts",
    ):
        assert line in card
