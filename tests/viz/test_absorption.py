"""The bars of latent attention's three forms: to scale, described, and with no text over another."""

from itertools import pairwise

import pytest

from kvlab.viz import memory as viz
from kvlab.viz.memory.absorption import COLUMNS
from kvlab.viz.sheet import Box
from tests.viz.sheets import faults, shown

NAMES = ("expanded cache", "expanded each step", "absorbed")


def forms(flops=(300, 60_000, 900), held=(7000, 100, 100), seconds=(4e-4, 6e-4, 1e-6), **more):
    limits = ("reading", "arithmetic", "reading")
    return [
        viz.FormBars(name, "keeps something", *numbers, limit, numbers[-1] == min(seconds), **more)
        for name, limit, numbers in zip(
            NAMES, limits, zip(flops, held, [f"{n} B" for n in held], seconds, strict=True), strict=True
        )
    ]


def drawn(bars):
    return viz.form_bars(bars, "A model, one layer", ["This is so."], "Not counted: the rest.")


def boxes(sheet):
    """The lengths of the bars of each column, from top to bottom."""
    bars = [thing for thing in sheet.things if isinstance(thing, Box)]
    return [[bar.width for bar in bars if bar.x == x] for x in COLUMNS]


def test_bars_are_to_scale():
    for lengths, numbers in zip(
        boxes(drawn(forms())), [(300, 60_000, 900), (7000, 100, 100), (4, 6, 0.01)], strict=True
    ):
        shares = [length / max(lengths) for length in lengths]
        assert shares == pytest.approx([number / max(numbers) for number in numbers])


def test_the_quickest_is_marked_in_words():
    sheet = drawn(forms())
    assert "1.00 µs, quickest" in shown(sheet) and shown(sheet).count("quickest") == 1
    assert "absorbed: 0.0009 MFLOP, 100 B of cache, 1.00 µs, limited by reading, the quickest" in sheet.title
    assert shown(sheet).count("limited by reading") == 2 and shown(sheet).count("limited by arithmetic") == 1
    alike = drawn(forms(seconds=(1e-6, 1e-6, 2e-6)))
    assert shown(alike).count("1.00 µs, quickest") == 2


def test_without_a_rate_there_is_no_time():
    bars = [viz.FormBars(name, "keeps", 5, 6, "6 B") for name in NAMES]
    sheet = drawn(bars)
    assert boxes(sheet)[2] == [] and len(boxes(sheet)[1]) == 3
    assert "least time" not in shown(sheet) and "limited by" not in shown(sheet) + sheet.title
    assert faults(sheet) == []


def test_what_is_said_stands_below_and_in_the_title():
    sheet = drawn(forms())
    for words in ("This is so.", "Not counted: the rest."):
        assert words in shown(sheet) and words in sheet.title
    assert sheet.title.startswith("A model, one layer. expanded cache: 0.0003 MFLOP, 7000 B of cache, 400 µs")


@pytest.mark.parametrize("seconds", [9.99e-8, 0.999e-6, 0.0999, 99.9, 7199])
@pytest.mark.parametrize("flops", [1, 99_900_000, 999_999_999_999])
def test_the_longest_words_fit(seconds, flops):
    bars = [
        viz.FormBars(name, "keeps", flops, 9, "1,023.99 MiB", seconds, "arithmetic", True) for name in NAMES
    ]
    assert faults(drawn(bars)) == []
    ends = [(text.box[2], text.y) for text in drawn(bars).texts() if text.text.endswith(("FLOP", "iB"))]
    assert all(right < COLUMNS[1] or COLUMNS[1] < right < COLUMNS[2] for right, _ in ends)
    assert all(later > earlier for earlier, later in pairwise(COLUMNS))


@pytest.mark.parametrize(
    ("flops", "words"), [(1174683648, "1.17 GFLOP"), (33_636_352, "33.6 MFLOP"), (2.47e12, "2.47 TFLOP")]
)
def test_flops_in_words(flops, words):
    assert viz.flop_words(flops) == words
