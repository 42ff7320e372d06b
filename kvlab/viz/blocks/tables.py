"""Block tables: one row each."""

from dataclasses import dataclass

from kvlab.viz.blocks.looks import MARGIN, SIZE, SMALL, chip, outline, section
from kvlab.viz.blocks.words import clipped, held, inside, many, touched
from kvlab.viz.sheet import width_of
from kvlab.viz.show import GREY, PALE, WHITE


def tables(sheet, moment, looks, y):
    """A row a block table -> the y below the last."""
    y = section(sheet, y, "The block tables", "logical block → block of the pool")
    if not moment.tables:
        sheet.text(MARGIN, y + 14, "none: no sequence is stored", size=SIZE, fill=GREY)
        return y + 26
    named = [name for name in moment.tables if looks[name].letter != str(name)]
    names = max((width_of(str(name), SIZE, True) + 10 for name in named), default=0)
    tokens = width_of(many(10 * moment.num_blocks * moment.block_size, "token"), SIZE)
    left = MARGIN + 36 + tokens + min(names, sheet.width / 5) + 12
    wide = width_of(str(max(moment.num_blocks, 100) - 1), SIZE, True) + 8
    across = max(1, int((sheet.width - MARGIN - left + 5) // (wide + 5)))
    row = Row(left, wide, across)
    for line, (words, step) in enumerate((("logical block", 1), ("from token", moment.block_size))):
        sheet.text(left - 12, y + 12 + 14 * line, words, size=SMALL, anchor="end", fill=GREY)
        for place in range(min(across, max(map(len, moment.tables.values())))):
            words, middle = str(place * step), left + place * (wide + 5) + wide / 2
            if width_of(words, SMALL) <= wide:
                sheet.text(middle, y + 12 + 14 * line, words, size=SMALL, anchor="middle", fill=GREY)
    y += 34
    for name in moment.tables:
        y = _table(sheet, moment, name, looks[name], row, y)
    return y


@dataclass(frozen=True)
class Row:
    """Where a block table's entries begin, how wide each is, and how many have room beside each other."""

    left: float
    wide: float
    across: int


def _table(sheet, moment, name, look, place, y):
    blocks, tokens, end = moment.tables[name], held(moment)[name], place.left - 12
    chip(sheet, MARGIN, y, look, 26, 20)
    sheet.text(end, y + 15, many(tokens, "token"), size=SIZE, anchor="end")
    if look.letter != str(name):
        room = end - width_of(many(tokens, "token"), SIZE) - MARGIN - 40
        sheet.text(MARGIN + 34, y + 15, clipped(str(name), room, SIZE, True), size=SIZE, bold=True)
    last = touched(moment)[0] if moment.event and moment.event[1] == name else None
    for number, block in enumerate(blocks):
        row, column = divmod(number, place.across)
        x, top = place.left + column * (place.wide + 5), y + row * 34
        if row and not column:
            sheet.text(end, top + 15, f"from block {number}", size=SMALL, anchor="end", fill=GREY)
        filled = inside(moment, name, number)
        tip = f"{name}, logical block {number}: block {block}, {many(filled, 'token')}"
        sheet.rect(x, top, place.wide, 28, WHITE, stroke=GREY, tip=tip)
        sheet.text(x + place.wide / 2, top + 15, str(block), size=SIZE, anchor="middle", bold=True)
        full = (place.wide - 2) * filled / moment.block_size
        sheet.rect(x + 1, top + 20, full, 7, look.fill, pattern=look.pattern, ink=look.ink)
        sheet.rect(x + 1 + full, top + 20, place.wide - 2 - full, 7, PALE, pattern=".", ink=GREY)
        if block == last:
            outline(sheet, x - 1, top - 1, place.wide + 2, 30, 3)
    return y + 34 * max(1, -(-len(blocks) // place.across)) + 2
