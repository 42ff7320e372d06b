"""What an exercise is: one function as solution, starter and judge, and the mistakes to tell apart.

The solution is written once. Its lines between ``# solve`` and ``# end`` are what the reader writes; the rest
is the starter, so that solving only ever adds lines. An answer is judged by running it beside the solution on
the exercise's cases. When it differs, it is compared with the mistakes that people make here: if one of them
gives the same wrong result, its explanation is the likely cause.
"""

import copy
import inspect
import re
from dataclasses import dataclass, field
from math import isnan
from operator import index


@dataclass
class Exercise:
    """``name`` is its id, such as ``04.append``; ``minutes`` and ``difficulty`` say what it takes."""

    name: str
    solve: callable
    cases: callable
    minutes: int
    difficulty: str
    hints: list
    tolerance: float
    mistakes: list = field(default_factory=list)  # (function, what it means)

    def __call__(self, *arguments):
        """A solution may call itself."""
        return self.solve(*arguments)

    def mistake(self, meaning):
        """Decorator for a known wrong answer; ``meaning`` tells the reader what is wrong with it."""

        def register(function):
            self.mistakes.append((function, meaning))
            return function

        return register

    @property
    def solution(self):
        """The solution's source, without the marks."""
        return re.sub(r"^\s*# (solve|end)\n", "", _source(self.solve), flags=re.MULTILINE)

    @property
    def starter(self):
        """The source that the lesson shows: the solution without what the reader writes."""
        return re.sub(r"^\s*# solve\n.*?^\s*# end\n", "", _source(self.solve), flags=re.MULTILINE | re.DOTALL)

    def judge(self, answer):
        """Run ``answer`` beside the solution -> ``None`` when it is right, else what to tell its author."""
        cases = self.cases()
        runs = [_run(answer, case) for case in cases]
        results = [result for result, _ in runs]
        for number, (case, (result, changed)) in enumerate(zip(cases, runs, strict=True), 1):
            problem = _compare(result, _run(self.solve, case)[0], self.tolerance)
            if problem is None and changed:
                problem = (
                    f"the result is right, but it changed its argument {changed}: others still need that"
                )
            if problem:
                shown = ", ".join(f"{key}={_short(value)}" for key, value in case.items())
                return f"Case {number}, {shown}:\n  {problem}{self._likely_cause(cases, results)}"
        return None

    def _likely_cause(self, cases, results):
        for function, meaning in self.mistakes:
            theirs = [_run(function, case)[0] for case in cases]
            if all(isinstance(result, Failure) for result in theirs):
                continue  # any error at all would look like this mistake
            differences = (_compare(a, b, self.tolerance) for a, b in zip(results, theirs, strict=True))
            if not any(differences):
                return f"\n  Likely cause: {meaning}"
        return ""


EXERCISES = {}


def exercise(name, *, cases, minutes, difficulty, hints, tolerance=1e-5):
    """Decorator that makes a solution an :class:`Exercise`.

    cases: a function that gives the same arguments at every call: a list of {name: value}, in the order of
    the parameters. They are passed by position, so a reader may rename them.
    tolerance: relative and absolute; an answer that computes in float32 on the way is still right.
    """

    def register(solve):
        if name in EXERCISES:
            raise ValueError(f"two exercises are called {name}")
        EXERCISES[name] = Exercise(name, solve, cases, minutes, difficulty, list(hints), tolerance)
        return EXERCISES[name]

    return register


@dataclass
class Failure:
    """A call that ended in an exception."""

    error: Exception


def _run(function, case):
    """(result or Failure, the name of an argument that the function changed or None)"""
    arguments = copy.deepcopy(case)
    try:
        result = function(*arguments.values())
    except (Exception, SystemExit) as error:  # whatever a reader's code raises is a result to report
        return Failure(error), None
    changed = (name for name in case if not callable(case[name]) and _compare(arguments[name], case[name], 0))
    return result, next(changed, None)


def _compare(got, right, tolerance):
    """``None`` when two results agree, else where they part."""
    try:
        return _difference(got, right, tolerance)
    except Exception:  # a reader's result can be anything, and may not even let itself be compared
        return f"returned a {type(got).__name__} that cannot be compared with the right answer"


def _difference(got, right, tolerance):
    import torch

    if isinstance(got, Failure) or isinstance(right, Failure):
        if isinstance(got, Failure) and isinstance(right, Failure) and type(got.error) is type(right.error):
            return None
        if isinstance(got, Failure):
            return f"raised {type(got.error).__name__}: {_text(got.error)}"
        return f"returned {_short(got)} where {type(right.error).__name__} was expected"
    if got is None and right is not None:
        return "returned nothing: is there a `return`?"
    if isinstance(right, torch.Tensor) and right.shape == ():
        right = right.item()
    if isinstance(right, bool | float | int) and getattr(got, "shape", None) == ():
        got = got.item()  # a tensor or array of one number is a number
    if isinstance(right, list) and hasattr(got, "tolist"):
        got = got.tolist()
    if isinstance(right, torch.Tensor):
        return _compare_tensors(got, right, tolerance)
    if isinstance(right, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(right):
            return f"returned {_short(got)}, expected {len(right)} values"
        parts = (_compare(one, other, tolerance) for one, other in zip(got, right, strict=True))
        return next((f"value {i}: {part}" for i, part in enumerate(parts) if part), None)
    if isinstance(right, float):
        close = isinstance(got, float | int) and abs(got - right) <= tolerance * max(1.0, abs(right))
        return (
            None
            if close or (isnan(right) and isnan(got))
            else f"returned {_short(got)}, expected {right:.6g}"
        )
    if type(right) is int:
        if isinstance(got, float):
            return f"returned {got}, expected a whole number"
        return None if index(got) == right else f"returned {_short(got)}, expected {right}"
    return None if got == right else f"returned {_short(got)}, expected {_short(right)}"


def _compare_tensors(got, right, tolerance):
    import torch

    if not isinstance(got, torch.Tensor):
        return f"returned {type(got).__name__}, expected a tensor {list(right.shape)}"
    if got.shape != right.shape:
        return f"returned shape {list(got.shape)}, expected {list(right.shape)}"
    if got.dtype != right.dtype:
        return f"returned {got.dtype}, expected {right.dtype}"
    wrong = ~torch.isclose(got.double(), right.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    return (
        f"first difference at index {list(index)}: got {got[index].item():.6g}, "
        f"expected {right[index].item():.6g} ({int(wrong.sum())} of {wrong.numel()} values differ)"
    )


def _short(value):
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() > 6:
            return f"tensor {list(value.shape)}"
        return str((value.double().round(decimals=3) if value.is_floating_point() else value).tolist())
    if isinstance(value, tuple | list):
        inside = ", ".join(map(_short, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_short(each)}' for key, each in value.items())}}}"
    if callable(value):
        return getattr(value, "__name__", "a function")
    text = _text(value, repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value, form=str):
    try:
        return form(value)
    except Exception:  # as for an int of thousands of digits
        return f"a {type(value).__name__}"


def _source(function):
    """The source of a solution from its ``def`` on."""
    text = inspect.getsource(function)
    return text[text.index("def ") :]
