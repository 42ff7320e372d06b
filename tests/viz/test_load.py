"""A workload against the clock: heights are the trace's numbers, and nothing overlaps."""

import re

import pytest

from kvlab.engine import Simulation, Step, Trace, arrivals, serve
from kvlab.paging.reservation import lognormal
from kvlab.viz.serving import load_sheet
from kvlab.viz.serving.load import HELD, HIGH, RUNNING
from kvlab.viz.sheet import Box
from tests.viz.sheets import faults


def served(rate=0.2, blocks=40, n=30, spare=0):
    simulation = Simulation(blocks, 4, 16, spare)
    lengths = lognormal(20, 20, n, seed=1, spread=0.5)
    serve(simulation, [(at, [0] * p, a) for at, p, a in arrivals(lengths, rate, seed=1)])
    return simulation.trace


@pytest.mark.parametrize("trace", [served(), served(0.02), served(5, 90), served(0.2, n=1)])
def test_nothing_overlaps_or_leaves_the_sheet(trace):
    assert not faults(load_sheet(trace))


def test_the_words_are_the_trace():
    trace = served()
    steps = [step for step in trace.steps if step.ran]
    running, waiting = max(len(s.ran) for s in steps), max(s.waiting for s in steps)
    held, preempted = max(s.held for s in steps), sum(len(s.preempted) for s in steps)
    title = load_sheet(trace).title
    assert f"at most {running} texts run and {waiting} wait, at most {held} of 40 blocks are held" in title
    assert f"preempted {preempted} times, and the longest step takes 1,000 ms" in title and preempted


def columns(sheet, look):
    """(left, right, height) of a panel's columns."""
    boxes = [thing for thing in sheet.things if isinstance(thing, Box) and thing.fill == look.fill]
    return [(box.x, box.x + box.width, box.height) for box in boxes if (box.width, box.height) != (12, 12)]


def test_columns_are_as_high_as_what_they_show():
    ran, seconds = [["a", 1, "decode"]], 1.0
    steps = [
        Step(0, ran=ran * 4, held=10, began=0.0, seconds=seconds),
        Step(1, ran=ran * 2, held=5, began=1.0, seconds=seconds),
        Step(2, ran=ran * 2, held=20, waiting=2, began=2.0, seconds=2.0, preempted=[["b", 3]]),
    ]
    sheet = load_sheet(Trace(20, 4, 8, steps), bins=4)
    assert [round(high) for _, _, high in columns(sheet, RUNNING)] == [HIGH, HIGH // 2]
    assert [high / HIGH for _, _, high in columns(sheet, HELD)] == [0.5, 0.25, 1.0]
    left, right = columns(sheet, RUNNING)[0][0], columns(sheet, RUNNING)[-1][1]
    ticks = {text.text: text.x for text in sheet.texts()}
    assert ticks["0 s"] == pytest.approx(left) and ticks["4"] == pytest.approx(right)
    assert "a text is preempted" in ticks


def test_who_runs_and_who_waits_in_a_stretch_of_time_are_those_of_one_step():
    ran = [["a", 1, "decode"]]
    steps = [
        Step(0, ran=ran * 4, began=0.0, seconds=1.0),
        Step(1, ran=ran, waiting=2, began=1.0, seconds=1.0),
    ]
    sheet = load_sheet(Trace(20, 4, 8, steps), bins=1)
    assert [high for _, _, high in columns(sheet, RUNNING)] == [HIGH]  # 4 of 4, and not of 4 + 2
    assert "at most 4 texts run and 2 wait" in sheet.title


def test_an_empty_trace_is_an_empty_picture():
    sheet = load_sheet(Trace(20, 4, 8))
    assert not columns(sheet, RUNNING) and "at most 0 texts run" in sheet.title and not faults(sheet)
    assert "a text is preempted" not in {text.text for text in sheet.texts()}


def test_svg_and_picture_say_the_same():
    sheet = load_sheet(served())
    assert re.search("<title>(.*?)</title>", sheet.svg()).group(1) == sheet.picture().alt
