"""The front door: any Python 3 gets a clear answer, and nothing is needed before set-up but Python itself."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvlab.__main__ as front
from kvlab.commands import COMMANDS, CommandError, run, setup
from kvlab.paths import ROOT

MAIN = ROOT / "kvlab" / "__main__.py"


def other_pythons():
    """Interpreters on this machine that kvlab does not support."""
    found = {shutil.which(f"python3.{minor}") for minor in [*range(4, 11), *range(14, 20)]} - {None}
    found |= {str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python3")}
    for python in sorted(found):
        probe = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = (
            subprocess.run(probe, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().strip()
        )
        if answer and not front.OLDEST <= tuple(map(int, answer.split("."))) <= front.NEWEST:
            yield pytest.param(python, id=answer)


def test_parses_on_old_pythons():
    source = MAIN.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 6))
    assert not too_new(tree)


def test_what_is_too_new_is_noticed():
    assert too_new(ast.parse("print(f'{x}')"))
    assert too_new(ast.parse("x: int = 1"))
    with pytest.raises(SyntaxError):
        ast.parse("if (x := 1): pass", feature_version=(3, 6))


def too_new(tree):
    """What Python 3.0 to 3.5 would stumble over, and `feature_version` does not know."""
    kinds = (ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


@pytest.mark.parametrize("python", list(other_pythons()))
def test_other_pythons_are_refused_politely(python):
    run = subprocess.run([python, "-m", "kvlab", "lab"], cwd=ROOT, capture_output=True)
    said = run.stderr.decode()
    assert run.returncode == 1 and "kvlab runs on Python 3.11 to 3.13" in said
    assert "Traceback" not in said


def test_a_supported_python_is_named(monkeypatch, tmp_path):
    for name, status in {"python3.13": 1, "python3.12": 0}.items():
        stub = tmp_path / name
        stub.write_text(f"#!/bin/sh\nexit {status}\n")  # 3.13 is a stand-in that does not work
        stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setattr(front.sys, "version_info", (3, 9, 18))
    said = front.refusal(["lab", "--cpu"])
    assert "this is Python 3.9" in said and said.rstrip().endswith("python3.12 -m kvlab lab --cpu")


def test_without_a_supported_python_it_says_where_to_get_one(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(front.sys, "version_info", (3, 14, 0))
    assert front.main(["lab"]) == 1
    assert "python.org/downloads" in capsys.readouterr().err


IMPORT_ALL = """
import importlib, pkgutil, sys
before = set(sys.modules)
import kvlab, kvlab.__main__, kvlab.paths, kvlab.commands
for module in pkgutil.iter_modules(kvlab.commands.__path__):
    importlib.import_module("kvlab.commands." + module.name)
names = {name.partition(".")[0] for name in set(sys.modules) - before} - {"kvlab"}
print(sorted(names - set(sys.stdlib_module_names)))
"""


def test_nothing_but_the_standard_library_is_imported():
    """-S leaves out site-packages: an import of anything else fails outright."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_ALL], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"
    broken = IMPORT_ALL.replace("import importlib", "import numpy, importlib", 1)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", broken], env=environment, capture_output=True, text=True
    )
    assert ran.returncode != 0, "the test itself would notice"


def test_unknown_command_lists_the_known(capsys):
    assert run(["labb"]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in COMMANDS)


def test_usage(capsys):
    assert run(["--help"]) == 0 and run([]) == 2
    said = capsys.readouterr().out
    assert all(f"  {name}" in said for name in COMMANDS)


@pytest.fixture
def no_set_up(monkeypatch):
    """Nothing is set up, and whoever tries is told."""

    def ready(*_, **__):
        raise AssertionError("a set-up was started")

    monkeypatch.setattr(setup, "ready", ready)
    monkeypatch.setattr(setup.Setup, "run", ready)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys, no_set_up):
    with pytest.raises(SystemExit) as exit:
        run([name, "--help"])
    assert exit.value.code == 0 and f"usage: python3 -m kvlab {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["lab", "--port", "x"],
        ["setup", "--gpu"],
        ["notebooks", "--out", "x"],
        ["notebooks", "--check", "--html"],
        ["figures", "x"],
        ["train"],
        ["train", "nope"],
        ["train", "tiny-gqa", "--seed", "x"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused_before_anything_is_set_up(argv, capsys, no_set_up):
    with pytest.raises(SystemExit) as exit:
        run(argv)
    assert exit.value.code == 2 and f"python3 -m kvlab {argv[0]}: error:" in capsys.readouterr().err


def test_errors_and_ctrl_c_are_no_tracebacks(monkeypatch, capsys):
    def main(argv):
        raise error

    monkeypatch.setattr(setup, "main", main)
    error = CommandError("mend this", status=3)
    assert run(["setup"]) == 3 and capsys.readouterr().err == "kvlab setup: mend this\n"
    error = KeyboardInterrupt()
    assert run(["setup"]) == 130 and capsys.readouterr().err == ""
