"""``check``, ``hint``, ``solution`` and ``progress``: what a reader calls in a notebook."""

from kvlab.exercises import record
from kvlab.exercises.exercise import EXERCISES
from kvlab.viz import Table

_shown = {}  # exercise -> how many of its hints have been shown


def find(name):
    """The exercise of that name; ValueError lists those of the lesson."""
    if isinstance(name, str) and name in EXERCISES:
        return EXERCISES[name]
    near = [other for other in EXERCISES if other.split(".")[0] == str(name).split(".")[0]]
    raise ValueError(f"no exercise {name!r}; there are: {', '.join(near or EXERCISES)}")


def check(name, answer):
    """Judge a function: print what is wrong with it, or that it is right, and remember that."""
    exercise = find(name)
    if not callable(answer):
        raise TypeError(f"check takes the function itself: check({name!r}, {exercise.solve.__name__})")
    problem = exercise.judge(answer)
    if problem is None:
        record.solve(name)
        print(f"{name}: right.")
    else:
        print(f"{name}: not yet. {problem}\n  hint({name!r}) helps.")


def hint(name):
    """The next hint, more telling each time; the last one stays."""
    exercise = find(name)
    number = min(_shown.get(name, 0), len(exercise.hints) - 1)
    _shown[name] = number + 1
    print(f"{name}, hint {number + 1} of {len(exercise.hints)}: {exercise.hints[number]}")


def solution(name):
    """Print the solution. It adds lines to the starter and changes none."""
    print(find(name).solution)


def progress():
    """All exercises, lesson by lesson, and which are solved -> Table."""
    solved = record.read()["solved"]
    rows = [
        (name, exercise.difficulty, f"{exercise.minutes} min", "solved" if name in solved else "open")
        for name, exercise in sorted(EXERCISES.items())
    ]
    done = sum(row[-1] == "solved" for row in rows)
    return Table(["exercise", "difficulty", "time", ""], rows, f"{done} of {len(rows)} solved")
