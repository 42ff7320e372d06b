"""Multiprocessors over turns: as many are busy as there are programs."""

import re
from random import Random

import pytest

from kvlab.kernels import splits
from kvlab.viz.kernels import occupancy, occupancy_sheet
from kvlab.viz.kernels.looks import IDLE, WORKING, percent
from kvlab.viz.kernels.occupancy import MOST
from tests.viz.sheets import faults, shown, tips

STRIP = r"turn (\d+): (\d+) of (\d+) busy$"


def strips(sheet):
    """[(turn, width of what is busy, width of what is idle)] in the order in which they are drawn."""
    boxes = tips(sheet, STRIP)
    assert [box.fill for box, _ in boxes] == [WORKING.fill, IDLE.fill] * (len(boxes) // 2)
    pairs = zip(boxes[::2], boxes[1::2], strict=True)
    return [(int(match[1]), busy.width, idle.width) for (busy, match), (idle, _) in pairs]


@pytest.mark.parametrize("seed", range(30))
def test_as_many_cells_are_busy_as_there_are_programs(seed):
    choose = Random(seed)
    count = choose.choice([1, 2, 16, 108, 132, 148])
    programs = choose.randint(1, MOST * count)
    sheet = occupancy_sheet([("A case", programs)], count)
    assert faults(sheet) == [] and sheet.width == 780
    turns = strips(sheet)
    (unit,) = {round((busy + idle) / count, 6) for _, busy, idle in turns}
    assert [turn for turn, *_ in turns] == list(range(1, -(-programs // count) + 1))
    assert sum(busy for _, busy, _ in turns) == pytest.approx(programs * unit)
    assert all(idle == 0 for *_, idle in turns[:-1])
    share = splits.occupancy(programs, count)
    busy = sum(busy for _, busy, _ in turns) / sum(busy + idle for _, busy, idle in turns)
    assert busy == pytest.approx(share) and f"{percent(share)} busy" in shown(sheet)


@pytest.mark.parametrize("programs", [1321, 524_288, 132 * 4000])
def test_of_many_turns_the_first_and_the_last_are_drawn(programs):
    sheet, turns = occupancy_sheet([("Many", programs)], 132), -(-programs // 132)
    assert faults(sheet) == []
    assert [turn for turn, *_ in strips(sheet)] == [1, 2, 3, 4, 5, turns - 1, turns]
    assert f"… {turns - 7:,} turn" in shown(sheet) and "more, all busy" in shown(sheet)
    _, busy, idle = strips(sheet)[-1]
    assert round(132 * busy / (busy + idle)) == programs - 132 * (turns - 1)


def test_cases_stand_below_each_other_and_the_words_say_all_of_them():
    rows = [("1 sequence, 8 KV heads, 1 part", 8), ("the same in 17 parts", 136), ("many texts", 1056)]
    sheet = occupancy_sheet(rows, 132)
    assert faults(sheet) == []
    assert (
        sheet.title
        == occupancy(rows, 132).alt
        == (
            "132 multiprocessors, busy or idle. "
            "1 sequence, 8 KV heads, 1 part: 8 programs in 1 turn, 6.06% busy. "
            "the same in 17 parts: 136 programs in 2 turns, 51.5% busy. "
            "many texts: 1,056 programs in 8 turns, 100% busy."
        )
    )
    places = [text.y for label, _ in rows for text in sheet.texts() if text.text == label]
    assert places == sorted(places) and len(places) == 3
    assert len(strips(sheet)) == 1 + 2 + 8
    assert re.search(r"a cell: one of 132 multiprocessors", shown(sheet))


def test_a_long_label_is_cut():
    assert faults(occupancy_sheet([("a very long label " * 20, 7)], 132)) == []


@pytest.mark.parametrize(
    ("share", "words"), [(8 / 132, "6.06%"), (1, "100%"), (0.99999, "99.9%"), (0.5, "50%"), (1 / 3, "33.3%")]
)
def test_nearly_all_is_not_all(share, words):
    assert percent(share) == words


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (([], 132), "there is no case"),
        (([("a", 0)], 132), "programs is 0"),
        (([("a", 1.5)], 132), "programs is 1.5"),
        (([("a", 1)], 0), "multiprocessors is 0"),
    ],
)
def test_cases_that_cannot_be_are_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        occupancy(*arguments)
