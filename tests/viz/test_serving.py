"""An engine's trace, drawn: every text in every step as the trace has it, and each step in words."""

import re
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvlab import viz
from kvlab.engine import Simulation
from kvlab.engine.trace import Step, Trace
from kvlab.viz.serving import batches_sheet, events, step_sheet, stops, timeline_sheet
from kvlab.viz.serving.looks import LOOKS, Columns
from kvlab.viz.serving.timeline import MARKS
from kvlab.viz.serving.words import Names, lives_of, queue
from kvlab.viz.sheet import Box, Shape, Sheet, Strokes, overlap, together
from tests.viz.sheets import faults, shown, tips
from tests.viz.traces import crowd, story, walk

CELL = r"request ([\d.]+), steps? (\d+)(?: to (\d+))?: (\w+)(?:, (\d+) tokens?)?$"
MARK = r"request ([\d.]+): (arrived|forked|preempted|ended|cancelled) (?:before|in) step (\d+)"
seeds = given(seed=st.integers(0, 10**6))
few = settings(max_examples=8, deadline=None)


def outside(sheet):
    """Marks and lines that leave it."""
    for thing in sheet.things:
        lines = [thing.points] if isinstance(thing, Shape) else getattr(thing, "lines", ())
        for x, y in (point for line in lines for point in line):
            if not (0 <= x <= sheet.width and 0 <= y <= sheet.height):
                yield f"a point at {x}, {y}"


def box_of(box):
    return box.x + 0.01, box.y, box.x + box.width - 0.01, box.y + box.height


def covered(sheet):
    """Cells that lie on other cells."""
    boxes = [box for box, _ in tips(sheet, CELL)]
    return [(one, other) for one, other in combinations(boxes, 2) if overlap(box_of(one), box_of(other))]


def cells(sheet, columns):
    """{(name, step): (what, tokens)} of a timeline, each where its step is."""
    found = {}
    for box, match in tips(sheet, CELL):
        name, first, last, what, tokens = match.groups()
        first, last = int(first), int(last or first)
        assert (box.x, box.width) == pytest.approx((columns.x(first), (last - first + 1) * columns.cell))
        assert box.fill == LOOKS[what].fill
        for step in range(first, last + 1):
            assert (name, step) not in found
            found[name, step] = what, int(tokens or 0) // (last - first + 1)
    return found


def marks(sheet, columns):
    """(name, what, step) of each, beside or on the column of its step."""
    for thing in sheet.things:
        if isinstance(thing, Shape) and (found := re.match(MARK, thing.tip)):
            name, what, step = found.group(1), found.group(2), int(found.group(3))
            xs = [x for x, _ in thing.points]
            assert columns.x(step) - 13 < min(xs) and max(xs) < columns.x(step + 1) + 13
            yield name, what, step


@few
@given(seed=st.integers(0, 10**6), data=st.data())
def test_nothing_overlaps_and_nothing_is_cut(seed, data):
    trace, _ = walk(seed)
    steps = st.integers(0, len(trace) - 1)
    first, last = sorted([data.draw(steps), data.draw(steps)])
    at = data.draw(st.sets(st.integers(first, last), max_size=4))
    timeline, batches = timeline_sheet(trace, at, first, last), batches_sheet(trace, at, first, last)
    for sheet in (timeline, batches, step_sheet(trace, first), together([timeline, batches])):
        assert faults(sheet) == [] and [*outside(sheet)] == [] and sheet.width == 780
    assert covered(timeline) == []


