"""How many of a GPU's multiprocessors have work, when each takes one of equal programs at a time."""

from kvlab.viz.blocks.looks import outline
from kvlab.viz.blocks.words import clipped, many
from kvlab.viz.kernels.looks import IDLE, MARGIN, SIZE, SMALL, TITLE, WIDTH, WORKING, percent, whole
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, WHITE

HIGH, ROW = 13, 18  # of a turn, and from one turn to the next
MOST, FIRST, LAST = 9, 5, 2  # turns that are drawn where there are more than MOST


def occupancy(rows, multiprocessors):
    """Turns of programs on so many multiprocessors: a cell each, busy or idle -> Picture.

    rows: (label, programs) of each case.
    """
    return occupancy_sheet(rows, multiprocessors).picture()


def occupancy_sheet(rows, multiprocessors):
    """The same -> Sheet."""
    count = whole(multiprocessors, "multiprocessors")
    if not rows:
        raise ValueError("there is no case: give (label, programs) for at least one")
    cases = [(label, whole(programs, "programs")) for label, programs in rows]
    said = [f"{label}: {_said(programs, count)}." for label, programs in cases]
    sheet = Sheet(WIDTH, 0, f"{many(count, 'multiprocessor')}, busy or idle. {' '.join(said)}")
    left = MARGIN + max(width_of(f"turn {-(-programs // count):,}", SMALL) for _, programs in cases) + 8
    unit = min(HIGH + 1, (WIDTH - MARGIN - left) / count)
    y = 4
    for label, programs in cases:
        words = _said(programs, count)
        room = WIDTH - 2 * MARGIN - width_of(words, SIZE) - 12
        sheet.text(MARGIN, y + 14, clipped(str(label), room, TITLE, True), size=TITLE, bold=True)
        sheet.text(WIDTH - MARGIN, y + 14, words, size=SIZE, anchor="end")
        y = _turns(sheet, y + 22, left, unit, (programs, count)) + 10
    entries = [(WORKING, "busy: has a program"), (IDLE, "idle: has none")]
    words = f"a cell: one of {many(count, 'multiprocessor')}"
    sheet.text(MARGIN, y + 12, words, size=SIZE)
    beside = MARGIN + width_of(words, SIZE) + 18
    sheet.height = sheet.legend(beside, y + 12, entries, WIDTH - MARGIN) - 8
    return sheet


def _said(programs, count):
    turns = -(-programs // count)
    share = percent(programs / (turns * count))
    return f"{many(programs, 'program')} in {many(turns, 'turn')}, {share} busy"


def _turns(sheet, y, left, unit, counts):
    """A strip a turn -> the y below the last."""
    programs, count = counts
    turns = -(-programs // count)
    shown = list(range(turns)) if turns <= MOST else [*range(FIRST), None, *range(turns - LAST, turns)]
    tops = []
    for turn in shown:
        if turn is None:
            words = f"… {many(turns - FIRST - LAST, 'turn')} more, all busy …"
            sheet.text(left, y + 12, words, size=SMALL, fill=GREY)
        else:
            busy = min(programs - turn * count, count)
            tip = f"turn {turn + 1}: {busy} of {count} busy"
            sheet.rect(left, y, busy * unit, HIGH, WORKING.fill, tip=tip)
            sheet.rect(left + busy * unit, y, (count - busy) * unit, HIGH, IDLE.fill, tip=tip)
            sheet.text(left - 8, y + 11, f"turn {turn + 1:,}", size=SMALL, anchor="end", fill=GREY)
            tops.append(y)
        y += ROW
    lines = [[(left + k * unit, top), (left + k * unit, top + HIGH)] for top in tops for k in range(1, count)]
    sheet.strokes(lines, WHITE, 0.8)
    for top in tops:
        outline(sheet, left, top, count * unit, HIGH, 0.8, color=GREY)
    return y
