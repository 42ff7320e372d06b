"""Stepping through a trace: the slider's value is the number of the step that is shown."""

import re
from html import unescape

import pytest

from kvlab.engine.trace import Trace
from kvlab.viz.serving import batches_sheet, events, step_sheet, timeline_sheet
from kvlab.widgets import SchedulerTimeline
from tests.viz.traces import crowd, story, walk
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")


def drawn(page):
    """What an answer's picture says to a screen reader."""
    return unescape(re.search("<svg.*?<title>(.*?)</title>", page).group(1))


def said(trace, number, names=None):
    sheets = [timeline_sheet(trace, names=names), batches_sheet(trace), step_sheet(trace, number, names)]
    return " ".join(sheet.title for sheet in sheets)


def test_the_slider_shows_a_step():
    trace = story()
    widget, first = live(SchedulerTimeline(trace))
    assert drawn(first) == said(trace, 0) and "kv-scheduler-timeline" in widget._dom_classes
    step = field(widget, "kv-step")
    assert (step.min, step.max) == (0, 28)
    pages = set()
    for number in reversed(range(len(trace))):
        step.value = number
        pages.add(page := field(widget, "kv-answer").value)
        assert drawn(page) == said(trace, number)
    assert len(pages) == len(trace)
    names = {3: "the last one"}
    _, page = live(SchedulerTimeline(trace, at=8, names=names))
    assert drawn(page) == said(trace, 8, names) and "the last one" in words(page)


@pytest.mark.parametrize("seed", range(2))
def test_buttons_go_a_step_on_or_to_the_next_event_and_stop_at_the_ends(seed):
    trace, _ = walk(seed)
    widget, _ = live(SchedulerTimeline(trace, at=1))
    step, last = field(widget, "kv-step"), len(trace) - 1

    def press(key):
        field(widget, key).click()
        assert drawn(field(widget, "kv-answer").value) == said(trace, step.value)
        return step.value

    assert [press("kv-next"), press("kv-previous"), press("kv-previous")] == [2, 1, 0]
    assert field(widget, "kv-previous").disabled and field(widget, "kv-previous-event").disabled
    ahead = [number for number in events(trace) if number > 0]
    assert len(ahead) > 4 and [press("kv-next-event") for _ in ahead] == ahead
    assert field(widget, "kv-next-event").disabled and not field(widget, "kv-previous-event").disabled
    back = [number for number in events(trace) if number < ahead[-1]][::-1]
    assert [press("kv-previous-event") for _ in back] == back
    step.value = last
    assert field(widget, "kv-next").disabled and press("kv-next") == last


def test_without_a_kernel_there_are_a_table_and_a_picture():
    trace = story()
    page = SchedulerTimeline(trace)
    data, _ = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == page.text() and "<svg" not in data["text/html"]
    for still in (" ".join(page.text().split()), words(page.html())):
        assert "29 steps of an engine with 12 blocks of 4 slots and a budget of 16 tokens a step" in still
        assert "8 2 0 3 9 preempted: request 2 (15 tokens given up): 1 block was missing" in still
        assert "14 1 15 2 10 admitted: request 2; ended: request 1 (length)" in still
    assert [row[0] for row in page.table().rows] == events(trace)
    alt = page.static_figure().alt
    assert all(step_sheet(trace, number).title in alt for number in (0, 8, 13))


def test_a_trace_in_which_nothing_happens_has_a_picture_too():
    trace = crowd(1, 4)
    trace.steps[0].submitted, trace.steps[0].admitted = [], []
    widget, _ = live(SchedulerTimeline(trace, at=2))
    assert field(widget, "kv-next-event").disabled and field(widget, "kv-previous-event").disabled
    assert SchedulerTimeline(trace, at=2).table().rows == []
    assert step_sheet(trace, 2).title in SchedulerTimeline(trace, at=2).static_figure().alt


@pytest.mark.parametrize(
    ("trace", "at", "wrong"),
    [
        (story, 29, "there is no step 29 here: there are steps 0 to 28"),
        (story, -1, "there is no step -1 here"),
        (lambda: Trace(4, 4, 4), 0, "the trace has no step to draw"),
    ],
)
def test_a_wrong_argument_fails_where_it_is_written(trace, at, wrong):
    with pytest.raises(ValueError, match=wrong):
        SchedulerTimeline(trace(), at)
