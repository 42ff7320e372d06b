"""Running things in the environment: exit statuses, signals, and what lies in .venv."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kvlab.commands import environment
from kvlab.commands.environment import Environment, foreground
from kvlab.paths import ROOT


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A real environment, without pip because that takes seconds."""
    root = tmp_path_factory.mktemp("course")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")], check=True)
    return Environment(root)


def test_a_real_environment_is_read_right(made):
    assert made.python.exists() and made.site_packages.is_dir()
    assert made.version == "{}.{}.{}".format(*sys.version_info)
    assert not made.is_current
    assert not made.works(), "there is no pip in it"


def test_nothing_there(tmp_path):
    nothing = Environment(tmp_path)
    assert nothing.version is None and not nothing.works() and not nothing.is_current
    assert nothing.installed("torch") is None and nothing.read_note() == {}


def test_what_cannot_be_read_counts_as_absent(tmp_path):
    broken = Environment(tmp_path)
    broken.folder.mkdir()
    for file in (broken.folder / "pyvenv.cfg", broken.note):
        file.write_bytes(b"version = 3.11.7\n\xff\xfe")
    assert broken.version is None and not broken.works() and broken.read_note() == {}


def test_installed_versions_come_from_folder_names(made):
    (made.site_packages / "torch-2.13.0+cpu.dist-info").mkdir()
    assert made.installed("torch") == "2.13.0+cpu"
    assert made.installed("torch_other") is None


def test_run_uses_the_environment_and_its_variables(made):
    code = "import os, sys; sys.exit(0 if '.venv' in sys.prefix and os.environ['KVLAB_X'] == 'x' else 5)"
    assert made.run(["-c", code], KVLAB_X="x") == 0
    assert made.run(["-c", "import sys; sys.exit(7)"]) == 7


def test_idle_threads_sleep_unless_the_reader_says_otherwise(made, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    code = "import os, sys; sys.exit(3 if os.environ['OMP_WAIT_POLICY'] == 'PASSIVE' else 4)"
    assert made.run(["-c", code]) == 3
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert made.run(["-c", code]) == 4


@pytest.mark.skipif(environment.WINDOWS, reason="signals are POSIX")
def test_death_by_signal_is_told_as_a_shell_tells_it(made):
    assert made.run(["-c", "import os; os.kill(os.getpid(), 9)"]) == 128 + 9


HAND_ON = """
import sys
from kvlab.commands.environment import foreground
child = "import signal, sys, time; signal.signal(signal.{name}, lambda *_: sys.exit(21))"
child += "; print('up', flush=True); time.sleep(30)"
sys.exit(foreground([sys.executable, "-c", child], None, {{}}))
"""


@pytest.mark.skipif(environment.WINDOWS, reason="signals are POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_reach_the_child_and_its_status_comes_back(name):
    """Ctrl-C goes to the whole group, as from a terminal; SIGTERM to the parent alone, as in CI."""
    parent = subprocess.Popen(
        [sys.executable, "-c", HAND_ON.format(name=name)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert parent.stdout.readline() == b"up\n"
    start = time.monotonic()
    if name == "SIGINT":
        os.killpg(parent.pid, signal.SIGINT)
    else:
        parent.terminate()
    _, said = parent.communicate(timeout=20)
    assert parent.returncode == 21 and said == b""
    assert time.monotonic() - start < 15


def test_it_runs_in_the_callers_folder_unless_told(made, tmp_path, monkeypatch):
    here = ["-c", "import pathlib; pathlib.Path('here').touch()"]
    monkeypatch.chdir(tmp_path)
    assert made.run(here) == 0 and (tmp_path / "here").exists()
    assert made.run(here, cwd=made.root) == 0 and (made.root / "here").exists()


def test_foreground_starts_in_the_folder_it_is_told(tmp_path):
    code = "import os, pathlib; pathlib.Path('here').write_text(os.getcwd())"
    assert foreground([sys.executable, "-c", code], tmp_path, {}) == 0
    assert (tmp_path / "here").exists()
