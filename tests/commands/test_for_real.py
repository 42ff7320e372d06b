"""Set-up for real, with a real environment and pip, on a tiny package of our own and no network."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile

import pytest

from kvlab.commands.environment import WINDOWS, Environment
from kvlab.paths import ROOT

COMMAND = [sys.executable, "-m", "kvlab", "setup", "--without-smollm2"]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of what runs before set-up, with one small package to install."""
    root = tmp_path_factory.mktemp("course")
    (root / "kvlab").mkdir()
    for name in ("__init__.py", "__main__.py", "paths.py"):
        shutil.copy(ROOT / "kvlab" / name, root / "kvlab" / name)
    shutil.copytree(ROOT / "kvlab" / "commands", root / "kvlab" / "commands")
    (root / "tests").mkdir()
    (root / "tests" / "requirements.txt").write_text("")
    (root / "requirements.txt").write_text("kvtiny==1.0  # nothing much\n")
    for version in ("1.0", "1.1"):
        make_wheel(root, version)
    return root


def make_wheel(folder, version):
    info = f"kvtiny-{version}.dist-info"
    with zipfile.ZipFile(folder / f"kvtiny-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("kvtiny.py", f"version = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: kvtiny\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def offline(course):
    return {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(course)}


def setup(course, status=0):
    run = subprocess.run(COMMAND, cwd=course, env=offline(course), capture_output=True, text=True)
    assert run.returncode == status, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    return run.stdout + run.stderr


def imported(course, what):
    run = subprocess.run(
        [str(Environment(course).python), "-c", what], cwd="/", capture_output=True, text=True
    )
    return run.stdout.strip()


def test_a_life_of_an_environment(course):
    said = setup(course)
    assert "[1/3]" in said and "[3/3]" in said
    assert imported(course, "import kvtiny, kvlab; print(kvtiny.version, kvlab.__file__)").startswith("1.0 ")

    start = time.monotonic()
    assert "Already set up" in setup(course)
    assert time.monotonic() - start < 2

    (course / "requirements.txt").write_text("kvtiny==1.1\n")
    assert "kvtiny-1.1" in setup(course)
    assert imported(course, "import kvtiny; print(kvtiny.version)") == "1.1"

    environment = Environment(course)
    (environment.site_packages / "kvtiny.py").unlink()  # pip was killed in the middle of unpacking
    (environment.site_packages / "kvtiny-1.1.dist-info" / "INSTALLER").unlink()
    environment.note.unlink()
    setup(course)
    assert imported(course, "import kvtiny; print(kvtiny.version)") == "1.1"

    (course / "requirements.txt").write_text("kvtiny==7.0\n")
    assert "kvlab setup: " in setup(course, status=1)
    (course / "requirements.txt").write_text("kvtiny==1.1\n")
    setup(course)

    shutil.rmtree(environment.site_packages / "pip")  # the environment itself is half made
    environment.note.unlink()
    setup(course)
    assert imported(course, "import kvtiny; print(kvtiny.version)") == "1.1"


@pytest.mark.skipif(WINDOWS, reason="signals are POSIX")
def test_ctrl_c_for_real(course):
    """pip waits on an index that never answers, and Ctrl-C is pressed."""
    setup(course)
    Environment(course).note.unlink()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        variables = {**offline(course), "PIP_NO_INDEX": "0", "PIP_INDEX_URL": index, "NO_PROXY": "127.0.0.1"}
        (course / "requirements.txt").write_text("kvtiny==1.0\n")
        run = subprocess.Popen(
            COMMAND,
            cwd=course,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        silent.settimeout(30)
        connection, _ = silent.accept()
        with connection:
            os.killpg(run.pid, signal.SIGINT)
            _, said = run.communicate(timeout=30)
    assert run.returncode == 1 and "Running the same command again continues" in said
    assert "Traceback" not in said
