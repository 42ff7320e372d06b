"""The blocks of a pool, in their order."""

from dataclasses import dataclass

from kvlab.viz.blocks.looks import BANDS, CROWD, EMPTY, FREE, MARGIN, PANEL, SMALL, chip, chip_width, outline
from kvlab.viz.blocks.words import all_of, clipped, inside, many, owners_of, touched
from kvlab.viz.sheet import width_of
from kvlab.viz.show import GREY, INK, PALE, WHITE

GAP, PAD, HEAD = 10, 5, 20  # between blocks, around their slots, above their slots


@dataclass(frozen=True)
class Grid:
    """Where blocks lie, and slots in them."""

    across: int  # blocks in a row
    rows: int
    slots: int
    frame: float  # a block's width
    cell: float  # a slot's
    line: int  # slots beside each other
    tall: float  # a slot's height
    wordy: bool  # is there room for the word "block"?

    @property
    def high(self):
        return HEAD + -(-self.slots // self.line) * self.tall + PAD

    def corner(self, block, top):
        row, column = divmod(block, self.across)
        return MARGIN + column * (self.frame + GAP), top + row * (self.high + GAP)

    @classmethod
    def of(cls, blocks, slots, texts, width):
        room = width - 2 * MARGIN + GAP
        widest = max((width_of(text, SMALL) for pieces in texts.values() for text in pieces), default=0)
        wanted, least = (min(70, max(24, widest + 8)), 24) if widest else (28 if width > PANEL else 18, 7)
        head = width_of(str(blocks - 1), 13, True) + 2 * PAD + 55  # with two letters, and how many
        across = int(room // (max(slots * wanted + 2 * PAD, head) + GAP)) or 1
        if -(-blocks // across) > 6:  # smaller blocks, lest they take the whole page
            across = max(across, min(-(-blocks // 6), int(room // (head + GAP))))
        rows = -(-blocks // across)
        across, line = -(-blocks // rows), slots
        inside = room / across - GAP - 2 * PAD
        while inside / line < least and line > max(4, slots / 4):
            line = -(-line // 2)
        cell = min(wanted, inside / line)
        frame = max(line * cell + 2 * PAD, min(head, inside + 2 * PAD))
        wordy = frame >= head + width_of("block ", 13, True)
        tall = 20 if line == slots or widest else 12
        return cls(across, rows, slots, frame, cell, line, tall, wordy)


def draw_block(sheet, grid, moment, block, corner, looks, texts):
    """A frame with its number and its owners, and its slots in it."""
    (x, y), owners = corner, owners_of(moment, block)
    places = [moment.tables[name].index(block) for name in owners]
    stored = [inside(moment, name, place) for name, place in zip(owners, places, strict=True)]
    most = max(stored, default=0)
    tip = f"{all_of(owners)}; {most} of {many(grid.slots, 'slot')} filled" if owners else "free"
    edge = INK if owners else GREY
    sheet.rect(x, y, grid.frame, grid.high, WHITE, stroke=edge, tip=f"block {block}: {tip}")
    _head(sheet, grid, x, y, block, [looks[name] for name in owners])
    bands = [(looks[name], tokens) for name, tokens in zip(owners, stored, strict=True)]
    if len(bands) > BANDS:
        bands = [(CROWD, most)]
    for row, first in enumerate(range(0, grid.slots, grid.line)):
        here = min(grid.line, grid.slots - first)
        part = [(look, min(max(tokens - first, 0), here)) for look, tokens in bands]
        _slots(sheet, x + PAD, y + HEAD + row * grid.tall, grid, here, part)
    for slot, text in enumerate(_pieces(texts, owners, places, stored, grid.slots)):
        _write(sheet, grid, x + PAD, y + HEAD, slot, text)
    written, source = touched(moment)
    if block == written:
        outline(sheet, x - 2.5, y - 2.5, grid.frame + 5, grid.high + 5, 3)
    elif block == source:
        outline(sheet, x - 2.5, y - 2.5, grid.frame + 5, grid.high + 5, 2, (5, 4))


def _pieces(texts, owners, places, stored, slots):
    """The texts in a block: those of the owner that has most of it."""
    known = [
        texts[name][place * slots :][:tokens]
        for name, place, tokens in zip(owners, places, stored, strict=True)
        if name in texts
    ]
    return max(known, key=len, default=[])


def _head(sheet, grid, x, y, block, looks):
    """A block's number, and whose it is."""
    fill, name = INK if looks else GREY, f"block {block}" if grid.wordy else str(block)
    sheet.text(x + PAD, y + 15, name, size=13, bold=True, fill=fill)
    right, room = x + grid.frame - PAD, grid.frame - 2 * PAD - width_of(name, 13, True) - 4
    if not looks:
        if width_of("free", SMALL) <= room:
            sheet.text(right, y + 14, "free", size=SMALL, anchor="end", fill=GREY)
        return
    if len(looks) > 1:
        times = f"×{len(looks)}"
        sheet.text(right, y + 14, times, size=SMALL, anchor="end", bold=True)
        right, room = right - width_of(times, SMALL, True) - 3, room - width_of(times, SMALL, True) - 3
    if sum(chip_width(look) + 2 for look in looks) <= room:
        for look in reversed(looks):
            right -= chip_width(look)
            chip(sheet, right, y + 3, look)
            right -= 2


def _slots(sheet, x, y, grid, inside, bands):
    """Slots beside each other; bands: (Look, filled slots) of each owner."""
    most, wide = max((filled for _, filled in bands), default=inside), grid.cell
    back = EMPTY if bands else FREE
    sheet.rect(
        x + most * wide, y, (inside - most) * wide, grid.tall, back.fill, pattern=back.pattern, ink=GREY
    )
    tall = grid.tall / max(len(bands), 1)
    for place, (look, filled) in enumerate(bands):
        sheet.rect(x, y + place * tall, filled * wide, tall, look.fill, pattern=look.pattern, ink=look.ink)
    edges = range(inside + 1) if wide >= 4 else (0, inside)
    lines = [[(x + edge * wide, y), (x + edge * wide, y + grid.tall)] for edge in edges]
    lines += [[(x, at), (x + inside * wide, at)] for at in (y, y + grid.tall)]
    sheet.strokes(lines, GREY if bands else PALE)


def _write(sheet, grid, x, y, slot, text):
    """A token's text, on a paler ground."""
    row, column = divmod(slot, grid.line)
    text = clipped(text, grid.cell - 3, SMALL)
    wide, left, top = width_of(text, SMALL) + 2, x + column * grid.cell, y + row * grid.tall
    if text:
        sheet.rect(left + (grid.cell - wide) / 2, top + 3, wide, grid.tall - 6, WHITE, opacity=0.85)
        place = (left + grid.cell / 2, top + grid.tall / 2 + 3.8)
        sheet.text(*place, text, size=SMALL, anchor="middle")
