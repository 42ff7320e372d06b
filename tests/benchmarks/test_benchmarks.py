"""Benchmarks run, say what they measured, and refuse to time what is wrong. No time is asserted."""

import json

import pytest
import torch

from kvlab.benchmarks import BENCHMARKS
from kvlab.benchmarks import decode as decoding
from kvlab.benchmarks import pool as pooling
from kvlab.commands import bench, run

decode_module, pool_module = (__import__(f.__module__, fromlist=["x"]) for f in (decoding, pooling))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"SEQUENCES": 2, "TOKENS": 64, "HEADS": 4, "KV_HEADS": 2, "WIDTH": 8}.items():
        monkeypatch.setattr(decode_module, name, value)
    for name, value in {"RUNNING": 3, "TOKENS": 40, "STEPS": 5}.items():
        monkeypatch.setattr(pool_module, name, value)
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_row_is_a_name_a_number_a_unit_and_conditions(name):
    rows = BENCHMARKS[name]()
    assert len(rows) >= 2
    for what, value, unit, conditions in rows:
        assert what and float(value) > 0 and unit and conditions


def test_the_first_way_is_once_as_slow_as_itself():
    assert "1.00 times the first" in BENCHMARKS["decode"]()[0][2]


def test_ways_that_differ_are_not_timed(monkeypatch):
    monkeypatch.setattr(decode_module.Batch, "attend", lambda self, q, k, v, scale: 2 * q)
    with pytest.raises(AssertionError, match="differ"):
        BENCHMARKS["decode"]()


def test_the_command_prints_tables_or_json(capsys, monkeypatch):
    monkeypatch.setattr(bench.setup, "ready", lambda: type("Environment", (), {"is_current": True}))
    assert run(["bench", "pool"]) == 0
    assert "µs a request a step" in capsys.readouterr().out
    assert run(["bench", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert list(measured) == list(bench.NAMES) == list(BENCHMARKS)
    assert measured["decode"][0].keys() == {"what", "value", "unit", "conditions"}


def test_an_unknown_name_is_refused(capsys):
    assert run(["bench", "speed"]) == 2
    assert "there is no benchmark 'speed'; known: pool, decode" in capsys.readouterr().err
