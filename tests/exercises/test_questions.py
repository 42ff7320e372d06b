"""Predictions and recall questions: readable without a kernel, remembered with one."""

import html
import json

import ipywidgets as widgets
import numpy as np
import pytest
import torch

from kvlab.exercises import predict, recall, record, reveal
from kvlab.exercises.questions import RECALL, Option, Recall
from kvlab.paths import NOTEBOOKS

QUESTIONS = [question for lesson in RECALL.values() for question in lesson]


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("KVLAB_STATE", str(tmp_path / "state"))


def find(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    return found + [hit for child in getattr(widget, "children", ()) for hit in find(child, kind)]


def test_a_prediction_is_remembered_and_revealed(capsys):
    page = predict("99.n", "How many?", [1, 2, 3]).widget()
    field, button = find(page, widgets.RadioButtons)[0], find(page, widgets.Button)[0]
    assert field.value is None  # nothing is suggested
    button.click()
    assert record.read()["predicted"] == {}
    field.value = 2
    button.click()
    assert record.read()["predicted"] == {"99.n": 2}
    reveal("99.n", 2)
    reveal("99.n", 3)
    reveal("99.other", 3)
    assert capsys.readouterr().out.splitlines() == [
        "answer: 2, as you predicted",
        "answer: 3; you predicted 2",
        "answer: 3",
    ]
    assert find(predict("99.n", "How many?", [1, 2, 3]).widget(), widgets.RadioButtons)[0].value == 2


def test_a_number_and_an_answer_in_the_call(capsys):
    page = predict("99.n", "How many?").widget()
    find(page, widgets.IntText)[0].value = 7
    find(page, widgets.Button)[0].click()
    assert record.read()["predicted"] == {"99.n": 7}
    predict("99.n", "How many?", answer=8)
    assert record.read()["predicted"] == {"99.n": 8}
    with pytest.raises(ValueError, match="9 is none of the options: 1, 2"):
        predict("99.n", "How many?", [1, 2], answer=9)


def test_static_forms_stand_beside_the_widget():
    for shown in (predict("99.n", "How many <b>?", ["a & b", "c"]), recall("04")):
        data, _ = shown._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in data
        assert data["text/plain"] == shown.text()
        assert data["text/html"] == shown.html()
        assert "<svg" not in data["text/html"]
    assert "How many &lt;b&gt;?" in predict("99.n", "How many <b>?").html()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_each_option_answers_for_itself(question):
    page = recall(question.name.split(".")[0])
    assert question.question in page.text()
    texts = [option.text for option in question.options]
    assert len(set(texts)) == len(texts) >= 3
    for option in question.options:
        assert option.why.strip()
        widget = page.one(1, question, widgets)
        find(widget, widgets.RadioButtons)[0].value = option.text
        said = find(widget, widgets.HTML)[-1].value
        assert said.startswith("<b>Right.</b>" if option.right else "<b>No.</b>")
        assert html.escape(option.why) in said
        assert record.read()["recalled"][question.name] == option.text


@pytest.mark.parametrize("lesson", RECALL)
def test_four_to_eight_questions_each_named_after_its_lesson_and_asked_there(lesson):
    assert 4 <= len(RECALL[lesson]) <= 8
    assert all(question.name.startswith(f"{lesson}.") for question in RECALL[lesson])
    (file,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert any(f'recall("{lesson}")' in "".join(cell["source"]) for cell in cells)


def test_the_right_answer_is_not_always_in_the_same_place():
    places = {[option.right for option in question.options].index(True) for question in QUESTIONS}
    assert len(places) > 1


def test_exactly_one_option_is_right():
    with pytest.raises(ValueError, match="exactly one option is right"):
        Recall("99.x", "?", (Option("a", "b"), Option("c", "d")))


def test_an_unknown_lesson():
    with pytest.raises(ValueError, match="no recall questions for lesson '4'; there are some for: "):
        recall("4")


def test_numbers_of_any_kind_can_be_predicted_and_measured(capsys):
    predict("99.n", "How many?", answer=np.int64(5))
    reveal("99.n", torch.tensor(5))
    assert "as you predicted" in capsys.readouterr().out
    for odd in (torch.tensor([1, 2]), (1, 2), None):
        with pytest.raises(TypeError, match="no number and no text"):
            reveal("99.n", odd)
    with pytest.raises(ValueError, match="no recall questions"):
        recall([4])
