"""A repository of a few small files, and a stand-in for the slow parts of set-up."""

import sys
from pathlib import Path

import pytest

from kvlab.commands import setup
from kvlab.commands.environment import Environment


@pytest.fixture
def repository(tmp_path):
    """A folder that set-up takes for the repository."""
    root = tmp_path / "course"
    (root / "tests").mkdir(parents=True)
    (root / "requirements.txt").write_text(
        "torch==2.13.0  # tensors\nalpha==1.0; sys_platform == 'linux'  # more\n"
    )
    (root / "tests" / "requirements.txt").write_text("beta==2.0\n")
    return root


class FakeMachine:
    """Makes environments and installs packages by making folders, and keeps a list of what it was asked."""

    def __init__(self, root, monkeypatch):
        self.environment = Environment(root)
        self.calls = []
        self.model_status = 0
        self.fails = None  # raised by pip, if set
        monkeypatch.setattr(setup, "Environment", lambda: self.environment)
        monkeypatch.setattr(setup, "pip", self.pip)
        monkeypatch.setattr(setup.subprocess, "run", self.run)
        monkeypatch.setattr(setup.subprocess, "call", self.call)
        monkeypatch.setattr(Environment, "works", lambda environment: environment.python.exists())
        monkeypatch.setattr(setup.sizes, "check_disk", lambda *_: None)
        monkeypatch.setattr(setup.sizes, "torch_has_cuda", lambda: True)
        monkeypatch.setattr(setup, "cache_dir", lambda: Path(root) / "cache")

    def run(self, command, **_):
        """``python -m venv`` and the check that imports everything."""
        self.calls.append("venv" if "venv" in command else "import")
        if "venv" in command:
            environment = self.environment
            environment.python.parent.mkdir(parents=True, exist_ok=True)
            environment.python.write_text("")
            environment.folder.joinpath("pyvenv.cfg").write_text(
                "version = {}.{}.{}\n".format(*sys.version_info)
            )
            environment.site_packages.mkdir(parents=True, exist_ok=True)
        return Finished()

    def call(self, command, **_):
        """The module that fetches the model."""
        self.calls.append("model")
        if self.model_status == 0:
            folder = setup.cache_dir() / "smollm2-135m"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text("{}")
        return self.model_status

    def pip(self, environment, *arguments):
        self.calls.append("pip " + " ".join(arguments))
        if self.fails:
            raise self.fails
        suffix = "+cpu" if "--index-url" in arguments else ""
        if not environment.installed("torch"):
            self.install("torch", "2.13.0" + suffix)

    def install(self, name, version):
        folder = self.environment.site_packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "INSTALLER").write_text("pip\n")

    def setup(self, *argv):
        """Run ``kvlab setup`` and return what it did."""
        self.calls.clear()
        assert setup.main(list(argv)) == 0
        return list(self.calls)


class Finished:
    returncode, stdout, stderr = 0, "", ""


@pytest.fixture
def machine(repository, monkeypatch):
    return FakeMachine(repository, monkeypatch)
