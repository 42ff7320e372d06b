"""Memory given out in one piece for each request: parts lie where they should, and are told apart."""

import re

import pytest

from kvlab import viz
from kvlab.viz.blocks import lanes
from kvlab.viz.blocks.lanes import LOOKS
from tests.viz.sheets import faults, shown, tips

PARTS = [
    (0, 6, "tokens", "A"),
    (6, 2, "reserved", "to come"),
    (8, 10, "internal", "never used by A"),
    (20, 1, "tokens", "B"),
    (21, 1, "reserved", "B, to come"),
    (22, 1, "internal", "B, lost"),
    (30, 34, "free", ""),
]


@pytest.mark.parametrize("scale", [1, 32])
def test_lanes_have_their_parts_where_they_lie(scale):
    parts = [(scale * first, scale * length, kind, label) for first, length, kind, label in PARTS]
    rows = [("One request after the other", parts), ("Empty", []), ("In any order", parts[::-1])]
    sheet, slots = lanes(rows, 64 * scale), 64 * scale
    assert faults(sheet) == [] and sheet.width == 780
    unit = 760 / slots
    found = tips(sheet, r"(.*): (?:[\d,]+) slots? from (\d+)$")
    assert len(found) == 2 * len(parts)
    for (box, match), (first, length, kind, label) in zip(found, [*parts, *parts], strict=True):
        assert (match.group(1), int(match.group(2))) == (label or kind, first)
        assert (box.x, box.width) == pytest.approx((10 + first * unit, length * unit))
    assert all(shown(sheet).count(label) >= 2 for *_, label in parts if label)
    numbers = f"{7 * scale} tokens, {3 * scale} reserved, {11 * scale} never used, {43 * scale:,} free"
    assert numbers in sheet.title and f"Empty: {64 * scale:,} free." in sheet.title
    for words in ("reserved, for tokens to come", "internal fragmentation", "external fragmentation"):
        assert words in shown(sheet)
    assert len({look.pattern for kind, look in LOOKS.items() if kind != "free"}) == 3
    picture = viz.memory_lanes(rows, slots)
    assert picture.alt == sheet.title


@pytest.mark.parametrize("slots", [1, 7, 9, 100, 1000, 131072])
def test_lanes_of_any_length_have_round_numbers_below(slots):
    sheet = lanes([("All " + "very " * 40 + "full", [(0, slots, "tokens", "a label " * 30)])], slots)
    assert faults(sheet) == [] and f"{slots:,}" in shown(sheet)


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (
            lambda: viz.memory_lanes([("A", [(0, 2, "lost", "")])], 4),
            "A: there is no kind 'lost'; known: tokens",
        ),
        (lambda: viz.memory_lanes([("A", [(0, 5, "free", "")])], 4), "A: free in slots 0 to 5 do not fit"),
        (lambda: viz.memory_lanes([("A", [(0, 2, "free", ""), (1, 1, "tokens", "")])], 4), "after slot 2"),
        (lambda: viz.memory_lanes([("A", [(0, 0, "free", "")])], 4), "do not fit"),
        (lambda: viz.memory_lanes([], 4), "at least one lane"),
        (lambda: viz.memory_lanes([("A", [])], 0), "at least one lane"),
    ],
)
def test_lanes_that_cannot_be_are_refused(draw, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        draw()
