"""Query heads of one KV head, and new tokens, as the rows of one matrix product."""

from kvlab.viz.blocks.looks import outline
from kvlab.viz.blocks.words import many
from kvlab.viz.heads import KEY
from kvlab.viz.kernels.looks import MARGIN, MASKED, SIZE, SMALL, TITLE, WIDTH, boxed, whole
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet
from kvlab.viz.show import BLUE, GREY, INK, SKY, WHITE

EVEN, ODD = Look(BLUE), Look(SKY, "", INK)
TOP, APART = 62, 30  # the upper edge of the rows; between two tiles of rows
QUERIES, KEYS, PRODUCT = (142, 150), (328, 204), (568, 204)  # (left edge, width)
COLUMNS = 16  # that are drawn of a tile of keys


def packing(group, new_tokens=1, rows=16):
    """The query heads that share a KV head, times new tokens, as rows of matrix products -> Picture.

    group: query heads of the KV head. rows: of one product; those that nobody needs are masked.
    """
    return packing_sheet(group, new_tokens, rows).picture()


def packing_sheet(group, new_tokens=1, rows=16):
    """The same -> Sheet."""
    group, new_tokens = whole(group, "group"), whole(new_tokens, "new_tokens")
    rows, used = whole(rows, "rows"), group * new_tokens
    tiles = -(-used // rows)
    title, said = _words(group, new_tokens, rows)
    sheet = Sheet(WIDTH, 0, f"{title}. {' '.join(said)}")
    sheet.text(MARGIN, 17, title, size=TITLE, bold=True)
    shown = list(range(tiles)) if tiles * rows <= 64 else sorted({0, tiles - 1})
    high = next(high for most, high in ((16, 15), (32, 12), (64, 7), (1e9, 4)) if len(shown) * rows <= most)
    for (left, wide), name in (
        (QUERIES, "queries: a row each"),
        (KEYS, "keys: a column each"),
        (PRODUCT, "scores: query times key"),
    ):
        sheet.text(left + wide / 2, TOP - 22, name, size=SIZE, anchor="middle", bold=True)
    y = TOP
    for place, tile in enumerate(shown):
        if place:
            hidden = tile - shown[place - 1] - 1
            words = f"… {many(hidden, 'tile')} more …" if hidden else ""
            sheet.text(QUERIES[0] + QUERIES[1] / 2, y - 11, words, size=SMALL, anchor="middle", fill=GREY)
        _product(sheet, y, tile * rows, high, (group, new_tokens, rows))
        y += rows * high + APART
    y -= APART - 10
    for line in said:
        y += 17
        sheet.text(MARGIN, y, line, size=SIZE)
    several = new_tokens > 1
    entries = [(EVEN, "a query head" + " of an even token" * several)]
    entries += [(ODD, "of an odd token")] * several
    entries += [(KEY, "a key of a tile of tokens")] + [(MASKED, "masked row")] * (tiles * rows > used)
    sheet.height = sheet.legend(MARGIN, y + 24, entries, WIDTH - MARGIN) - 8
    return sheet


def _words(group, new_tokens, rows):
    """-> (title, sentences)."""
    used, tiles = group * new_tokens, -(-group * new_tokens // rows)
    heads, tokens = many(group, "query head"), many(new_tokens, "new token")
    title = f"{heads} of one KV head, {tokens}: {used:,} of {tiles * rows:,} rows used"
    often = "once" if tiles == 1 else f"{tiles:,} times, once for each tile of {rows} rows"
    said = [f"The keys are read {often}."]
    if used > tiles:
        alone = "query head" + " and new token" * (new_tokens > 1)
        said.append(f"With a program for each {alone} they would be read {used:,} times.")
    return title, said


def _product(sheet, top, first, high, counts):
    """One tile of rows times the keys, from row ``first`` on."""
    group, new_tokens, rows = counts
    used, total, wide = min(group * new_tokens - first, rows), rows * high, QUERIES[1]
    step = 1 if high >= 12 else _stride(group, high)
    left = QUERIES[0]
    for row in range(used):
        token, head = divmod(first + row, group)
        name = f"token {token}, head {head}" if new_tokens > 1 else f"query head {head}"
        look = ODD if token % 2 else EVEN
        sheet.rect(left, top + row * high, wide, high, look.fill, tip=f"row {row}: {name}")
        sheet.rect(PRODUCT[0], top + row * high, PRODUCT[1], high, WHITE, tip=f"scores of {name}")
        if row % step == 0 and row * high + 8 <= total:
            base = top + row * high + min(high / 2, 6) + 4
            sheet.text(left - 6, base, name, size=SMALL - 0.5, anchor="end", fill=INK)
    if rows > used:
        words = many(rows - used, "masked row")
        for start, room in ((left, wide), (PRODUCT[0], PRODUCT[1])):
            y = top + used * high
            tall = (rows - used) * high
            boxed(sheet, start, y, room, tall, MASKED, words if tall >= 15 else "", tip=words)
    every = 1 if high >= 7 else group
    for start, room in ((left, wide), (PRODUCT[0], PRODUCT[1])):
        lines = [[(start, top + k * high), (start + room, top + k * high)] for k in range(every, used, every)]
        sheet.strokes(lines, WHITE if start == left else GREY, 0.8)
    column = PRODUCT[1] / COLUMNS
    upright = [
        [(PRODUCT[0] + k * column, top), (PRODUCT[0] + k * column, top + used * high)]
        for k in range(1, COLUMNS)
    ]
    sheet.strokes(upright, GREY, 0.5)
    outline(sheet, left, top, wide, total, 1.5)
    outline(sheet, PRODUCT[0], top, PRODUCT[1], total, 1.5)
    _keys(sheet, top, total)


def _keys(sheet, top, total):
    left, wide = KEYS
    high = min(total, 150)
    y, column = top + (total - high) / 2, wide / COLUMNS
    sheet.rect(left, y, wide, high, KEY.fill, tip="keys of a tile of tokens, a column each")
    lines = [[(left + k * column, y), (left + k * column, y + high)] for k in range(1, COLUMNS)]
    sheet.strokes(lines, WHITE)
    outline(sheet, left, y, wide, high, 1.5)
    for x, sign in ((KEYS[0] - 21, "×"), (PRODUCT[0] - 21, "=")):
        sheet.text(x, top + total / 2 + 8, sign, size=22, anchor="middle")


def _stride(group, high):
    """Rows from one label to the next, whole tokens if there are several heads."""
    return group * max(1, -(-12 // (group * high))) if group * high <= 48 else -(-12 // high)
