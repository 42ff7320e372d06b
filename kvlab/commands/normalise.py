"""The one form in which a notebook is saved: the same outputs always give the same bytes.

A notebook is handled as the plain dictionaries of its JSON, format 4.5.
"""

import hashlib
import json
import re

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}

# What an author sets on purpose; everything else in a cell's metadata is a trace of some editor or run.
KEPT_METADATA = ("jupyter", "slideshow", "tags")

# The line with which a cell says that its output is not compared, and why. nbval itself knows the mark only
# without a reason, or as a tag: the comment is for people, and the tag is made from it.
IGNORED = re.compile(r"^# NBVAL_IGNORE_OUTPUT: *(\S.*)$", re.MULTILINE)
IGNORE_TAG = "nbval-ignore-output"

# A widget's view points into a state that is not saved, by an id that changes with each run.
DROPPED_MIMETYPES = ("application/vnd.jupyter.widget-view+json",)


def normalise(notebook):
    """A copy of the notebook in its saved form. Normalising twice changes nothing."""
    cells, used, count = [], set(), 0
    for cell in notebook["cells"]:
        kind, source = cell["cell_type"], joined(cell["source"])
        new = {
            "cell_type": kind,
            "id": cell_id(cell.get("id"), kind, source, used),
            "metadata": metadata(cell["metadata"], source if kind == "code" else ""),
            "source": source,
        }
        if cell.get("attachments"):
            new["attachments"] = cell["attachments"]
        if kind == "code":
            executed = cell.get("execution_count") is not None
            count += executed
            new["execution_count"] = count if executed else None
            new["outputs"] = outputs(cell["outputs"], new["execution_count"])
        cells.append(new)
    return {
        "cells": cells,
        "metadata": {"kernelspec": KERNELSPEC, "language_info": LANGUAGE},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def metadata(found, source):
    """The metadata worth keeping. What the comment in the source says decides about nbval's tag."""
    kept = {key: value for key, value in found.items() if key in KEPT_METADATA}
    tags = [tag for tag in kept.pop("tags", []) if tag != IGNORE_TAG]
    if IGNORED.search(source):
        tags.append(IGNORE_TAG)
    return {**kept, "tags": tags} if tags else kept


def outputs(found, count):
    """A cell's outputs, with the pieces of a stream put together as a reader sees them."""
    kept = []
    for output in found:
        kind = output["output_type"]
        if kind == "stream":
            text = joined(output["text"])
            if kept and kept[-1]["output_type"] == "stream" and kept[-1]["name"] == output["name"]:
                kept[-1]["text"] += text
            else:
                kept.append({"name": output["name"], "output_type": "stream", "text": text})
        elif kind == "error":
            kept.append(dict(output))
        else:
            data = {name: value for name, value in output["data"].items() if name not in DROPPED_MIMETYPES}
            data = {name: value if "json" in name else joined(value) for name, value in data.items()}
            if not data:
                continue
            new = {"data": data, "metadata": output.get("metadata", {}), "output_type": kind}
            if kind == "execute_result":
                new["execution_count"] = count
            kept.append(new)
    for output in kept:
        if output["output_type"] == "stream":
            # A progress bar rewrites its line; what stays on the screen is its last state.
            output["text"] = re.sub(r"^.*\r(?=[^\n])", "", output["text"], flags=re.MULTILINE)
    return kept


def cell_id(present, kind, source, used):
    """The cell's own id; where it has none, one that follows from its text."""
    text, number = present or hashlib.sha256(f"{kind}\n{source}".encode()).hexdigest()[:8], 1
    new = text
    while new in used:
        number += 1
        new = f"{text[:58]}-{number}"
    used.add(new)
    return new


def dumps(notebook):
    """The notebook as text: what `nbformat` writes, with strings split into lines for a readable diff."""
    notebook = json.loads(json.dumps(notebook))
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].splitlines(True)
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = output["text"].splitlines(True)
            for name, value in output.get("data", {}).items():
                if isinstance(value, str) and splittable(name):
                    output["data"][name] = value.splitlines(True)
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def splittable(mimetype):
    return mimetype.startswith("text/") or mimetype in ("application/javascript", "image/svg+xml")


def joined(text):
    return text if isinstance(text, str) else "".join(text)
