"""Every committed notebook obeys the rules, and every rule can be broken."""

import json
import re

import pytest

from kvlab.commands.normalise import dumps, normalise
from tests.notebooks.make import COMMITTED, LESSONS, code, markdown, notebook, printed, shown
from tests.notebooks.rules import LARGEST, MOST_IGNORED, faults


def test_there_are_lessons():
    assert LESSONS, f"no notebook in {COMMITTED}: the tests below would pass by checking nothing"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_obeys_the_rules(path):
    assert re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", path.name), "lessons are named NN_short_name.ipynb"
    assert faults(path.read_text(encoding="utf-8")) == []


def found(*cells):
    """The faults of a notebook with these cells, saved in its normal form."""
    return faults(dumps(normalise(notebook(*cells))))


def test_a_good_notebook_has_no_fault():
    picture = shown(image_png="iVBORw0KGgo=", metadata={"image/png": {"alt": "a line that rises"}})
    drawing = shown(text_html='<svg role="img" aria-label="a box"><rect/></svg>')
    slow = code("# NBVAL_IGNORE_OUTPUT: seconds differ\nprint(time())", printed("1.5 s\n"))
    assert (
        found(markdown("# Why?\n[a link](https://example.org)"), code("draw()", picture, drawing), slow) == []
    )


def asking(*options):
    listed = "".join(f"<li>{option}</li>" for option in options)
    return code('predict("01.n", "How many?", [...])', shown(text_html=f"<p>How many?</p><ul>{listed}</ul>"))


def answering(text):
    return code('reveal("01.n", n)', printed(f"first\nanswer: {text}\n"))


def test_predictions_that_come_out():
    assert found(asking("2 KiB", "a &lt; b"), answering("2 KiB")) == []
    assert found(asking("2 KiB", "a &lt; b"), answering("a < b")) == []
    assert found(asking(), answering("17")) == []


PNG, SVG = {"image_png": "iVBORw0KGgo="}, "<svg><rect/></svg>"


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ([code("print(1)", count=None)], "not executed"),
        (
            [code("1 / 0", {"output_type": "error", "ename": "E", "evalue": "", "traceback": []})],
            "ends in an error",
        ),
        ([code("# NBVAL_SKIP\nprint(1)")], "steers nbval"),
        ([code("# NBVAL_IGNORE_OUTPUT\nprint(1)")], "steers nbval"),
        ([code("print(1)", metadata={"tags": ["raises-exception"]})], "steers nbval"),
        ([code("draw()", shown(**PNG))], "picture without a text"),
        ([code("draw()", shown(**{"image_svg+xml": SVG}))], "picture without a text"),
        ([code("draw()", shown(text_html=SVG))], "picture without a text"),
        ([code("draw()", shown(text_html="<img src='x.png'>"))], "picture without a text"),
        ([markdown("see /home/ann/notes")], "absolute path"),
        ([code("open()", printed("UserWarning: /root/.venv/lib/x.py:3\n"))], "absolute path"),
        ([code(r"open('C:\data')")], "absolute path"),
        ([markdown("![a map](https://example.org/map.png)")], "remote image"),
        ([markdown('<img alt="a map" src="//example.org/map.png">')], "remote image"),
        ([code("print()", printed("x" * LARGEST))], "bytes, more than"),
        ([asking("2 KiB", "4 KiB"), answering("2.00 KiB")], "none of its options"),
        ([answering("2 KiB"), asking("2 KiB")], "before it is predicted"),
        ([asking("2 KiB")], "never revealed"),
        ([code(f"# NBVAL_IGNORE_OUTPUT: time {i}\nnow()") for i in range(MOST_IGNORED + 1)], "compare more"),
    ],
)
def test_each_rule_can_be_broken(cells, fault):
    assert any(fault in line for line in found(*cells)), found(*cells)


def test_saved_by_another_tool_is_a_fault():
    good = dumps(normalise(notebook(code("print(1)", printed("1\n")))))
    assert faults(good) == []
    assert "saved form" in faults(good.replace('"execution_count": 1', '"execution_count": 7'))[0]
    with_state = json.loads(good)
    with_state["metadata"]["widgets"] = {}
    assert "widget state" in faults(json.dumps(with_state))[0]


def test_a_reason_is_not_optional():
    """A comment without a reason sets no tag, and so the cell is compared like any other."""
    cell = normalise(notebook(code("# NBVAL_IGNORE_OUTPUT:\nnow()")))["cells"][0]
    assert cell["metadata"] == {}
    cell = normalise(notebook(code("# NBVAL_IGNORE_OUTPUT: the time of day\nnow()")))["cells"][0]
    assert cell["metadata"] == {"tags": ["nbval-ignore-output"]}
    by_hand = normalise(notebook(code("now()", metadata={"tags": ["nbval-ignore-output"]})))
    assert by_hand["cells"][0]["metadata"] == {}
