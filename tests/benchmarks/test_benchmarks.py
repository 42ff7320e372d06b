"""Benchmarks run, say what they measured, and refuse to time what is wrong. No time is asserted."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from kvlab.benchmarks import BENCHMARKS
from kvlab.commands import bench, run
from kvlab.engine import chat
from kvlab.paging import BlockHashes, RadixTree

ANYWHERE = ("decode", "pool", "prefix", "engine", "reuse")  # the kernel's needs a GPU, and has its own tests
decode_module, pool_module, prefix_module, engine_module, reuse_module = (
    import_module(f"kvlab.benchmarks.{name}") for name in ANYWHERE
)

CONTINUOUS = engine_module._continuous


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"SEQUENCES": 2, "TOKENS": 64, "HEADS": 4, "KV_HEADS": 2, "WIDTH": 8}.items():
        monkeypatch.setattr(decode_module, name, value)
    for name, value in {"RUNNING": 3, "TOKENS": 40, "STEPS": 5}.items():
        monkeypatch.setattr(pool_module, name, value)
    for name, value in {"REQUESTS": 60, "RUNNING": 4, "SLOTS": 2**12, "REPEATS": 1, "LONGEST": 500}.items():
        monkeypatch.setattr(prefix_module, name, value)
    monkeypatch.setattr(engine_module, "REQUESTS", 3)
    users = {"chat": lambda vocab: chat(users=2, turns=2, system=60, turn=9, vocab=vocab)}
    monkeypatch.setattr(reuse_module, "USERS", users)
    small = {"hidden_size": 24, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 12}
    config = replace(engine_module.CONFIG, vocab_size=64, mlp_size=20, **small)
    monkeypatch.setattr(engine_module, "CONFIG", config)
    # It takes many seconds to start and to stop; the long run has the real one.
    quick = lambda transformers, peer, requests: engine_module._padded(peer, requests)  # noqa: E731
    monkeypatch.setattr(engine_module, "_continuous", quick)
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", ANYWHERE)
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


def one_block_less(match):
    return lambda cache, tokens, *more: match(cache, tokens[: match(cache, tokens, *more).tokens - 1])


def the_text_before(match):
    asked = [[]]

    def wrong(cache, tokens, *more):
        asked.append(tokens)
        return match(cache, asked[-2])

    return wrong


@pytest.mark.parametrize("kind", [RadixTree, BlockHashes])
@pytest.mark.parametrize("wrong", [one_block_less, the_text_before])
def test_a_wrong_find_is_not_timed(monkeypatch, kind, wrong):
    monkeypatch.setattr(kind, "match", wrong(kind.match))
    with pytest.raises(AssertionError, match=r"\d+ tokens were found, and \d+ are stored"):
        BENCHMARKS["prefix"]()


def test_three_requests_in_ten_go_on_with_an_earlier_conversation(monkeypatch):
    monkeypatch.setattr(prefix_module, "REQUESTS", 300)
    texts = prefix_module._texts()
    assert len({prompt[0] for prompt, _ in texts}) == prefix_module.SYSTEMS
    whole = [prompt + answer for prompt, answer in texts]
    going_on = [
        prompt for i, (prompt, _) in enumerate(texts) if any(prompt[: len(t)] == t for t in whole[:i])
    ]
    assert 0.2 < len(going_on) / len(texts) < 0.4


def test_wrong_tokens_are_not_timed(monkeypatch):
    monkeypatch.setattr(engine_module, "_engine", lambda model, requests: [[1] * new for _, new in requests])
    with pytest.raises(AssertionError, match="not the likeliest"):
        BENCHMARKS["engine"]()


@pytest.mark.slow
def test_continuous_batching_writes_the_same_texts(monkeypatch):
    monkeypatch.setattr(engine_module, "_continuous", CONTINUOUS)
    test_all_servers_write_the_same_texts()


def test_what_is_reused_changes_no_text():
    rows = BENCHMARKS["reuse"]()
    assert [row[0] for row in rows] == ["chat, radix", "chat, hash"]
    assert all("4 of 4 texts equal" in row[3] and not row[3].startswith("0.0%") for row in rows)


def test_all_servers_write_the_same_texts():
    rows = BENCHMARKS["engine"]()
    assert len(rows) == 3 and all("3 of 3 texts equal" in row[3] for row in rows[1:])


def test_the_command_prints_tables_or_json(capsys, monkeypatch):
    monkeypatch.setattr(bench.setup, "ready", lambda: type("Environment", (), {"is_current": True}))
    assert run(["bench", "pool"]) == 0
    assert "µs a request a step" in capsys.readouterr().out
    assert run(["bench", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert list(measured) == list(bench.NAMES) == list(BENCHMARKS)
    assert measured["decode"][0].keys() == {"what", "value", "unit", "conditions"}


@pytest.mark.parametrize(("mine", "given"), [(None, "ACTIVE"), ("PASSIVE", "PASSIVE")])
def test_in_the_environment_threads_may_spin_unless_the_reader_says_otherwise(monkeypatch, mine, given):
    calls = []

    class Elsewhere:
        is_current = False

        def rerun(self, *arguments, **variables):
            calls.append((arguments, variables))
            return 7

    monkeypatch.setattr(bench.setup, "ready", Elsewhere)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if mine:
        monkeypatch.setenv("OMP_WAIT_POLICY", mine)
    assert run(["bench", "pool"]) == 7
    assert calls == [(("bench", ["pool"]), {"OMP_WAIT_POLICY": given})]


def test_an_unknown_name_is_refused(capsys):
    assert run(["bench", "speed"]) == 2
    assert "there is no benchmark 'speed'; known: pool, prefix, decode" in capsys.readouterr().err
