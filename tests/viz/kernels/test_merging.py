"""Parts of a softmax merged: what comes out is the softmax of all, and its numbers are those drawn."""

import math
from random import Random

import pytest

from kvlab.viz.kernels import merging, merging_sheet
from kvlab.viz.kernels.merging import joined, said
from tests.viz.sheets import faults, shown, tips


def some(seed, base):
    """Scores and values in parts -> (parts, all scores, all values)."""
    choose = Random(seed)
    parts, scores, values = [], [], []
    for number in range(choose.randint(1, 6)):
        here = [choose.gauss(0, 6) for _ in range(choose.randint(1, 9))]
        new = [choose.gauss(0, 1) for _ in here]
        weights = [base ** (score - max(here)) for score in here]
        part = (f"part {number}", max(here), sum(weights))
        parts.append((*part, sum(w * v for w, v in zip(weights, new, strict=True))))
        scores, values = scores + here, values + new
    return parts, scores, values


@pytest.mark.parametrize("base", [math.e, 2])
@pytest.mark.parametrize("seed", range(20))
def test_what_comes_out_is_the_softmax_of_all(seed, base):
    parts, scores, values = some(seed, base)
    sheet = merging_sheet(parts, base)
    assert faults(sheet) == [] and sheet.width == 780
    weights = [base ** (score - max(scores)) for score in scores]
    mixed = sum(w * v for w, v in zip(weights, values, strict=True))
    numbers = f"highest {said(max(scores))}, total {said(sum(weights))}, result {said(mixed)}"
    last = tips(sheet, f"(.*): {numbers}$")[-1][0]
    assert last.y == max(box.y for box, _ in tips(sheet, r".*: highest"))
    assert len(tips(sheet, r".*: highest")) == 2 * len(parts) - 1
    assert f"= {said(mixed / sum(weights))}." in shown(sheet)
    names = [text.text for text in sheet.texts() if text.text in ("merged", "all")]
    assert names == (["merged"] * (len(parts) - 2) + ["all"] if len(parts) > 1 else [])
    assert all(f"{part[0]}: highest {said(part[1])}, total {said(part[2])}" in sheet.title for part in parts)


def test_two_parts_by_hand():
    part, factors = joined(("a", 1.0, 3.0, 2.0), ("b", 3.0, 1.5, -1.0), 2)
    assert factors == (0.25, 1) and part == ("a+b", 3.0, 0.25 * 3 + 1.5, 0.25 * 2 - 1)
    sheet = merging_sheet([("a", 1, 3), ("b", 3, 1.5)], 2)
    assert "a by 0.25 and b by 1 give a+b: highest 3, total 2.25." in sheet.title
    written = {text.text: text for text in sheet.texts()}
    assert written["× 0.25"].bold and not written["× 1"].bold
    a, b = (tips(sheet, f"{name}: ")[0][0] for name in "ab")
    for box, words in ((a, "× 0.25"), (b, "× 1")):
        assert box.x < written[words].x < box.x + box.width and written[words].y > box.y + box.height
    assert "2^(its highest" in shown(sheet) and "e^(its highest" in shown(merging_sheet([("a", 1, 3)] * 2))


@pytest.mark.parametrize("count", range(1, 7))
def test_numbers_stay_in_their_boxes(count):
    sheet = merging_sheet(
        [(f"tokens {n}00 to {n}99", -12.345 * n, 1 + 123.4 * n, -0.001234) for n in range(count)]
    )
    assert faults(sheet) == []
    boxes = [box for box, _ in tips(sheet, r".*: highest")]
    for box in boxes:
        inside = [
            t for t in sheet.texts() if box.y < t.y <= box.y + box.height and box.x < t.x < box.x + box.width
        ]
        assert len(inside) == 7  # a name, and three pairs
        for text in inside:
            left, _, right, _ = text.box
            assert box.x <= left and right <= box.x + box.width, text.text


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (-2.5, "−2.5"), (1e-9, "about 0"), (0.03019, "0.0302"), (1234.5, "1,234")]
)
def test_numbers_have_three_digits(number, words):
    assert said(number) == words


def test_the_picture_says_the_same():
    parts = some(3, math.e)[0]
    assert merging(parts).alt == merging_sheet(parts).title


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([], "0 parts: there is room for 1 to 6"),
        ([("a", 1, 1)] * 7, "7 parts"),
        ([("a", 1)], "a part is"),
        ([("a", 1, 1), ("b", 1, 1, 0)], "or all with a fourth"),
        ([("a", 1, 0.5)], "at least 1"),
        ([("a", math.nan, 1)], "finite"),
        ([("a", -math.inf, 1)], "finite"),
    ],
)
def test_parts_that_cannot_be_are_refused(parts, wrong):
    with pytest.raises(ValueError, match=wrong):
        merging(parts)
