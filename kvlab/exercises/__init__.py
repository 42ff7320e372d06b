"""Exercises with checks, hints and solutions; predictions; recall questions. One module a lesson."""

from kvlab.exercises import (  # noqa: F401  (to register)
    lesson_00,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
    lesson_08,
    lesson_10,
    lesson_11,
    lesson_12,
    lesson_13,
    lesson_14,
    lesson_17,
    lesson_18,
)
from kvlab.exercises.checking import check, hint, progress, solution
from kvlab.exercises.questions import predict, recall, reveal

__all__ = ["check", "hint", "predict", "progress", "recall", "reveal", "solution"]
