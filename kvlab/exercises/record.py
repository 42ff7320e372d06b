"""What the reader has solved and predicted: one small file in the reader's own state folder.

It does not depend on the working directory or the notebook. Notebooks that are open at the same time take
turns, and a damaged file is put aside, not lost. Where nothing can be written nothing is remembered, and
nothing fails.
"""

import json
import os
import tempfile
from contextlib import suppress

from filelock import FileLock, Timeout  # comes with torch

from kvlab import paths

EMPTY = {"solved": [], "predicted": {}, "recalled": {}}
NO_HOME = (OSError, RuntimeError, Timeout)  # not writable; no home folder at all; somebody holds the lock


def path():
    return paths.state_dir() / "progress.json"


def read():
    """{"solved": [exercise names], "predicted": {name: answer}, "recalled": {name: option}}"""
    fresh = {"solved": [], "predicted": {}, "recalled": {}}
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
        if not _sound(content):
            raise ValueError
    except (ValueError, RecursionError):
        with suppress(OSError):
            path().replace(path().with_suffix(".damaged"))
        return fresh
    except NO_HOME:  # most often: nothing has been remembered yet
        return fresh
    return fresh | content


def _sound(content):
    if not isinstance(content, dict) or any(
        type(content.get(key, default)) is not type(default) for key, default in EMPTY.items()
    ):
        return False
    return all(isinstance(name, str) for name in content.get("solved", []))


def solve(name):
    """Remember that an exercise is solved."""

    def add(content):
        content["solved"] = sorted({*content["solved"], name})

    _change(add)


def remember(kind, name, answer):
    """Remember an answer: ``kind`` is "predicted" or "recalled"."""

    def add(content):
        content[kind][name] = answer

    _change(add)


def _change(change):
    """Read, change and write as one: in one move, and with other kernels waiting."""
    try:
        folder = path().parent
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "progress.lock", timeout=5):
            content = read()
            change(content)
            text = json.dumps(content, indent=1, sort_keys=True) + "\n"
            handle, draft = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(draft, path())
    except NO_HOME as error:
        print(f"(not remembered: {error})")
