"""``kvlab test [pytest arguments]``: every test in one pytest run: unit, reference, notebooks, browser.

The notebooks tested are the committed ones, so that solved exercises and half-finished edits do not count.
Name one (`kvlab test notebooks/04_the_kv_cache.ipynb`) to test it as it lies in the folder.
"""

import argparse
import io
import os
import shlex
import subprocess
import tempfile
import zipfile
from pathlib import Path

from kvlab.commands import setup
from kvlab.paths import ROOT

# How pytest runs and compares a notebook, wherever it lies; every such run of the course uses these. Written
# with `=`, since pytest looks for its settings beside whatever else might be a path.
NBVAL = [
    f"--config-file={ROOT / 'pyproject.toml'}",
    "-p",
    "tests.notebooks.patience",
    "--nbval",
    "--nbval-current-env",
    f"--nbval-sanitize-with={ROOT / 'tests' / 'notebooks' / 'sanitize.cfg'}",
]


def main(argv):
    """Run pytest in the environment and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab test",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[setup.options()],
        epilog="All other arguments go to pytest.",
        allow_abbrev=False,
    )
    chosen, arguments = parser.parse_known_args(argv)
    environment = setup.ready(chosen, tests=True)
    with tempfile.TemporaryDirectory(prefix="kvlab-test-") as folder:
        notebooks, remark = committed(ROOT, Path(folder))
        if remark:
            print(remark, flush=True)
        return environment.run(
            pytest(notebooks, absolute(arguments)),
            cwd=ROOT,
            KVLAB_STATE=str(Path(folder) / "state"),
            KVLAB_TEST_NOTEBOOKS=str(notebooks),
        )


def absolute(arguments):
    """The arguments for a pytest that runs in the repository: files of the caller's folder are named in full.

    What follows -k or -m is left alone, even where a file is called the same.
    """
    if Path.cwd() == ROOT:
        return arguments
    found = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        path, *test = argument.split("::", 1)
        if before not in ("-k", "-m") and os.path.exists(path):
            argument = "::".join([os.path.abspath(path), *test])
        found.append(argument)
    return found


def pytest(notebooks, arguments):
    """The command line. pytest takes ``testpaths`` only if no path is given, so a reader's own path wins."""
    paths = shlex.join(["tests", notebooks.as_posix()])
    return ["-m", "pytest", *NBVAL, "-o", f"testpaths={paths}", *arguments]


def committed(root, folder):
    """The folder with the notebooks to test, and what to tell about it (or None).

    They are taken from git's HEAD into ``folder``; the working tree is only read. Where there is no
    commit to take them from, they are tested as they are.
    """
    working = root / "notebooks"
    try:
        archive = subprocess.run(
            ["git", "-C", str(root), "archive", "--format=zip", "HEAD", "notebooks"], capture_output=True
        )
    except OSError:
        return working, "Testing the notebooks as they are: git is not installed."
    if archive.returncode:
        return working, "Testing the notebooks as they are: git has no committed ones here."
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as content:
        content.extractall(folder)
    exported = folder / "notebooks"
    names = {path.name for place in (working, exported) for path in place.glob("*.ipynb")}
    changed = sorted(name for name in names if not same(working / name, exported / name))
    if not changed:
        return exported, None
    return exported, (
        f"Testing the committed notebooks; not as committed here: {', '.join(changed)} "
        f"(to test one as it is: python3 -m kvlab test notebooks/{changed[0]})"
    )


def same(one, other):
    """Whether two files have the same text, however their lines end."""
    if not (one.exists() and other.exists()):
        return False
    return one.read_bytes().replace(b"\r\n", b"\n") == other.read_bytes().replace(b"\r\n", b"\n")
