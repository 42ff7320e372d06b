"""The reader's own file: in one place, never lost, never in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.exercises import record
from kvlab.paths import ROOT


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("KVLAB_STATE", str(tmp_path / "state"))


def test_it_does_not_depend_on_the_working_directory(monkeypatch, tmp_path):
    record.solve("04.append")
    monkeypatch.chdir(tmp_path)
    assert record.read()["solved"] == ["04.append"]
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]


def test_solving_twice_counts_once():
    for name in ("b", "a", "b"):
        record.solve(name)
    assert record.read()["solved"] == ["a", "b"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"solved": 3}', '{"solved": [1, null]}', "\x00", "[" * 99999]
)
def test_a_damaged_file_is_put_aside(damage):
    record.solve("a")
    record.path().write_text(damage)
    assert record.read() == {"solved": [], "predicted": {}, "recalled": {}}
    assert record.path().with_suffix(".damaged").read_text() == damage
    record.solve("b")
    assert record.read()["solved"] == ["b"]


def test_files_of_another_version_keep_what_is_known():
    record.path().parent.mkdir(parents=True)
    record.path().write_text('{"solved": ["a"], "later": 1}')
    record.remember("predicted", "x", 3)
    content = record.read()
    assert (content["solved"], content["predicted"], content["later"]) == (["a"], {"x": 3}, 1)


def test_no_home_to_write_to(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVLAB_STATE", os.fspath(tmp_path / "file" / "below"))
    record.solve("a")
    assert "not remembered" in capsys.readouterr().out
    assert record.read()["solved"] == []


@pytest.mark.parametrize("state", ["~nosuchuser/x", None])
def test_no_home_at_all(monkeypatch, state, capsys):
    if state is None:
        monkeypatch.delenv("KVLAB_STATE")
        monkeypatch.setattr("kvlab.paths.state_dir", lambda: Path("~nosuchuser").expanduser())
    else:
        monkeypatch.setenv("KVLAB_STATE", state)
    record.solve("a")
    assert "not remembered" in capsys.readouterr().out
    assert record.read()["solved"] == []


def test_two_kernels_lose_nothing(tmp_path):
    """Two processes that write at the same time: everything that either remembered is there afterwards."""
    script = "import sys\nfrom kvlab.exercises import record\n"
    script += "for i in range(40): record.solve(f'{sys.argv[1]}{i}')"
    record.solve("before")
    processes = [subprocess.Popen([sys.executable, "-c", script, name], cwd=ROOT) for name in "ab"]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert len(record.read()["solved"]) == 81
    assert {file.name for file in record.path().parent.iterdir()} <= {"progress.json", "progress.lock"}
