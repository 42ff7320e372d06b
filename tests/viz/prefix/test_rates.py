"""Hit rates against pools: a point is as high as its rate, and nothing overlaps."""

from random import Random

import pytest

from kvlab.viz.prefix import rates_sheet
from kvlab.viz.prefix.rates import HIGH, TOP
from kvlab.viz.sheet import Shape, Strokes
from kvlab.viz.show import BLUE, VERMILION
from tests.viz.sheets import faults, shown

POOLS = [1024 * 2**power for power in range(6)]


def some(seed):
    """-> (rates, the chosen pool, the best rate)."""
    choose = Random(seed)
    small, rates = choose.randrange(4), sorted(choose.random() for _ in POOLS)
    if seed % 5 == 0:
        rates = [choose.choice([0.0, 1.0, -0.3])] * len(POOLS)
    told = [
        (slots, None if n < small else rate) for n, (slots, rate) in enumerate(zip(POOLS, rates, strict=True))
    ]
    return told, choose.choice(POOLS), max(rates[-1], 0)


def marks(sheet, color=BLUE):
    """The middle of each."""
    shapes = [each for each in sheet.things if isinstance(each, Shape) and color in (each.fill, each.stroke)]
    points = [[*zip(*shape.points, strict=True)] for shape in shapes]
    return [((min(x) + max(x)) / 2, (min(y) + max(y)) / 2) for x, y in points]


@pytest.mark.parametrize("seed", range(30))
def test_a_point_is_as_high_as_its_rate_and_nothing_overlaps(seed):
    rates, at, best = some(seed)
    sheet = rates_sheet(rates, at, best, "A title")
    assert faults(sheet) == [] and sheet.width == 780
    labels = {text.text: text for text in sheet.texts()}
    xs = {slots: labels[f"{slots:,}"].x for slots, _ in rates}
    wanted = [(xs[slots], TOP + HIGH * (1 - max(rate, 0))) for slots, rate in rates if rate is not None]
    assert marks(sheet) == [pytest.approx(each) for each in wanted]
    assert labels[f"{at:,}"].bold and sum(text.bold for text in labels.values()) <= 3
    chosen = dict(rates)[at]
    assert (chosen is None) == bool(marks(sheet, VERMILION))
    assert chosen is None or any(text.bold and text.text == f"{chosen:.1%}" for text in sheet.texts())
    assert ("too small" in shown(sheet)) == any(rate is None for _, rate in rates)
    (dashed,) = [each for each in sheet.things if isinstance(each, Strokes) and each.dash == (5, 3)]
    assert dashed.lines[0][0][1] == TOP + HIGH * (1 - best)


def test_the_words_are_the_numbers():
    sheet = rates_sheet([(1024, None), (2048, 0.25), (4096, 0.5)], 2048, 0.75, "Chats")
    numbers = "1,024 slots none, 2,048 slots 25.0%, 4,096 slots 50.0%"
    assert sheet.title == (
        f"Chats. Tokens found against slots of the pool: {numbers}. In a pool without end 75.0%."
    )
