"""Where things are, on each system."""

from pathlib import Path

import pytest

from kvlab import paths

NAMES = ["KVLAB_CACHE", "KVLAB_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME", "LOCALAPPDATA"]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def test_the_repository():
    assert (paths.ROOT / "kvlab" / "paths.py").exists()
    assert paths.NOTEBOOKS == paths.ROOT / "notebooks"


@pytest.mark.parametrize(
    ("system", "cache", "state"),
    [
        ("linux", ".cache/kvlab", ".local/state/kvlab"),
        ("darwin", "Library/Caches/kvlab", "Library/Application Support/kvlab"),
        ("win32", "AppData/Local/kvlab/cache", "AppData/Local/kvlab/state"),
    ],
)
def test_each_system_has_its_place(monkeypatch, home, system, cache, state):
    monkeypatch.setattr(paths.sys, "platform", system)
    assert (paths.cache_dir(), paths.state_dir()) == (home / cache, home / state)


def test_the_environment_decides(monkeypatch, tmp_path):
    monkeypatch.setattr(paths.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert paths.cache_dir() == tmp_path / "xdg" / "kvlab"
    assert paths.state_dir() == tmp_path / ".local/state/kvlab"
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("KVLAB_STATE", str(tmp_path / "state"))
    assert (paths.cache_dir(), paths.state_dir()) == (tmp_path / "mine", tmp_path / "state")
