"""A GPU drawn: as many multiprocessors as it has, and every number that was given."""

from itertools import combinations

import pytest

from kvlab.viz.kernels import gpu, gpu_sheet
from kvlab.viz.sheet import overlap
from tests.viz.sheets import faults, shown, tips

SIZES = {
    "registers": "256 KiB",
    "shared": "227 KiB",
    "cache": "50 MB",
    "memory": "80 GB",
    "bandwidth": "3.35 TB/s",
}


def edges(box):
    return box.x, box.y, box.x + box.width, box.y + box.height


@pytest.mark.parametrize("count", [1, 2, 20, 108, 132, 148, 304])
def test_there_is_a_square_for_each_multiprocessor(count):
    sheet = gpu_sheet("A GPU", count, **SIZES)
    assert faults(sheet) == [] and sheet.width == 780
    squares = tips(sheet, r"multiprocessor (\d+)$")
    assert [int(match.group(1)) for _, match in squares] == list(range(count))
    ((cache, _),) = tips(sheet, "L2 cache")
    boxes = [edges(box) for box, _ in squares]
    assert not any(overlap(one, other) for one, other in combinations([*boxes, edges(cache)], 2))
    assert all(cache.y <= top and bottom <= cache.y + cache.height for _, top, _, bottom in boxes)
    assert len({(round(box.width, 6), round(box.height, 6)) for box, _ in squares}) == 1
    assert squares[0][0].width > 8


def test_all_numbers_are_written_and_said():
    sheet = gpu_sheet("NVIDIA H100 SXM", 132, **SIZES)
    for words in ("NVIDIA H100 SXM", "132 multiprocessors", *SIZES.values()):
        assert words in shown(sheet) and words in sheet.title
    assert "not to scale" in shown(sheet) and "not to scale" in sheet.title
    assert gpu("NVIDIA H100 SXM", 132, **SIZES).alt == sheet.title


def test_words_stay_in_their_boxes():
    sheet = gpu_sheet("A GPU", 132, **SIZES)
    for text in sheet.texts():
        if text.fill == "#FFFFFF" or "registers" in text.text or "shared" in text.text:
            left, top, right, bottom = text.box
            assert any(
                box.x <= left and right <= box.x + box.width and box.y <= top and bottom <= box.y + box.height
                for box, _ in tips(sheet, "arithmetic|registers|shared|weights|keys")
            ), text.text


@pytest.mark.parametrize("count", [0, -1, 1.5, "many", None])
def test_a_number_of_multiprocessors_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match=f"multiprocessors is {count!r}: give a whole number, at least 1"):
        gpu("A GPU", count, **SIZES)
