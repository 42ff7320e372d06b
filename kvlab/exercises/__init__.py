"""Exercises with checks, hints and solutions; predictions; recall questions. One module a lesson."""

from kvlab.exercises import lesson_04  # noqa: F401  (registers its exercises)
from kvlab.exercises.checking import check, hint, progress, solution
from kvlab.exercises.questions import predict, recall, reveal

__all__ = ["check", "hint", "predict", "progress", "recall", "reveal", "solution"]
