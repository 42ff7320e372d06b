"""``kvlab notebooks``: executing, saving in one form, noticing what is stale."""

import copy
import json
import os
from pathlib import Path

import nbformat
import pytest

from kvlab.commands import CommandError, notebooks, setup
from kvlab.commands.environment import Environment
from kvlab.commands.execute import CellError, Timing, execute
from kvlab.commands.normalise import dumps, normalise
from kvlab.paths import ROOT
from tests.notebooks.make import code, load, markdown, notebook, printed, save, shown


@pytest.fixture
def messy():
    """A notebook as some editor left it."""
    view = shown(
        text_plain="IntSlider()", **{"application_vnd.jupyter.widget-view+json": {"model_id": "5f1c"}}
    )
    only_view = shown(**{"application_vnd.jupyter.widget-view+json": {"model_id": "77"}})
    result = {
        "output_type": "execute_result",
        "execution_count": 9,
        "data": {"text/plain": ["4", "2"]},
        "metadata": {},
    }
    content = notebook(
        markdown(["# A\n", "title"]),
        code("a", printed("one\n"), printed("two\n"), printed("oops\n", "stderr"), count=7),
        code("b", result, count=9, metadata={"execution": {"iopub.busy": "12:00"}, "tags": ["keep"]}),
        code("c", view, only_view, count=10, metadata={"scrolled": True}),
        code("", count=None),
        code("b", printed("  0%|\r 50%|\r100%|#\n"), count=12),
    )
    content["metadata"] = {
        "kernelspec": {"name": "my-env", "display_name": "Mine", "language": "python"},
        "language_info": {"name": "python", "version": "3.11.7"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {}},
    }
    return content


def test_the_saved_form(messy):
    before = copy.deepcopy(messy)
    saved = normalise(messy)
    assert messy == before, "the original is not touched"
    assert saved["metadata"] == {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    _, a, b, c, empty, bar = saved["cells"]
    assert [cell["execution_count"] for cell in (a, b, c, empty, bar)] == [1, 2, 3, None, 4]
    assert a["outputs"] == [printed("one\ntwo\n"), printed("oops\n", "stderr")]
    assert b["metadata"] == {"tags": ["keep"]} and b["outputs"][0]["execution_count"] == 2
    assert c["metadata"] == {} and [list(output["data"]) for output in c["outputs"]] == [["text/plain"]]
    assert bar["outputs"] == [printed("100%|#\n")]


def test_saving_twice_changes_nothing(messy):
    text = dumps(normalise(messy))
    assert dumps(normalise(json.loads(text))) == text
    assert text.endswith("}\n") and '\n "cells": [' in text


def test_ids_are_kept_or_made_from_the_text(messy):
    messy["cells"][1]["id"] = "mine"
    ids = [cell["id"] for cell in normalise(messy)["cells"]]
    assert ids[1] == "mine" and len(set(ids)) == len(ids), "two cells have the same text"
    assert ids == [cell["id"] for cell in normalise(messy)["cells"]]


def test_the_text_is_what_nbformat_writes(messy):
    text = dumps(normalise(messy))
    content = nbformat.reads(text, as_version=4)
    nbformat.validate(content)
    assert nbformat.writes(content) + "\n" == text


@pytest.fixture
def lesson(tmp_path):
    """A small lesson that has been executed and saved."""
    cells = [
        markdown("# Sums"),
        code("import os\nx = 6", count=None),
        code("print('a')\nprint(x * 7)", count=None),
        code("# NBVAL_IGNORE_OUTPUT: it is the time\nimport time; print(time.time_ns())", count=None),
        code("x + 1", count=None),
        code("", count=None),
    ]
    path = save(notebook(*cells), tmp_path / "01_sums.ipynb")
    assert notebooks.refresh([path]) == 0
    return path


def test_a_lesson_is_executed_and_saved(lesson, capsys):
    cells = [cell for cell in load(lesson)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4, None]
    assert cells[1]["outputs"][0]["text"] == ["a\n", "42\n"]
    assert cells[3]["outputs"][0]["data"] == {"text/plain": ["7"]}
    assert notebooks.is_normal(lesson)


def test_executing_again_changes_only_what_is_ignored(lesson, capsys):
    before = load(lesson)
    assert notebooks.refresh([lesson]) == 0
    after = load(lesson)
    time_cell = [index for index, cell in enumerate(before["cells"]) if "time_ns" in "".join(cell["source"])]
    assert [
        i for i, (a, b) in enumerate(zip(before["cells"], after["cells"], strict=True)) if a != b
    ] == time_cell
    content = {
        **after,
        "cells": [cell for cell in after["cells"] if "time_ns" not in "".join(cell["source"])],
    }
    save(content, lesson)
    before = lesson.read_bytes()
    capsys.readouterr()
    assert notebooks.refresh([lesson]) == 0
    assert lesson.read_bytes() == before and "01_sums: unchanged" in capsys.readouterr().out


def test_a_failing_cell_is_named_and_the_file_left(lesson, capsys):
    content = load(lesson)
    content["cells"][2]["source"] = "1 / 0"
    before = save(content, lesson).read_bytes()
    assert notebooks.refresh([lesson]) == 1
    said = capsys.readouterr().err
    assert "01_sums: cell [2]: ZeroDivisionError: division by zero" in said
    assert lesson.read_bytes() == before


def test_a_cell_that_never_ends_is_named(tmp_path):
    path = save(notebook(code("import time; time.sleep(60)")), tmp_path / "02_slow.ipynb")
    with pytest.raises(CellError, match=r"cell \[1\]: .*timed out"):
        execute(path, timeout=1)


def test_check_finds_the_stale_and_writes_nothing(lesson, capsys):
    before = lesson.read_bytes()
    assert notebooks.check([lesson]) == 0
    assert "01_sums: fresh" in capsys.readouterr().out
    assert lesson.read_bytes() == before
    content = load(lesson)
    content["cells"][1]["source"] = "x = 5"
    save(content, lesson)
    by_hand = lesson.with_name("02_by_hand.ipynb")
    by_hand.write_text(lesson.read_text() + "\n")
    assert notebooks.check([lesson, by_hand]) == 1
    said = capsys.readouterr().out
    assert "Cell outputs differ" in said and "02_by_hand: stale, not in the form" in said
    assert "stale: 01_sums, 02_by_hand" in said


def test_html_is_rendered_without_executing(lesson, tmp_path, capsys):
    content = load(lesson)
    content["cells"][2]["outputs"][0]["text"] = "stored and not computed"
    save(content, lesson)
    assert notebooks.render([lesson], tmp_path / "html") == 0
    assert "stored and not computed" in (tmp_path / "html" / "01_sums.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], ["01_a", "04_the_kv_cache", "10_b"]),
        (["4"], ["04_the_kv_cache"]),
        (["10", "01", "01_a"], ["10_b", "01_a"]),
        (["04_the_kv_cache.ipynb", "04"], ["04_the_kv_cache"]),
    ],
)
def test_lessons_are_found_by_number_name_or_path(tmp_path, names, found):
    for name in ("10_b", "01_a", "04_the_kv_cache"):
        (tmp_path / f"{name}.ipynb").write_text("{}")
    assert [path.stem for path in notebooks.find(names, tmp_path)] == found


