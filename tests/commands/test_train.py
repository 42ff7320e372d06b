"""``kvlab train``: it knows the variants before anything is installed, and hands on what was asked for."""

from pathlib import Path

import pytest

from kvlab.commands import setup, train
from kvlab.commands.environment import Environment
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


def test_it_runs_again_inside_the_environment(monkeypatch):
    environment = Environment()
    monkeypatch.setattr(Environment, "is_current", False)
    monkeypatch.setattr(setup, "ready", lambda: environment)
    environment.run = lambda arguments: arguments
    again = ["-m", "kvlab", "train", "tiny-gqa", "--out", "mine"]
    assert train.main(["tiny-gqa", "--out", "mine"]) == again
