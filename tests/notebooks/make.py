"""Small notebooks for the tests, as dictionaries, and nbval run on them in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kvlab.commands.environment import VARIABLES
from kvlab.commands.normalise import dumps, normalise
from kvlab.commands.test import NBVAL
from kvlab.paths import NOTEBOOKS, ROOT

COMMITTED = Path(os.environ.get("KVLAB_TEST_NOTEBOOKS", NOTEBOOKS))
"""Where the committed notebooks are: `kvlab test` exports them; a plain pytest reads the working copy."""

LESSONS = sorted(COMMITTED.glob("*.ipynb"))

# No notebook uses that plugin, which takes long to import.
WITHOUT = ["-p", "no:hypothesispytest"]


def code(source, *outputs, count=1, metadata=None):
    """A code cell that has been executed, with these outputs."""
    return {
        "cell_type": "code",
        "execution_count": count,
        "metadata": metadata or {},
        "outputs": list(outputs),
        "source": source,
    }


def markdown(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def printed(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def shown(metadata=None, **data):
    """A displayed object; ``image_png="..."`` stands for the type image/png."""
    data = {name.replace("_", "/", 1): value for name, value in data.items()}
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def notebook(*cells):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def save(content, path):
    """Write the notebook in its normal form and return the path."""
    path.write_text(dumps(normalise(content)), encoding="utf-8")
    return path


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def run_nbval(path, **variables):
    """Run the notebook and compare it, exactly as `kvlab test` does, and return the finished process."""
    command = [sys.executable, "-m", "pytest", *NBVAL, *WITHOUT, "-q", "--color=no", str(path)]
    state = path.parent / "state"
    ours = {"PYTHONPATH": str(ROOT), "KVLAB_STATE": str(state)}
    variables = {**VARIABLES, **os.environ, **ours, **variables}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)


def as_stored(path, **variables):
    """``run_nbval`` on a copy of the lesson, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run_nbval(Path(shutil.copy(path, folder)), **variables)