def test_an_unknown_lesson_lists_the_known(tmp_path):
    (tmp_path / "01_a.ipynb").write_text("{}")
    with pytest.raises(CommandError, match="no lesson '7'; there are: 01_a"):
        notebooks.find(["7"], tmp_path)
    with pytest.raises(CommandError, match="no notebooks"):
        notebooks.find([], tmp_path / "none")


@pytest.mark.parametrize("name", ["", ".", "..", "/", "00/", ".ipynb", "no/00_start_here.ipynb", "00_start"])
def test_what_names_no_lesson_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "00_start_here.ipynb").write_text("{}")
    with pytest.raises(CommandError, match="no lesson") as refused:
        notebooks.find([name], tmp_path)
    assert refused.value.status == 2


def test_a_path_names_the_file_in_the_callers_folder(tmp_path, monkeypatch):
    lessons, mine = tmp_path / "lessons", tmp_path / "mine"
    for folder in (lessons, mine):
        folder.mkdir()
        (folder / "04_x.ipynb").write_text("{}")
    monkeypatch.chdir(mine)
    copy, lesson = (folder.resolve() / "04_x.ipynb" for folder in (mine, lessons))
    assert notebooks.find(["./04_x.ipynb"], lessons.resolve()) == [copy]
    assert notebooks.find(["04", "../lessons/04_x.ipynb"], lessons.resolve()) == [lesson]


@pytest.mark.parametrize(
    ("argv", "folder"),
    [(["--html", "04"], ROOT / "build" / "html"), (["04", "--html", "--out", "pages"], Path("pages"))],
)
def test_html_has_a_folder_and_lessons(monkeypatch, argv, folder):
    monkeypatch.setattr(Environment, "is_current", True)
    monkeypatch.setattr(setup, "ready", Environment)
    monkeypatch.setattr(notebooks, "find", lambda names, folder: names)
    monkeypatch.setattr(notebooks, "render", lambda paths, folder: (paths, folder))
    assert notebooks.main(argv) == (["04"], folder)


def test_what_is_too_slow_is_said():
    assert "WARNING" not in notebooks.report("01_a", Timing(59, (9.9, 3)), "saved")
    assert "a cell over 10 s" in notebooks.report("01_a", Timing(59, (10.1, 3)), "saved")
    assert "a notebook over 60 s" in notebooks.report("01_a", Timing(61, (1, 3)), "saved")


def test_it_runs_again_inside_the_environment(monkeypatch):
    environment = Environment()
    monkeypatch.setattr(Environment, "is_current", False)
    monkeypatch.setattr(setup, "ready", lambda: environment)
    monkeypatch.setattr(notebooks, "find", lambda names, folder: [])
    calls = []
    environment.run = lambda arguments: calls.append(arguments) or 4
    assert notebooks.main(["04", "--check"]) == 4
    assert calls == [["-m", "kvlab", "notebooks", "04", "--check"]]


def test_the_readers_state_is_not_touched(monkeypatch):
    monkeypatch.setattr(Environment, "is_current", True)
    monkeypatch.setattr(setup, "ready", Environment)
    monkeypatch.setattr(notebooks, "find", lambda names, folder: [])
    monkeypatch.setenv("KVLAB_STATE", "/the/readers/own")
    seen = []
    monkeypatch.setattr(notebooks, "refresh", lambda paths: seen.append(os.environ["KVLAB_STATE"]) or 0)
    assert notebooks.main([]) == 0
    assert seen and "kvlab-state-" in seen[0] and str(ROOT) not in seen[0]
