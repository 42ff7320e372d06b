"""Programs and pages: a cell where a program read a page, filled as far as it did, and the sums."""

from random import Random

import pytest

from kvlab.viz.kernels import touched, touched_sheet
from kvlab.viz.show import BLUE
from tests.viz.sheets import faults, shown, tips

TABLES = {0: [3, 7, 1, 10], 1: [0, 5]}
STORED = {3: 4096, 7: 4096, 1: 4096, 10: 2304, 0: 4096, 5: 4096}


def heads(count):
    """Every head of both sequences reads all of the sequence's pages."""
    return [
        (f"sequence {number}, head {head}", {page: STORED[page] for page in pages})
        for number, pages in TABLES.items()
        for head in range(count)
    ]


def some(seed):
    choose = Random(seed)
    pages, rows = choose.choice([1, 3, 12, 40, 256]), choose.choice([1, 2, 8, 40])
    stored = {page: choose.randint(1, 10 ** choose.randint(1, 7)) for page in range(pages)}
    accesses = [
        (
            f"program {row}",
            {page: choose.randint(0, stored[page]) for page in range(pages) if choose.random() < 0.4},
        )
        for row in range(rows)
    ]
    return accesses, pages, stored


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_cells_are_filled_where_a_program_read_and_as_far(seed, whole):
    accesses, pages, stored = some(seed)
    sheet = touched_sheet(accesses, pages, None if whole else stored)
    assert faults(sheet) == [] and sheet.width == 780
    cells = [
        each for each in tips(sheet, r"(program \d+): ([\d,]+) bytes? of page (\d+)$") if each[0].fill == BLUE
    ]
    read = {
        (row, page): (label, nbytes)
        for row, (label, each) in enumerate(accesses)
        for page, nbytes in each.items()
        if nbytes
    }
    assert len(cells) == len(read)
    if not cells:
        return
    zero = min(box.y - tall_of(cells) * row_of(match, accesses) for box, match in cells)
    (left, wide), tall = columns(sheet, cells), tall_of(cells)
    for box, match in cells:
        page, row = int(match[3]), row_of(match, accesses)
        label, nbytes = read.pop((row, page))
        assert (match[1], int(match[2].replace(",", ""))) == (label, nbytes)
        part = nbytes / stored[page] if wide >= 5 and not whole else 1
        assert box.x == pytest.approx(left + page * wide) and box.width == pytest.approx(part * wide)
        assert box.y == pytest.approx(zero + row * tall)
    assert not read
    total = sum(nbytes for _, each in accesses for nbytes in each.values())
    assert f"{total:,}" in shown(sheet).split(" | ") and f"read {total:,} byte" in sheet.title
    if len(accesses) <= 8:
        for _, each in accesses:
            assert f"{sum(each.values()):,}" in shown(sheet).split(" | ")


def row_of(match, accesses):
    return [label for label, _ in accesses].index(match[1])


def tall_of(cells):
    return cells[0][0].height


def columns(sheet, cells):
    """(left edge, width) of the pages' columns, from the numbers above them."""
    numbers = {
        int(t.text): t.x for t in sheet.texts() if t.text.isdigit() and t.y == 48 and t.anchor == "middle"
    }
    if len(numbers) == 1:
        return cells[0][0].x, max(2 * (numbers[0] - cells[0][0].x), 0)
    (low, x0), *_, (high, x1) = sorted(numbers.items())
    wide = (x1 - x0) / (high - low)
    return x0 - (low + 0.5) * wide, wide


def test_with_a_program_for_each_head_every_page_is_read_by_all_of_them():
    alone, packed = touched_sheet(heads(4), 12, STORED), touched_sheet(heads(1), 12, STORED)
    for sheet, times, total in ((alone, 4, 91_136), (packed, 1, 22_784)):
        below = [text.text for text in sheet.texts() if text.text.endswith("×")]
        assert below == [f"{times}×"] * 6 and f"Read so often: each {times}×." in sheet.title
        assert f"{total:,} bytes of 6 pages, in a pool of 12" in sheet.title
    assert "8 programs" in alone.title and "2 programs" in packed.title
    grey = {text.text for text in alone.texts() if text.y == 48 and not text.bold and text.text.isdigit()}
    assert grey == {"2", "4", "6", "8", "9", "11"}  # of no sequence
    assert touched(heads(4), 12, STORED).alt == alone.title


def test_a_page_read_in_two_halves_was_read_once():
    halves = [(f"KV head {head}", {page: STORED[page] // 2 for page in TABLES[0]}) for head in range(2)]
    sheet = touched_sheet(halves, 12, STORED)
    assert [text.text for text in sheet.texts() if text.text.endswith("×")] == ["1×"] * 4
    assert "was not read" in shown(sheet) and "was not read" not in shown(touched_sheet(heads(1), 12, STORED))


def test_without_what_is_stored_the_programs_are_counted():
    sheet = touched_sheet([("a", {0: 5, 2: 7}), ("b", {2: 1})], 3, title="Two")
    assert sheet.title == (
        "Two: 2 programs read 13 bytes of 2 pages, in a pool of 3. "
        "Programs that read them: page 0 1, page 2 2."
    )
    assert shown(sheet).startswith("Two | ") and "programs that read it" in shown(sheet)


def test_one_number_stands_for_all_pages():
    reads = [("a", {0: 512, 1: 1024})]
    assert touched_sheet(reads, 2, 1024).title == touched_sheet(reads, 2, {0: 1024, 1: 1024}).title
    assert "page 0 0.5×, page 1 1×" in touched_sheet(reads, 2, 1024).title


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (([], 4), "there is no program"),
        (([("a", {})], 0), "pages is 0"),
        (([("a", {4: 1})], 4), "a read 1 bytes of page 4: the pool has pages 0 to 3"),
        (([("a", {-1: 1})], 4), "of page -1"),
        (([("a", {1: -2})], 4), "bytes are not negative"),
        (([("a", {1: 2})], 4, {0: 8}), "a read 2 bytes of page 1, and stored has none there"),
        (([("a", {1: 2})], 4, 0), "stored has none there"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments, wrong):
    with pytest.raises(ValueError, match=wrong):
        touched(*arguments)
