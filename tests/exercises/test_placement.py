"""The placement quiz: with a widget and without, it gives the same advice."""

import ipywidgets as widgets
import pytest

from kvlab.exercises.lesson_00 import PLACEMENT
from tests.exercises.test_questions import find

RIGHT = "".join(
    "abcdefgh"[[option.right for option in placed.recall.options].index(True)]
    for placed in PLACEMENT.questions
)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (RIGHT, "You know all of this: you may skip lessons 01, 02, 03, 04, 05, 06"),
        ("-" * len(RIGHT), "Begin with lesson 01 and skip none"),
        (RIGHT[0] + "-" + RIGHT[2:], "You may skip lessons 01, 03, 04, 05, 06. Begin with lesson 02."),
        (RIGHT.upper()[:-1] + "-", "You may skip lessons 01, 02, 03, 04. Begin with lesson 05."),
    ],
)
def test_advice(answers, says):
    assert says in PLACEMENT.advise(answers)
    page = PLACEMENT.widget()
    fields, said = find(page, widgets.RadioButtons), find(page, widgets.HTML)[-1]
    for field, letter in zip(fields, answers.lower(), strict=True):
        field.value = "I don't know" if letter == "-" else field.options["abcdefgh".index(letter)]
    find(page, widgets.Button)[0].click()
    assert said.value == PLACEMENT.advise(answers)


def test_nothing_answered_is_nothing_known():
    page = PLACEMENT.widget()
    find(page, widgets.Button)[0].click()
    assert "skip none" in find(page, widgets.HTML)[-1].value


@pytest.mark.parametrize(
    ("answers", "says"),
    [("ab", "2 answers to 5 questions"), ("aaaaz", "answer 5 is 'z'; it is a letter from a to c, or -")],
)
def test_answers_that_are_none(answers, says):
    with pytest.raises(ValueError, match=says):
        PLACEMENT.advise(answers)


def test_it_can_be_read_without_a_kernel():
    for placed in PLACEMENT.questions:
        assert placed.recall.question in PLACEMENT.text()
        for option in placed.recall.options:
            assert option.text in PLACEMENT.text()
