"""Every exercise: its stub fails, its solution passes, each known mistake fails with what is meant for it."""

import inspect
import json
import time

import numpy as np
import pytest
import torch

from kvlab.exercises import checking, record
from kvlab.exercises.exercise import EXERCISES, Exercise, exercise
from kvlab.paths import NOTEBOOKS

CHECKS = [
    (name, function, meaning) for name, each in EXERCISES.items() for function, meaning in each.mistakes
]


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("KVLAB_STATE", str(tmp_path / "state"))


def compiled(source, name):
    names = {"torch": torch}
    exec(source, names)
    return names[EXERCISES[name].solve.__name__]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_fails(name, capsys):
    checking.check(name, compiled(EXERCISES[name].starter, name))
    assert f"{name}: not yet." in capsys.readouterr().out
    assert name not in record.read()["solved"]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_passes_from_its_printed_source_in_under_two_seconds(name, capsys):
    checking.solution(name)
    source = capsys.readouterr().out
    start = time.perf_counter()
    checking.check(name, compiled(source, name))
    assert time.perf_counter() - start < 2
    assert capsys.readouterr().out == f"{name}: right.\n"
    assert record.read()["solved"] == [name]


@pytest.mark.parametrize("name", EXERCISES)
def test_solving_only_adds_lines(name):
    starter, solution = EXERCISES[name].starter.splitlines(), iter(EXERCISES[name].solution.splitlines())
    assert all(line in solution for line in starter)  # a subsequence: `in` consumes the iterator
    assert len(EXERCISES[name].solution.splitlines()) > len(starter)
    assert '"""' in EXERCISES[name].starter


@pytest.mark.parametrize(("name", "mistake", "meaning"), CHECKS)
def test_a_known_mistake_is_told_what_it_is(name, mistake, meaning, capsys):
    checking.check(name, mistake)
    said = capsys.readouterr().out
    assert "not yet" in said
    assert f"Likely cause: {meaning}" in said


@pytest.mark.parametrize("name", EXERCISES)
def test_there_is_a_mistake_a_hint_and_an_estimate(name):
    each = EXERCISES[name]
    assert each.mistakes and each.hints
    assert each.minutes > 0
    assert each.difficulty in ("easy", "medium", "hard")


@pytest.mark.parametrize("name", EXERCISES)
def test_cases_name_the_parameters_in_their_order(name):
    parameters = list(inspect.signature(EXERCISES[name].solve).parameters)
    assert all(list(case) == parameters for case in EXERCISES[name].cases())


@pytest.mark.parametrize("name", EXERCISES)
def test_parameters_may_be_renamed(name):
    each = EXERCISES[name]
    assert each.judge(lambda *renamed: each.solve(*renamed)) is None


@pytest.mark.parametrize("name", EXERCISES)
def test_cases_are_the_same_at_every_call(name):
    first, second = EXERCISES[name].cases(), EXERCISES[name].cases()
    assert repr(first) == repr(second)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_lesson_shows_the_starter(name):
    """One source: the notebook's cell is the starter, followed by its check."""
    files = list(NOTEBOOKS.glob(f"{name[:2]}_*.ipynb"))
    assert len(files) == 1
    cells = json.loads(files[0].read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    each = EXERCISES[name]
    wanted = f'{each.starter.rstrip()}\n\n\ncheck("{name}", {each.solve.__name__})'
    assert wanted in sources


# What the judge itself must do, on an exercise made for the purpose.


@pytest.fixture
def double():
    def solve(x, y):
        """Twice x, and y."""
        # solve
        return 2 * x, y
        # end

    made = Exercise("99.double", solve, lambda: [dict(x=torch.arange(3.0), y=4)], 1, "easy", ["?"], 1e-9)
    made.mistake("added instead of multiplied")(lambda x, y: (2 + x, y))
    return made


def test_any_correct_implementation_is_accepted(double):
    assert double.judge(lambda x, y: [x + x, 4]) is None


def test_the_first_difference_is_named(double):
    said = double.judge(lambda x, y: (2 * x + torch.tensor([0.0, 0.0, 1.0]), y))
    assert "Case 1, x=[0.0, 1.0, 2.0], y=4" in said
    assert "value 0: first difference at index [2]: got 5, expected 4 (1 of 3 values differ)" in said
    assert "Likely cause" not in said
    assert "added instead of multiplied" in double.judge(lambda x, y: (x + 2, y))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x, y: None, "returned nothing: is there a `return`?"),
        (lambda x, y: (2 * x[:2], y), r"returned shape [2], expected [3]"),
        (lambda x, y: (2 * x, 5), "value 1: returned 5, expected 4"),
        (lambda x, y: 2 * x, "expected 2 values"),
        (lambda x, y: (3, y), "returned int, expected a tensor [3]"),
        (lambda x, y: ((2 * x).long(), y), "returned torch.int64, expected torch.float32"),
        (lambda x, y: (2 * x + float("nan"), y), "got nan"),
        (lambda x, y: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda x: x, "raised TypeError"),
    ],
)
def test_what_a_wrong_answer_is_told(double, answer, says):
    assert says in double.judge(answer)


