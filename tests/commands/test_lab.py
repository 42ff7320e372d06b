"""How JupyterLab is started, and what is left alone."""

import json
import sys

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from kvlab.commands import lab, setup
from kvlab.commands.environment import Environment
from tests.notebooks.make import code, notebook, printed, save


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Run ``kvlab lab`` on an environment that is ready; what would be run is kept and not started."""
    (tmp_path / "notebooks").mkdir()
    for name in ("04_the_kv_cache.ipynb", "scratch.ipynb"):
        (tmp_path / "notebooks" / name).write_text("{}")
    environment = Environment(tmp_path)
    calls = []
    environment.run = lambda arguments, **variables: calls.append((arguments, variables)) or 9
    monkeypatch.setattr(setup, "ready", lambda chosen: environment)
    monkeypatch.setattr(lab.subprocess, "run", lambda command, **_: calls.append(command))

    def run(*argv):
        calls.clear()
        assert lab.main(list(argv)) == 9, "JupyterLab's own status"
        return calls

    run.environment = environment
    return run


def test_options_pass_through(started, tmp_path, monkeypatch):
    monkeypatch.setattr(lab.os, "geteuid", lambda: 1000, raising=False)
    _, (arguments, variables) = started("--no-browser", "--port", "8123", "--cpu", "--debug")
    assert arguments[:2] == ["-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={tmp_path / 'notebooks'}" in arguments
    assert {"--no-browser", "--port=8123", "--debug"} <= set(arguments)
    assert "--allow-root" not in arguments and "--cpu" not in arguments
    assert not any("token" in argument or "password" in argument for argument in arguments)
    assert variables == {}


def test_root_is_allowed_and_the_browser_is_opened_by_default(started, monkeypatch):
    monkeypatch.setattr(lab.os, "geteuid", lambda: 0, raising=False)
    _, (arguments, _) = started()
    assert "--allow-root" in arguments and "--no-browser" not in arguments


def test_only_lessons_are_trusted_and_only_in_the_environment(started):
    sign, (arguments, _) = started()
    assert [argument.endswith("04_the_kv_cache.ipynb") for argument in sign].count(True) == 1
    assert not any("scratch" in argument for argument in sign)
    store = [argument for argument in sign if "NotebookNotary" in argument]
    assert len(store) == 2 and set(store) <= set(arguments)
    assert all(str(started.environment.folder) in argument for argument in store)


def test_trust_for_real(tmp_path, monkeypatch):
    """A lesson signed by us is trusted by whoever is given the same options, and nothing is left at home."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "home"))
    monkeypatch.setattr(Environment, "python", sys.executable)
    (tmp_path / "notebooks").mkdir()
    lesson = save(notebook(code("print(1)", printed("1\n"))), tmp_path / "notebooks" / "01_x.ipynb")
    options = dict(option.split("=", 1) for option in lab.sign(Environment(tmp_path)))
    names = {name.removeprefix("--NotebookNotary."): value for name, value in options.items()}
    assert NotebookNotary(**names).check_signature(nbformat.read(lesson, as_version=4))
    assert not (tmp_path / "home" / "nbsignatures.db").exists()


def test_news_are_off_as_a_default_of_the_environment(started):
    started()
    file = started.environment.folder / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    news = json.loads(file.read_text())["@jupyterlab/apputils-extension:notification"]
    assert news == {"fetchNews": "false", "checkForUpdates": False}
