"""Stepping through a log: the slider's value is the number of the events that are shown."""

import re
from html import unescape

import pytest

from kvlab.paging import BlockPool, Log
from kvlab.viz.blocks import blocks_sheet, stops
from kvlab.viz.blocks.words import described
from kvlab.widgets import BlockStepper
from tests.viz.walks import texts_for, walk
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")


def drawn(page):
    """What an answer's picture says to a screen reader."""
    return unescape(re.search("<svg.*?<title>(.*?)</title>", page).group(1))


def test_the_slider_shows_the_moment_after_so_many_events():
    log = walk(1)
    widget, first = live(BlockStepper(log))
    assert drawn(first) == described(log.at(0)) and "kv-block-stepper" in widget._dom_classes
    event = field(widget, "kv-event")
    assert (event.min, event.max) == (0, len(log.events))
    for number in range(len(log.events) + 1):
        event.value = number
        page = field(widget, "kv-answer").value
        assert drawn(page) == described(log.at(number))
        assert blocks_sheet(log.at(number)).svg() in page


def test_buttons_go_an_event_on_or_to_the_next_mark_and_stop_at_the_ends():
    log = walk(1)
    widget, _ = live(BlockStepper(log, at=1))
    event = field(widget, "kv-event")

    def press(key):
        field(widget, key).click()
        assert drawn(field(widget, "kv-answer").value) == described(log.at(event.value))
        return event.value

    assert [press("kv-next"), press("kv-next"), press("kv-previous")] == [2, 3, 2]
    ends = [number for number in stops(log) if number > 2]
    assert len(ends) > 2 and [press("kv-next-mark") for _ in ends] == ends
    assert field(widget, "kv-next").disabled and field(widget, "kv-next-mark").disabled
    assert press("kv-next") == press("kv-next-mark") == len(log.events)
    back = [*stops(log)[-2::-1], 0]
    assert [press("kv-previous-mark") for _ in back] == back
    assert field(widget, "kv-previous").disabled and not field(widget, "kv-next").disabled
    assert press("kv-previous") == 0


def test_a_log_without_marks_has_no_buttons_for_them():
    widget, _ = live(BlockStepper(walk(1, marks=False)))
    assert field(widget, "kv-next") and field(widget, "kv-next-mark") is None
    empty = Log.of(BlockPool(4, 4))
    widget, page = live(BlockStepper(empty))
    assert "Nothing has happened yet" in drawn(page) and field(widget, "kv-next").disabled


def test_texts_are_in_the_slots():
    log = walk(6)
    number, texts = len(log.events), texts_for(log)
    _, page = live(BlockStepper(log, at=number, texts=texts))
    assert blocks_sheet(log.at(number), texts).svg() in page and "·cat" in words(page)


def test_without_a_kernel_there_are_a_table_and_a_picture():
    log = walk(1)
    page = BlockStepper(log, texts=texts_for(log))
    data, _ = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == page.text() and "<svg" not in data["text/html"]
    for still in (" ".join(page.text().split()), words(page.html())):
        assert f"{len(log.events)} events in a pool of 10 blocks of 4 slots" in still
        for number in stops(log):
            moment = log.at(number)
            free, stored = 10 - len(moment.counts()), sum(moment.filled().values())
            shared = sum(count > 1 for count in moment.counts().values())
            row = f"{number} {free} {10 - free} {shared} {stored} {moment.waste()}"
            assert f"{' '.join(moment.mark.split())} {row}" in still
    alt = page.static_figure().alt
    assert all(" ".join(described(log.at(number)).split()) in alt for number in stops(log))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": 10**6}, "asked was for the state after 1000000"),
        ({"at": -1}, "asked was for the state after -1"),
        ({"texts": {"nobody": []}}, "no table is called nobody: there are .*A"),
        ({"texts": {"A": []}}, "A comes to hold \\d+ tokens?, and has 0 texts"),
    ],
)
def test_a_wrong_argument_fails_where_it_is_written(wrong, said):
    with pytest.raises(ValueError, match=said):
        BlockStepper(walk(1), **wrong)
