"""``kvlab notebooks [NN ...]``: execute lessons and save them with their outputs, always in the same form.

With --check nothing is written: it says which lessons are stale, that is, print something else now than what
is stored. With --html the stored outputs are turned into web pages, for looking at; nothing is executed.
A path may name a notebook anywhere: it is that file which is executed and saved.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvlab.commands import CommandError, setup
from kvlab.commands.environment import VARIABLES
from kvlab.commands.execute import CellError, execute
from kvlab.commands.normalise import dumps, normalise
from kvlab.commands.test import NBVAL
from kvlab.paths import NOTEBOOKS, ROOT

# A lesson that makes its reader wait loses them. On two cores.
SLOW_CELL, SLOW_NOTEBOOK = 10, 60


def main(argv):
    """Handle the lessons that were named, or all of them; 1 if any fails or is stale."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "lessons", nargs="*", metavar="NN", help="a lesson's number, name or path (all of them)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say which lessons are stale, write nothing")
    what.add_argument("--html", action="store_true", help="render to HTML, execute nothing")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where --html writes (the repository's build/html)"
    )
    chosen = parser.parse_args(argv)
    if chosen.out and not chosen.html:
        parser.error("--out says where --html writes, and there is no --html")
    paths = find(chosen.lessons, NOTEBOOKS)
    environment = setup.ready()
    if not environment.is_current:
        return environment.rerun("notebooks", argv)
    if chosen.html:
        return render(paths, chosen.out or ROOT / "build" / "html")
    with tempfile.TemporaryDirectory(prefix="kvlab-state-") as state:
        # The reader's own progress must neither show in the outputs nor change.
        os.environ["KVLAB_STATE"] = state
        os.environ.update({**VARIABLES, **os.environ})
        return check(paths) if chosen.check else refresh(paths)


def find(names, folder):
    """The notebooks with these numbers, names or paths, in order; all lessons where none is named."""
    everything = sorted(folder.glob("*.ipynb"))
    if not names:
        if not everything:
            raise CommandError(f"there are no notebooks in {folder}")
        return everything
    found = []
    for name in names:
        matches = named(name, everything)
        if not matches:
            known = ", ".join(path.stem for path in everything) or "none"
            raise CommandError(f"no lesson {name!r}; there are: {known}", status=2)
        found += [path for path in matches if path not in found]
    return found


def named(name, lessons):
    """The notebooks that one name means: a file, where it is the path of one; else lessons."""
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return [path.resolve()]
    if name.isdigit():
        return [lesson for lesson in lessons if lesson.stem.split("_")[0] == name.zfill(2)]
    return [lesson for lesson in lessons if name in (lesson.stem, lesson.name)]


def refresh(paths):
    """Execute each notebook and save it; leave the ones that fail as they are."""
    failures = 0
    for path in paths:
        try:
            with Progress(path.stem) as progress:
                notebook, timing = execute(path, progress)
        except CellError as error:
            failures += 1
            print(f"{path.stem}: {error}\n{path.name} is left as it was.", file=sys.stderr, flush=True)
            continue
        changed = write(path, dumps(normalise(notebook)))
        print(report(path.stem, timing, "saved" if changed else "unchanged"), flush=True)
    return 1 if failures else 0


def write(path, text):
    """Replace the file in one go if the text is new; say whether it was."""
    new = text.encode()
    if path.read_bytes() == new:
        return False
    draft = path.with_suffix(".ipynb.tmp")
    draft.write_bytes(new)
    draft.replace(path)
    return True


def report(name, timing, outcome):
    """One line: how long the notebook took, its slowest cell, and a warning where that is too long."""
    seconds, number = timing.slowest
    line = f"{name}: {outcome}, {timing.seconds:.1f} s, slowest cell [{number}] {seconds:.1f} s"
    if seconds > SLOW_CELL:
        line += f"   WARNING: a cell over {SLOW_CELL} s"
    if timing.seconds > SLOW_NOTEBOOK:
        line += f"   WARNING: a notebook over {SLOW_NOTEBOOK} s"
    return line


def check(paths):
    """Compare what each notebook prints now with what is stored, as the tests do; name the stale ones."""
    stale = []
    for path in paths:
        if not is_normal(path):
            stale.append(path.stem)
            print(f"{path.stem}: stale, not in the form in which it would be saved", flush=True)
            continue
        start = time.monotonic()
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                *NBVAL,
                "-q",
                "--no-header",
                "--durations=0",
                "--color=no",
                str(path),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if run.returncode:
            stale.append(path.stem)
            print(run.stdout + run.stderr)
        verdict = "stale" if run.returncode else "fresh"
        print(f"{path.stem}: {verdict}, {time.monotonic() - start:.1f} s", flush=True)
    if stale:
        print(f"stale: {', '.join(stale)}   (python3 -m kvlab notebooks NN executes and saves)")
    return 1 if stale else 0


def is_normal(path):
    """Whether the file is, byte for byte, what saving it again would give."""
    text = path.read_text(encoding="utf-8")
    return dumps(normalise(json.loads(text))) == text


def render(paths, folder):
    """Write each notebook as a web page with the outputs that are stored in it."""
    from nbconvert import HTMLExporter

    folder.mkdir(parents=True, exist_ok=True)
    exporter = HTMLExporter()
    for path in paths:
        page, _ = exporter.from_filename(str(path))
        target = folder / f"{path.stem}.html"
        target.write_text(page, encoding="utf-8")
        print(target)
    return 0


class Progress:
    """Says on a terminal which cell is running; silent elsewhere. Leaves nothing on the screen."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __call__(self, number, total):
        self.show(f"{self.name} [{number}/{total}]")

    def __exit__(self, *_):
        self.show("")

    def show(self, text):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
