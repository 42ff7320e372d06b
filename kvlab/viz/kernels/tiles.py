"""A vector cut into tiles, one for each program, and what the mask leaves out."""

from kvlab.viz.blocks.looks import outline
from kvlab.viz.blocks.words import many
from kvlab.viz.kernels.looks import HIGHLIGHT, MARGIN, MASKED, SIZE, SMALL, TITLE, WIDTH, WORKING, whole
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, INK, WHITE

FORGOTTEN = Look(WHITE, "", HIGHLIGHT)
CELL, HIGH, GAP = 22, 26, 16  # a cell's least width where its number is in it, its height, between tiles
ACROSS = 3  # tiles in a row whose cells have no room for their numbers
FIRST, LAST, MOST = 7, 2, 12  # tiles that are drawn where there are more than MOST


def tiles(n, tile, programs=None):
    """A vector of n numbers in tiles of ``tile``, one a program; cells beyond its end are masked -> Picture.

    programs: how many are started, None for as many as are needed. With fewer, numbers are left out.
    """
    return tiles_sheet(n, tile, programs).picture()


def tiles_sheet(n, tile, programs=None):
    """The same -> Sheet."""
    n, tile = whole(n, "n"), whole(tile, "tile")
    needed = -(-n // tile)
    programs = needed if programs is None else whole(programs, "programs", 0)
    masked, forgotten = max(programs * tile - n, 0), max(n - programs * tile, 0)
    said = f"{many(n, 'number')} in tiles of {tile:,}: {many(programs, 'program')}"
    words = f"{said}. {_left_out(masked, forgotten)}"
    sheet = Sheet(WIDTH, 0, words)
    sheet.text(MARGIN, 17, said, size=TITLE, bold=True)
    wide = tile * max(CELL, width_of(f"{n - 1:,}", SMALL) + 5)
    numbered = wide <= WIDTH - 2 * MARGIN
    if not numbered:
        wide = (WIDTH - 2 * MARGIN - (ACROSS - 1) * GAP) / ACROSS
    cell = wide / tile
    total = max(needed, programs)
    wide = max(wide, width_of(f"program {total - 1:,}", SIZE, True))
    across = int((WIDTH - 2 * MARGIN + GAP) // (wide + GAP))
    shown = [*range(FIRST), None, *range(total - LAST, total)] if total > MOST else range(total)
    words = f"program p has the numbers from p × {tile:,} on, as far as there are any"
    sheet.text(MARGIN, 35, words, size=SMALL, fill=GREY)
    y, high = 44, 64 if numbered else 74  # of a row
    for place, number in enumerate(shown):
        row, column = divmod(place, across)
        x, top = MARGIN + column * (wide + GAP), y + row * high
        if number is None:
            hidden = f"… {total - FIRST - LAST:,} more …"
            sheet.text(x + wide / 2, top + 20 + HIGH / 2 + 4, hidden, size=SIZE, anchor="middle", fill=GREY)
        else:
            _tile(sheet, x, top, number, cell, (n, tile, programs), numbered)
    y += high * -(-len(shown) // across)
    entries = [(WORKING, "a number, loaded and stored")]
    entries += [(MASKED, f"masked: {many(masked, 'cell')} beyond the end")] * bool(masked)
    entries += [(FORGOTTEN, f"no program has {many(forgotten, 'number')}")] * bool(forgotten)
    sheet.height = sheet.legend(MARGIN, y + 20, entries, WIDTH - MARGIN) - 8
    return sheet


def _left_out(masked, forgotten):
    if forgotten:
        return f"The last {many(forgotten, 'number')} have no program, and are never computed."
    return f"The mask leaves out the last {many(masked, 'cell')}." if masked else "No cell is masked."


def _range(first, last):
    return f"{first:,} to {last:,}" if last > first else f"{first:,}"


def _tile(sheet, x, y, number, cell, counts, numbered):
    """One program's cells: its numbers, and those that are masked."""
    n, tile, programs = counts
    first, mine = number * tile, min(max(n - number * tile, 0), tile)
    started = number < programs
    head = f"program {number:,}" if started else "no program"
    sheet.text(x, y + 13, head, size=SIZE, bold=started, fill=INK if started else HIGHLIGHT)
    top, look = y + 20, WORKING if started else FORGOTTEN
    for count, at, kind in ((mine, 0, look), (tile - mine, mine, MASKED)):
        if count and (started or kind is look):
            what = "masked" if kind is MASKED else "numbers"
            tip = f"{head}: {what} {_range(first + at, first + at + count - 1)}"
            place = (x + at * cell, top, count * cell, HIGH)
            sheet.rect(*place, kind.fill, pattern=kind.pattern, ink=kind.ink, tip=tip)
            if cell >= 4:
                edges = [[(x + k * cell, top), (x + k * cell, top + HIGH)] for k in range(at + 1, at + count)]
                sheet.strokes(edges, WHITE if kind is WORKING else GREY)
            outline(sheet, *place, 1, color=look.ink if kind is FORGOTTEN else GREY)
    for k in range(mine) if numbered else ():
        middle = x + (k + 0.5) * cell
        sheet.text(middle, top + HIGH / 2 + 4, f"{first + k:,}", size=SMALL, anchor="middle", fill=look.ink)
    below = [] if numbered else [_range(first, first + mine - 1)] * bool(mine)
    below += [f"{tile - mine:,} masked"] * (started and mine < tile)
    sheet.text(x, top + HIGH + 13, ", ".join(below), size=SMALL, fill=GREY)
