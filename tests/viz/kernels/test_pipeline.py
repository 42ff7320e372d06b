"""A loop in time: nothing begins before what it needs is there, and bars lie where the schedule says."""

from itertools import pairwise, product

import pytest

from kvlab.viz.kernels import pipeline, pipeline_sheet
from kvlab.viz.kernels.pipeline import TIMES, distance, schedule
from tests.viz.sheets import faults, shown, tips

CASES = list(product(range(1, 7), ("ahead", "same turn"), (1, 2, 6, 12)))


@pytest.mark.parametrize(("stages", "way", "turns"), CASES)
def test_nothing_begins_before_what_it_needs(stages, way, turns):
    loop = schedule(stages, way, turns)
    assert len(loop) == turns
    for turn in loop:
        for name, (start, end) in zip(TIMES, (turn.look_up, turn.load, turn.product), strict=True):
            assert start >= 0 and end - start == TIMES[name]
        assert turn.look_up[1] <= turn.load[0] and turn.load[1] <= turn.product[0]
    assert all(one.product[1] <= other.product[0] for one, other in pairwise(loop))
    ahead = distance(stages, way)
    for turn in loop:  # no more tiles are on their way than have room
        on_their_way = [each for each in loop if each.load[0] <= turn.load[0] < each.product[0]]
        assert len(on_their_way) <= max(ahead, 1)


def test_the_loops_by_hand():
    took = {
        case: schedule(*case, 6)[-1].product[1] for case in product((1, 2, 3, 4, 5), ("ahead", "same turn"))
    }
    # The first products are there after 8; then a turn takes 6 with one stage, 4 with two, 2 with three.
    assert [took[stages, "ahead"] for stages in (1, 2, 3, 4)] == [38, 28, 18, 18]
    # A look-up of the same turn is waited for, too; with 3 and 4 stages loads run one turn ahead.
    assert [took[stages, "same turn"] for stages in (1, 2, 3, 4, 5)] == [48, 38, 28, 28, 18]


def test_loads_share_the_stages_with_look_ups_of_the_same_turn():
    assert [distance(stages, "ahead") for stages in range(1, 7)] == [0, 1, 2, 3, 4, 5]
    assert [distance(stages, "same turn") for stages in range(1, 7)] == [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(("stages", "way", "turns"), CASES)
def test_bars_lie_where_the_schedule_says(stages, way, turns):
    sheet = pipeline_sheet([(stages, way), (1, "same turn")], turns)
    assert faults(sheet) == [] and sheet.width == 780
    loop = schedule(stages, way, turns)
    bars = tips(sheet, r"tile (\d+), (page numbers|keys and values|products): (\d+) to (\d+)$")[: 3 * turns]
    scales = set()
    for box, match in bars:
        part = {"page numbers": "look_up", "keys and values": "load", "products": "product"}[match[2]]
        start, end = getattr(loop[int(match[1])], part)
        assert (int(match[3]), int(match[4])) == (start, end)
        scales.add(round(box.width / (end - start), 6))
        assert box.x == pytest.approx(78 + start * box.width / (end - start))
    assert len(scales) == 1 and len({(match[1], match[2]) for _, match in bars}) == 3 * turns
    row = [box for box, _ in tips(sheet, r"(products|waits): ")]
    row = sorted((box.x, box.x + box.width) for box in row if box.y == row[0].y)
    (unit,) = scales
    assert row[0][0] == 78 and row[-1][1] == pytest.approx(78 + loop[-1].product[1] * unit)
    assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(row))  # busy or waiting, no gap


def test_the_words_say_what_it_takes():
    cases = [(1, "ahead"), (3, "ahead"), (3, "same turn")]
    sheet = pipeline_sheet(cases)
    assert "schematic" in sheet.title and "schematic" in shown(sheet)
    for words in ("1 stage: each turn waits for its own loads", "3 stages: loads run 2 turns ahead"):
        assert words in sheet.title and words in shown(sheet)
    assert (
        "loads run 1 turn ahead, as written: page numbers looked up in the same turn: 6 turns take 28"
        in sheet.title
    )
    assert "a look-up takes 2 units, loads 4, products 2" in sheet.title
    assert {"38", "18", "28"} <= {text.text for text in sheet.texts() if text.bold}
    assert pipeline(cases).alt == sheet.title


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (([],), "draw one case at least"),
        (([(1, "ahead")], 0), "turns is 0"),
        (([(1, "ahead")], 13), "12 turns at most"),
        (([(0, "ahead")],), "stages is 0"),
        (([(1, "behind")],), "looked up 'behind'; known: ahead, same turn"),
    ],
)
def test_loops_that_cannot_be_are_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        pipeline(*arguments)