def test_a_tensor_of_one_number_is_a_number():
    mean = Exercise(
        "99.mean", lambda x: float(x.mean()), lambda: [dict(x=torch.arange(4.0))], 1, "easy", ["?"], 1e-5
    )
    mean.mistake("the sum is not the mean")(lambda x: float(x.sum()))
    assert mean.judge(lambda x: x.mean()) is None
    assert mean.judge(lambda x: x.double().mean().numpy()) is None
    assert "the sum is not the mean" in mean.judge(lambda x: x.sum())
    assert "returned" in mean.judge(lambda x: x)


def test_float32_on_the_way_is_still_right():
    root = Exercise(
        "99.root",
        lambda x: x / 3**0.5,
        lambda: [dict(x=torch.ones(2, dtype=torch.float64))],
        1,
        "easy",
        ["?"],
        1e-5,
    )
    assert root.judge(lambda x: x / torch.tensor(3).sqrt()) is None
    assert "got 0.5," in root.judge(lambda x: x / 2)


def test_an_answer_that_changes_its_arguments_is_not_right(double):
    def vandal(x, y):
        x.mul_(2)
        return x, y

    assert "it changed its argument x" in double.judge(vandal)
    assert double.judge(lambda x, y: (x * 2, y)) is None  # and it spoiled nothing for the next


class Odd:
    """Says that it equals everything, and cannot even be printed."""

    def __eq__(self, other):
        return True

    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (np.array([46080]), "returned"),
        (torch.tensor([1, 2]), "returned"),
        (complex(46080), "returned"),
        (Odd(), "returned"),
        (10**5000, "returned"),
        ([46080], "returned"),
        ("46080", "returned"),
        (46080.0, "expected a whole number"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_answers_are_wrong_and_break_nothing(odd, says):
    each = EXERCISES["00.token_bytes"]
    assert says in each.judge(lambda *sizes: odd)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (torch.ones(3, device="meta"), "returned"),
        (torch.arange(3).double(), "returned torch.float64, expected torch.float32"),
        ((value for value in range(3)), "expected 2 values"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_tensors_are_wrong_and_break_nothing(double, odd, says):
    answer = odd if says.startswith("expected") else (odd, 4)
    assert says in double.judge(lambda x, y: answer)


def test_leaving_is_a_failure(double):
    assert "raised SystemExit" in double.judge(lambda x, y: exit())


def test_an_error_in_every_case_is_no_mistake_that_is_known():
    """A mistake that always ends in an error would be found in every answer that ends in an error."""
    for name, each in EXERCISES.items():
        assert "Likely cause" not in each.judge(lambda *arguments: torch.ones(2) @ torch.ones(3)), name


def test_names(capsys):
    with pytest.raises(ValueError, match="no exercise '04.nothing'; there are: 04.append"):
        checking.check("04.nothing", print)
    with pytest.raises(TypeError, match="check takes the function itself"):
        checking.check("04.append", None)
    with pytest.raises(ValueError, match="two exercises are called 04.append"):
        exercise("04.append", cases=list, minutes=1, difficulty="easy", hints=[])(print)


def test_hints_come_one_by_one_and_the_last_one_stays(monkeypatch, capsys):
    monkeypatch.setattr(checking, "_shown", {})
    hints = EXERCISES["04.append"].hints
    for expected in (*hints, hints[-1]):
        checking.hint("04.append")
        assert expected in capsys.readouterr().out


def test_progress_lists_what_is_solved_and_what_is_open():
    checking.check("04.append", EXERCISES["04.append"].solve)
    table = repr(checking.progress())
    assert f"1 of {len(EXERCISES)} solved" in table
    assert "solved" in next(line for line in table.splitlines() if line.startswith("04.append"))
    assert "open" in next(line for line in table.splitlines() if line.startswith("04.hidden"))
