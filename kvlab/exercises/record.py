"""What the reader has solved and predicted: one small file in the reader's own state folder.

It does not depend on the working directory or the notebook, and a damaged file is put aside, not lost.
"""

import json

from kvlab import paths


def path():
    return paths.state_dir() / "progress.json"


def read():
    """{"solved": [exercise names], "predicted": {name: answer}, "recalled": {name: option}}"""
    empty = {"solved": [], "predicted": {}, "recalled": {}}
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
    except OSError:  # most often: nothing has been remembered yet
        return empty
    except ValueError:
        content = None
    if not isinstance(content, dict) or any(
        type(content.get(key, value)) is not type(value) for key, value in empty.items()
    ):
        path().replace(path().with_suffix(".damaged"))
        return empty
    return empty | content


def solve(name):
    """Remember that an exercise is solved."""
    content = read()
    if name not in content["solved"]:
        content["solved"] = sorted([*content["solved"], name])
        _write(content)


def remember(kind, name, answer):
    """Remember an answer: ``kind`` is "predicted" or "recalled"."""
    content = read()
    content[kind][name] = answer
    _write(content)


def _write(content):
    """In one move, so that a crash leaves the old file or the new one; without a home nothing is kept."""
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        draft = path().with_suffix(".part")
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        draft.replace(path())
    except OSError as error:
        print(f"(not remembered: {error})")
