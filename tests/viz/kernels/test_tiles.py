"""A vector in tiles: every number has one program, and what is masked is the padding."""

import re
from random import Random

import pytest

from kvlab.viz.kernels import tiles, tiles_sheet
from kvlab.viz.kernels.looks import MASKED, WORKING
from kvlab.viz.kernels.tiles import FORGOTTEN, MOST
from tests.viz.sheets import faults, shown, tips

PART = r"(program [\d,]+|no program): (numbers|masked) ([\d,]+)(?: to ([\d,]+))?$"


def parts(sheet):
    """(box, who, what, first, last) of every part that is drawn."""
    found = []
    for box, match in tips(sheet, PART):
        first, last = (int(each.replace(",", "")) for each in (match[3], match[4] or match[3]))
        found.append((box, match[1], match[2], first, last))
    return found


def some(seed):
    choose = Random(seed)
    tile = choose.choice([1, 2, 4, 8, 16, 32, 128, 1024])
    n = choose.randint(1, MOST * tile)
    return n, tile, choose.choice([None, None, choose.randint(0, MOST)])


@pytest.mark.parametrize("seed", range(40))
def test_every_number_is_drawn_once_and_masked_cells_are_the_padding(seed):
    n, tile, programs = some(seed)
    sheet = tiles_sheet(n, tile, programs)
    assert faults(sheet) == [] and sheet.width == 780
    started = -(-n // tile) if programs is None else programs
    numbers, masked, widths = [], [], set()
    for box, who, what, first, last in parts(sheet):
        assert first // tile == last // tile
        assert who == (f"program {first // tile}" if first // tile < started else "no program")
        (masked if what == "masked" else numbers).extend(range(first, last + 1))
        widths.add(round(box.width / (last - first + 1), 6))
        look = MASKED if what == "masked" else WORKING if who != "no program" else FORGOTTEN
        assert box.fill == look.fill
    assert sorted(numbers) == list(range(n)) and len(widths) == 1
    assert sorted(masked) == list(range(n, started * tile))
    cells = f"{len(masked):,} cell{'s' * (len(masked) > 1)}"
    assert (f"masked: {cells} beyond the end" in shown(sheet)) == bool(masked)
    heads = [text.text for text in sheet.texts() if re.match(r"program \d+$", text.text)]
    assert heads == [f"program {number}" for number in range(started)]


@pytest.mark.parametrize(("n", "tile"), [(20, 8), (98, 16), (5, 8)])
def test_small_vectors_have_their_numbers_in_their_cells(n, tile):
    sheet = tiles_sheet(n, tile)
    written = {text.text: text for text in sheet.texts() if text.text.isdigit()}
    assert sorted(map(int, written)) == list(range(n))
    for box, _, what, first, last in parts(sheet):
        for place, number in enumerate(range(first, last + 1) if what == "numbers" else ()):
            left, _, right, _ = written[str(number)].box
            cell = box.width / (last - first + 1)
            assert box.x + place * cell <= left and right <= box.x + (place + 1) * cell


@pytest.mark.parametrize(("n", "tile"), [(1_000_003, 1024), (13, 1), (10**9, 3)])
def test_of_many_programs_the_first_and_the_last_are_drawn(n, tile):
    sheet = tiles_sheet(n, tile)
    count = -(-n // tile)
    assert faults(sheet) == []
    drawn = {first // tile for _, _, _, first, _ in parts(sheet)}
    assert drawn == {*range(7), count - 2, count - 1} and f"… {count - 9:,} more …" in shown(sheet)
    assert max(last for *_, what, _, last in parts(sheet) if what == "numbers") == n - 1
    assert f"{count:,} programs" in sheet.title


def test_the_words_say_what_is_left_out():
    said = {
        (20, 8, None): "20 numbers in tiles of 8: 3 programs. The mask leaves out the last 4 cells.",
        (16, 8, None): "16 numbers in tiles of 8: 2 programs. No cell is masked.",
        (20, 8, 2): "20 numbers in tiles of 8: 2 programs. The last 4 numbers have no program, and are never "
        "computed.",
    }
    for setting, words in said.items():
        assert tiles_sheet(*setting).title == tiles(*setting).alt == words
    assert "masked: 4 cells beyond the end" in shown(tiles_sheet(20, 8))
    assert "no program has 4 numbers" in shown(tiles_sheet(20, 8, 2))
    assert "masked" not in shown(tiles_sheet(16, 8))


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [((0, 8), "n is 0"), ((8, 0), "tile is 0"), ((8, 2.0), "tile is 2.0"), ((8, 2, -1), "programs is -1")],
)
def test_tiles_that_cannot_be_are_refused(setting, wrong):
    with pytest.raises(ValueError, match=f"{wrong}: give a whole number"):
        tiles(*setting)
