"""``kvlab train``: it knows the variants before anything is installed, and hands on what was asked for."""

from pathlib import Path

import pytest

from kvlab.commands import setup, train
from kvlab.commands.environment import Environment
from kvlab.training import adapters
from kvlab.training import train as training


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["tiny-gqa"], ("tiny-gqa", 1, None)),
        (["tiny-gqa", "--seed", "3", "--out", "mine"], ("tiny-gqa", 3, Path("mine"))),
    ],
)
def test_options_reach_the_training(monkeypatch, argv, asked):
    monkeypatch.setattr(Environment, "is_current", True)
    monkeypatch.setattr(setup, "ready", Environment)
    monkeypatch.setattr(training, "train", lambda variant, recipe, folder: ("model", recipe.seed))
    written = []
    monkeypatch.setattr(training, "publish", lambda *arguments: written.append(arguments))
    assert train.main(argv) == 0
    [(variant, _, recipe, losses, out)] = written
    assert (variant, recipe.seed, out) == asked and losses == recipe.seed


@pytest.mark.parametrize("name", ["ask", "exclaim"])
def test_adapters_have_a_training_of_their_own(monkeypatch, name):
    monkeypatch.setattr(Environment, "is_current", True)
    monkeypatch.setattr(setup, "ready", Environment)
    asked = []
    monkeypatch.setattr(adapters, "main", lambda name, **options: asked.append((name, options)))
    assert train.main([name]) == train.main([name, "--seed", "3", "--out", "mine"]) == 0
    assert asked == [(name, {}), (name, {"seed": 3, "out": Path("mine")})]


def test_it_runs_again_inside_the_environment(monkeypatch):
    environment = Environment()
    monkeypatch.setattr(Environment, "is_current", False)
    monkeypatch.setattr(setup, "ready", lambda: environment)
    environment.run = lambda arguments: arguments
    again = ["-m", "kvlab", "train", "tiny-gqa", "--out", "mine"]
    assert train.main(["tiny-gqa", "--out", "mine"]) == again
