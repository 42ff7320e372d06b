"""The rules that every committed notebook obeys; ``faults`` lists what is wrong with one."""

import html
import json
import re

from kvlab.commands.normalise import IGNORED, dumps, joined, normalise

LARGEST = 2 * 10**6  # bytes: beyond it, previews give up and diffs are useless
MOST_IGNORED = 5  # cells whose output is not compared

ABSOLUTE = re.compile(r"(?<![\w.:/~])/(?:home|root|Users|tmp|var|usr|opt|mnt|work|private)/|\b[A-Z]:\\\w")
REMOTE_IMAGE = re.compile(
    r"!\[[^\]]*\]\(\s*<?(?:https?:)?//|<img[^>]+src\s*=\s*[\"']?(?:https?:)?//", re.IGNORECASE
)
NBVAL_MARKER = re.compile(r"^\s*#+\s*(?:NBVAL_|PYTEST_VALIDATE_)\w+", re.MULTILINE)
NBVAL_TAGS = {"nbval-skip", "nbval-raises-exception", "raises-exception", "nbval-check-output"}
PICTURE_TAG = re.compile(r"<img\b[^>]*>|<svg\b.*?>(?:\s*<title>)?", re.IGNORECASE | re.DOTALL)
PREDICT = re.compile(r"\bpredict\(\s*\"([\w.]+)\"")
REVEAL = re.compile(r"\breveal\(\s*\"([\w.]+)\"")
NAMED_PICTURE = re.compile(r"\balt\s*=|\baria-label\s*=|\baria-hidden\s*=|<title>", re.IGNORECASE)


def faults(text):
    """What is wrong with the notebook that this text is, one line a fault."""
    content = json.loads(text)
    found = []
    if len(text.encode()) > LARGEST:
        found.append(f"it has {len(text.encode())} bytes, more than {LARGEST}")
    if "widgets" in content["metadata"]:
        found.append("it carries widget state, which breaks previews")
    if dumps(normalise(content)) != text:
        found.append("it is not in its saved form: run `python3 -m kvlab notebooks` on it")
    cells = [
        cell for cell in content["cells"] if cell["cell_type"] == "code" and joined(cell["source"]).strip()
    ]
    ignored = [cell for cell in cells if IGNORED.search(joined(cell["source"]))]
    if len(ignored) > MOST_IGNORED:
        found.append(f"{len(ignored)} cells are not compared, more than {MOST_IGNORED}: compare more")
    for number, cell in enumerate(cells, 1):
        found += [f"cell [{number}] {fault}" for fault in code_faults(cell)]
    found += prediction_faults(cells)
    for cell in content["cells"]:
        for piece in texts(cell):
            if match := ABSOLUTE.search(piece):
                found.append(f"an absolute path: ...{piece[match.start() : match.start() + 40]!r}")
            if match := REMOTE_IMAGE.search(piece):
                found.append(f"a remote image: ...{piece[match.start() : match.start() + 60]!r}")
    return found


def code_faults(cell):
    """What is wrong with one code cell that is not empty."""
    source = joined(cell["source"])
    if cell["execution_count"] is None:
        yield "was not executed, and so would not be compared"
    if any(output["output_type"] == "error" for output in cell["outputs"]):
        yield "ends in an error"
    if NBVAL_MARKER.search(IGNORED.sub("", source)) or NBVAL_TAGS & set(cell["metadata"].get("tags", [])):
        yield "steers nbval by another mark than `# NBVAL_IGNORE_OUTPUT: reason`"
    for output in cell["outputs"]:
        if not has_alt_text(output):
            yield "shows a picture without a text for those who cannot see it"


def prediction_faults(cells):
    """What is wrong with predictions: each is revealed in a later cell, and what comes out is an option."""
    asked = {}
    for cell in cells:
        source, output = joined(cell["source"]), "\n".join(texts(cell))
        answers = re.findall(r"^answer: (.*)$", output, re.MULTILINE)
        for name, answer in zip(REVEAL.findall(source), answers, strict=False):
            options = asked.pop(name, None)
            if options is None:
                yield f"{name} is revealed before it is predicted"
            elif options and answer not in options:
                yield f"{name} comes out as {answer!r}, which is none of its options: {options}"
        for name in PREDICT.findall(source):
            options = re.findall(r"<li>(.*?)</li>", output)
            asked[name] = [html.unescape(option) for option in options]
    yield from (f"{name} is predicted and never revealed" for name in asked)


def has_alt_text(output):
    """Whether each picture has a text for those who cannot see it.

    An image has it as metadata, ``{"image/png": {"alt": ...}}``; HTML and SVG as alt, aria-label or title.
    """
    data, metadata = output.get("data", {}), output.get("metadata", {})
    for mimetype in data:
        if mimetype.startswith("image/") and not (
            metadata.get("alt") or metadata.get(mimetype, {}).get("alt")
        ):
            if mimetype != "image/svg+xml":
                return False
            if not NAMED_PICTURE.search(joined(data[mimetype])):
                return False
    html = joined(data.get("text/html", ""))
    return all(NAMED_PICTURE.search(tag) for tag in PICTURE_TAG.findall(html))


def texts(cell):
    """Everything in a cell that a reader reads."""
    yield joined(cell["source"])
    for output in cell.get("outputs", []):
        if "text" in output:
            yield joined(output["text"])
        for mimetype, value in output.get("data", {}).items():
            if mimetype.startswith("text/"):
                yield joined(value)