@pytest.mark.parametrize(
    ("texts", "steps"), [(1, 1), (3, 5), (24, 60), (40, 300), (95, 7), (97, 300), (300, 2)]
)
def test_any_number_of_texts_and_steps_has_room(texts, steps):
    trace = crowd(texts, steps)
    timeline, batches = timeline_sheet(trace, steps // 2), batches_sheet(trace)
    for sheet in (timeline, batches, step_sheet(trace, steps - 1)):
        assert faults(sheet) == [] and [*outside(sheet)] == []
    rows = {match.group(1) for _, match in tips(timeline, CELL)}
    assert len(rows) == min(texts, 96) and timeline.height < 600
    assert (f"and {texts - 96} more text" in shown(timeline)) == (texts > 96)
    assert f"Timeline of {texts} text" in timeline.title


def test_what_is_wrong_with_a_drawing_is_noticed():
    trace = story()
    sheet = timeline_sheet(trace)
    box, _ = tips(sheet, CELL)[3]
    sheet.things.append(box.moved(2, 0))
    with pytest.raises(AssertionError):
        cells(sheet, Columns.of(trace))
    assert covered(sheet) and not covered(timeline_sheet(trace))
    small = Sheet(10, 10, "small")
    small.line(0, 0, 11, 5)
    small.mark(9, 5, "red")
    assert len({*outside(small)}) > 2


@few
@seeds
def test_every_state_is_drawn_as_often_as_the_trace_has_it(seed):
    trace, _ = walk(seed)
    columns, sheet = Columns.of(trace), timeline_sheet(trace)
    lives = {(str(name), step): cell for name, life in trace.lives().items() for step, cell in life.items()}
    assert cells(sheet, columns) == lives
    wanted = []
    for step in trace.steps:
        wanted += [(str(name), "arrived", step.number) for name, *_ in step.submitted]
        wanted += [(str(name), "forked", step.number) for name in step.forked]
        wanted += [(str(name), "preempted", step.number) for name, _ in step.preempted]
        kinds = [(name, "cancelled" if why == "cancelled" else "ended") for name, why in step.ended]
        wanted += [(str(name), kind, step.number) for name, kind in kinds]
    assert Counter(marks(sheet, columns)) == Counter(wanted)
    words = {"prefill": "prefill", "decode": "one token", "paused": "had no tokens", "waiting": "waits"}
    drawn, legend = {what for what, _ in lives.values()}, shown(sheet)
    assert {what for what, said in words.items() if said in legend} == drawn
    assert all((MARKS[kind][3] in legend) == any(kind == k for _, k, _ in wanted) for kind in MARKS)


@few
@seeds
def test_bars_are_as_high_as_the_tokens_and_blocks_of_their_step(seed):
    trace, _ = walk(seed)
    columns, sheet = Columns.of(trace), batches_sheet(trace)
    boxes = [thing for thing in sheet.things if isinstance(thing, Box) and thing.opacity]
    del boxes[-2:]  # the legend's

    def at(step, what):
        """The height over a step, in pixels."""
        x = columns.x(step) + columns.cell / 2
        found = [box for box in boxes if box.fill == LOOKS[what].fill and box.x < x < box.x + box.width]
        return sum(box.height for box in found)

    for what, values in {
        "decode": [step.of("decode") for step in trace.steps],
        "prefill": [step.of("prefill") for step in trace.steps],
        "held": [step.held for step in trace.steps],
        "waiting": [step.waiting for step in trace.steps],
    }.items():
        heights = [at(step, what) for step in range(len(trace))]
        unit = max(heights) / max(*values, 1)
        assert heights == pytest.approx([unit * value for value in values])
    feet = {(box.x, round(box.y + box.height, 6)) for box in boxes if box.fill == LOOKS["prefill"].fill}
    heads = {round(columns.x(step.number), 6): at(step.number, "decode") for step in trace.steps}
    base = next(text.y for text in sheet.texts() if text.text == "0" and text.anchor == "end") - 1
    for x, foot in feet:  # prefill stands on decode
        assert foot == pytest.approx(base - heads[round(x, 6)])
    pointed = tips(
        sheet, r"step (\d+): (\d+) tokens? of decode and (\d+) of prefill, (\d+) blocks? held, (\d+)"
    )
    said = [tuple(map(int, match.groups())) for _, match in pointed]
    assert said == [(s.number, s.of("decode"), s.of("prefill"), s.held, s.waiting) for s in trace.steps]
    assert ("budget: " + f"{trace.max_batch_tokens:,}") in shown(sheet)


@few
@seeds
@example(seed=15)  # five are preempted in one step
def test_who_waits_is_named_in_the_order_of_the_queue(seed):
    trace, queues = walk(seed)
    assert [queue(trace, number) for number in range(len(trace))] == queues
    for number, waiting in enumerate(queues):
        said = step_sheet(trace, number).title
        assert not waiting or f"waiting: {Names().all(waiting)}" in said
        first = f"equest {waiting[0]} is not admitted: " if len(waiting) > 1 else ", not admitted: "
        assert (first in said) == bool(waiting and trace[number].reason)


@few
@seeds
def test_a_batch_is_a_part_of_its_budget(seed):
    trace, _ = walk(seed)
    units = set()
    for step in trace.steps:
        bar = tips(step_sheet(trace, step.number), r"request ([\d.]+): (decode|prefill), (\d+) token")
        drawn = [(match.group(1), int(match.group(3)), match.group(2)) for _, match in bar]
        ran = [(str(name), n, what) for name, n, what in step.ran]
        assert drawn == [each for kind in ("decode", "prefill") for each in ran if each[2] == kind]
        units |= {round(box.width / int(match.group(3)), 6) for box, match in bar}
        inside = [text for text in step_sheet(trace, step.number).texts() if text.y == 24 + 30 / 2 + 4]
        for box, match in bar:  # what is written in it is its own name, or there is no room
            written = [text for text in inside if text.x == pytest.approx(box.x + box.width / 2)]
            assert all(
                text.box[0] > box.x and text.box[2] < box.x + box.width for text in written if text.text
            )
            assert all(text.text.partition(":")[0] in ("", match.group(1)) for text in written)
        ends = [box.x + box.width for box, _ in bar]
        assert [box.x for box, _ in bar] == pytest.approx([10, *ends][: len(bar)])
        rest = tips(step_sheet(trace, step.number), r"(\d+) tokens? of the budget not used")
        assert sum(int(match.group(1)) for _, match in rest) == trace.max_batch_tokens - step.tokens
        assert all(box.x + box.width == pytest.approx(770) for box, _ in rest)
    assert len(units) <= 1  # a token is as wide in each step


def test_the_story_in_words():
    trace = story()
    assert len(trace) == 29 and stops(trace) == [0, 8, 13]
    assert events(trace) == [0, 1, 8, 13, 14, 15, 19, 21, 28]
    assert step_sheet(trace, 8).title == (
        "Step 8: 2 new tokens of a budget of 16. decode: requests 0 and 1; blocks: 9 of 12 held in it; 1 "
        "taken, 4 freed; waiting: requests 2, 3 and 4. Request 2 is not admitted: somebody has just been "
        "preempted; preempted: request 2 (15 tokens given up): 1 block was missing."
    )
    words = shown(step_sheet(trace, 1))
    for said in ("Step 1", "12 new tokens of a budget of 16", "request 1 (2 tokens), request 2 (9 tokens)"):
        assert said in words
    assert "request 4 (3 tokens)" in words and "1: 2 tokens | 2: 9 tokens | 4 left" in words
    title = timeline_sheet(trace).title
    assert "7 chunks of prefill, 56 tokens of decode, 36 steps of waiting, 0 steps without" in title
    assert "Request 2 arrived before step 0, preempted in step 8, ended in step 21." in title
    title = batches_sheet(trace).title
    assert "56 tokens of decode and 54 of prefill, 3.8 a step, at most 16 where the budget is 16" in title
    assert "At most 12 of 12 blocks held, at most 3 texts waiting." in title


def test_a_limit_far_above_is_named_and_small_ones_are_drawn():
    trace = crowd(2, 9, budget=65)  # one token a step
    words, bar = shown(batches_sheet(trace)), step_sheet(trace, 3)
    assert "budget: 65 | (far above)" in words and "pool: 100 | (far above)" in words
    assert "64 tokens of the budget not used" in shown(bar)
    assert [thing for thing in bar.things if isinstance(thing, Strokes) and thing.width == 1.2]  # a break
    trace = crowd(1, 9, budget=64)
    words, bar = shown(batches_sheet(trace)), step_sheet(trace, 3)
    assert "64 | new tokens | budget: 64 | " in words and "none | texts waiting" in words
    assert not [thing for thing in bar.things if isinstance(thing, Strokes) and thing.width == 1.2]


def test_only_what_lies_in_the_steps_that_are_asked_for():
    trace = story()
    columns, sheet = Columns.of(trace, 5, 13), timeline_sheet(trace, first=5, last=13)
    drawn = cells(sheet, columns)
    assert {step for _, step in drawn} == set(range(5, 14)) and len(drawn) == 5 * 9
    assert {what for _, what, _ in marks(sheet, columns)} == {"preempted", "ended"}
    late = timeline_sheet(trace, first=22)
    assert "request 3" in shown(late) and "request 2" not in shown(late)
    assert "steps 22 to 28: 0 chunks of prefill, 7 tokens of decode" in late.title


def test_a_marked_step_is_framed_in_its_column_of_both():
    trace = story()
    frames = []
    for sheet in (timeline_sheet(trace, 8), batches_sheet(trace, 8)):
        (frame,) = [thing for thing in sheet.things if isinstance(thing, Strokes) and thing.width == 1.8]
        (number,) = [text for text in sheet.texts() if text.text == "8" and text.bold]
        left, right = (pick(x for x, _ in frame.lines[0]) for pick in (min, max))
        assert left < number.x < right
        frames.append((left, right))
    assert frames[0] == frames[1]
    x = Columns.of(trace).x
    assert frames[0] == (x(8) - 1, x(9) + 1)


def test_own_names_are_used_and_cut_where_they_have_no_room():
    trace, names = story(), {2: "the chat", 0: "A very long name " * 4}
    sheet = timeline_sheet(trace, names=names)
    assert faults(sheet) == [] and "the chat | " in shown(sheet) and "request 1" in shown(sheet)
    assert "A very" in shown(sheet) and "The chat arrived before step 0" in sheet.title
    step = step_sheet(trace, 8, names)
    assert faults(step) == [] and "The chat is not admitted" in step.title


def test_forks_stand_below_their_parent_and_hang_on_it():
    steps = [
        Step(0, [["0.0", 5, 2, 3], [1, 4, 4, 1]], [["0.0", 5, "prefill"]], ["0.0"], forked=["0.1", "0.2"]),
        Step(1, ran=[["0.0", 1, "decode"], ["0.1", 1, "decode"]], ended=[["0.2", "cancelled"]], waiting=1),
    ]
    trace = Trace(9, 4, 8, steps)
    assert [life.name for life in lives_of(trace)] == ["0.0", "0.1", "0.2", 1]
    sheet = timeline_sheet(trace)
    rows = {text.text: text.y for text in sheet.texts() if text.text.startswith("request")}
    hung = [thing.lines[0] for thing in sheet.things if isinstance(thing, Strokes) and thing.width == 1.5]
    assert [y for _, (_, y) in hung] == pytest.approx([rows[f"request 0.{i}"] - 3.7 for i in (1, 2)])
    assert all(rows["request 0.0"] < top < rows["request 0.1"] for (_, top), _ in hung)
    assert "forked: requests 0.1 and 0.2" in step_sheet(trace, 0).title


def test_a_filmstrip_is_the_overview_and_some_steps():
    trace = story()
    picture = viz.serving.filmstrip(trace, [0, 8])
    for sheet in (timeline_sheet(trace), batches_sheet(trace), step_sheet(trace, 0), step_sheet(trace, 8)):
        assert sheet.title in picture.alt
    assert "Step 1:" not in picture.alt and picture.width == 780
    for draw, sheet in ((viz.serving.timeline, timeline_sheet), (viz.serving.batches, batches_sheet)):
        assert draw(trace, 3, 9).alt == sheet(trace, first=3, last=9).title


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (lambda: timeline_sheet(Trace(4, 4, 4)), "the trace has no step to draw: call engine.step()"),
        (lambda: batches_sheet(story(), first=3, last=29), "steps 3 to 29: the trace has steps 0 to 28"),
        (lambda: timeline_sheet(story(), first=4, last=3), "steps 4 to 3: the trace has steps 0 to 28"),
        (lambda: step_sheet(story(), 29), "there is no step 29 here: there are steps 0 to 28"),
        (lambda: batches_sheet(story(), at=-1), "there is no step -1 here: there are steps 0 to 28"),
        (lambda: timeline_sheet(story(), [5, 2], 5, 9), "there is no step 2 here: there are steps 5 to 9"),
        (lambda: viz.serving.filmstrip(story(), []), "a filmstrip of no step"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        draw()


def test_what_a_prefix_cache_had_and_lost_is_said():
    simulation = Simulation(num_blocks=6, block_size=4, max_batch_tokens=64, prefix_cache="radix")
    for first, length in ((1, 9), (1, 13), (2, 13)):
        simulation.submit([first] * length, 2)
        simulation.run()
    said = [step_sheet(simulation.trace, number).title for number in (0, 2, 4)]
    for title, found in zip(said, ("0 (0 of 9", "1 (8 of 13", "2 (0 of 13"), strict=True):
        assert f"admitted: request {found} found)" in title
    assert ["evicted" in title for title in said] == [False, False, True]
    assert "4 taken, 1 freed; 1 evicted" in said[2]
