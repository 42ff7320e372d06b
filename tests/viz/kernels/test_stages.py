"""Shared memory against stages: bars as high as what they stand for."""

from random import Random

import pytest

from kvlab.viz.kernels import stage_bars, stage_bars_sheet
from kvlab.viz.memory.lines import plain
from kvlab.viz.sheet import Strokes, Text
from tests.viz.sheets import faults, shown, tips

AHEAD = {1: 22, 2: 38, 3: 70, 4: 102}
SAME = {1: 22, 2: 38, 3: 38.25, 4: 38.25}


def some(seed):
    choose = Random(seed)
    names = ["a", "a variant of it", "another", "last"][: choose.randint(1, 4)]
    series = {
        name: {n: choose.uniform(0, 200) for n in range(1, 9) if choose.random() < 0.8} for name in names
    }
    return {name: sizes or {1: 0.5} for name, sizes in series.items()}, choose.choice([None, 227, 64])


@pytest.mark.parametrize("seed", range(30))
def test_bars_are_as_high_as_their_sizes(seed):
    series, limit = some(seed)
    sheet = stage_bars_sheet(series, limit)
    assert faults(sheet) == [] and sheet.width == 780
    bars = iter(sorted(tips(sheet, r"(.*), (\d+) stages?: (\S+) KiB$"), key=lambda bar: bar[0].x))
    texts = [thing for thing in sheet.things if isinstance(thing, Text)]
    base, scales = None, []
    for number in sorted({n for sizes in series.values() for n in sizes}):
        for name, sizes in series.items():
            if number in sizes:
                box, match = next(bars)
                assert match.groups() == (name, str(number), plain(sizes[number]))
                base = base or box.y + box.height
                assert box.y + box.height == pytest.approx(base)
                scales.append((box.height, sizes[number]))
                middle = box.x + box.width / 2
                above = [text for text in texts if abs(text.x - middle) < 5 and text.y < box.y]
                assert plain(sizes[number]) in [text.text for text in above]
    assert next(bars, None) is None
    highest, most = max(scales)
    assert all(high == pytest.approx(size * highest / most, abs=1e-6) for high, size in scales)
    dashed = [each for each in sheet.things if isinstance(each, Strokes) and each.dash]
    assert len(dashed) == bool(limit)
    if limit:
        assert dashed[0].lines[0][0][1] == pytest.approx(base - limit * highest / most)
        assert dashed[0].lines[0][0][1] > 40  # below the title
        assert f"There are {limit} KiB." in sheet.title and f"gives a program: {limit}" in shown(sheet)


def test_the_words_are_the_numbers():
    series = {"a turn ahead": AHEAD, "in the same turn": SAME}
    said = (
        "Shared memory of a program in KiB, by stages. a turn ahead: 1 stage 22, 2 stages 38, 3 stages 70, "
        "4 stages 102; in the same turn: 1 stage 22, 2 stages 38, 3 stages 38.2, 4 stages 38.2."
    )
    sheet = stage_bars_sheet(series)
    assert sheet.title == stage_bars(series).alt == said
    assert "a turn ahead" in shown(sheet) and "in the same turn" in shown(sheet)
    looks = {box.fill for box, _ in tips(sheet, r".*, \d stages?: ")}
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (({},), "nothing to draw"),
        (({"a": {}},), "nothing to draw"),
        (({name: AHEAD for name in "abcde"},), "5 variants cannot be told apart; draw 4"),
        (({"a": {1: -1}},), "the smallest size is -1 KiB"),
        (({"a": AHEAD}, 0), "the limit 0"),
    ],
)
def test_bars_that_cannot_be_are_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        stage_bars(*arguments)
