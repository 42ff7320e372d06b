"""How long something takes: the fastest of some runs, since other work on a machine only makes it slower."""

import time


def fastest(steps, repeats=9):
    """{name: function} -> {name: seconds}. All in turn, so that a busy moment hits each of them."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
