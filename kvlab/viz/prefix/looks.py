"""How blocks of a prefix cache look, by what an operation did with them and by who has them."""

from kvlab.viz.blocks.words import clipped
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import width_of
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY, VERMILION, WHITE

LOOKS = {
    "found": Look(BLUE),
    "new": Look(ORANGE, "/", INK),
    "locked": Look(SKY, "", INK),
    "kept": Look(PALE, "|", GREY),
    "evicted": Look(WHITE, "x", VERMILION),
}
SAID = {
    "found": "found now",
    "new": "computed now",
    "locked": "locked: somebody uses it",
    "kept": "kept: nobody does",
    "evicted": "evicted now",
}
WIDTH, PANEL, MARGIN = 780, 384, 10
SIZE, SMALL = 12, 10.5
WORDS, BAND = 18, 14  # heights of a cell's upper part and of the band below it


def chip_width(name):
    return max(width_of(str(name), SMALL, True) + 8, 16)


def chip(sheet, x, y, name, room=60):
    """A request's name, on dark -> where the next may begin."""
    text = clipped(str(name), room - 8, SMALL, True)
    wide = chip_width(text)
    sheet.rect(x, y, wide, 16, INK)
    sheet.text(x + wide / 2, y + 12, text, size=SMALL, anchor="middle", fill=WHITE, bold=True)
    return x + wide + 3


def size_on(sheet):
    """Of the words in cells: smaller in a panel."""
    return SIZE if sheet.width > PANEL else SMALL


def cell(sheet, x, y, wide, words, below, kind, tip=""):
    """A block: its words, and below them its number on what happened to it."""
    look, ghost = LOOKS[kind], kind == "evicted"
    edge = VERMILION if ghost else INK
    sheet.rect(x, y, wide, WORDS + BAND, WHITE, tip=tip)
    sheet.rect(x, y + WORDS, wide, BAND, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
    right, bottom = x + wide, y + WORDS + BAND
    corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
    sheet.strokes([corners], edge, 1, (4, 3) if ghost else ())
    sheet.strokes([[(x, y + WORDS), (right, y + WORDS)]], edge, 0.5)
    size = size_on(sheet)
    text = clipped(words, wide - 6, size)
    sheet.text(x + wide / 2, y + 13.5, text, size=size, anchor="middle", fill=GREY if ghost else INK)
    below, middle = clipped(below, wide - 4, SMALL), x + wide / 2
    if below and look.pattern:
        room = width_of(below, SMALL) + 4
        sheet.rect(middle - room / 2, y + WORDS + 1.5, room, BAND - 3, WHITE, opacity=0.9, tip=tip)
    ink = INK if look.pattern else look.ink
    sheet.text(middle, y + WORDS + BAND - 3.2, below, size=SMALL, anchor="middle", fill=ink)


def legend(sheet, y):
    """-> the y below it."""
    x = MARGIN
    for kind, words in SAID.items():
        look, wide = LOOKS[kind], 24 + width_of(words, SMALL)
        if x > MARGIN and x + wide > sheet.width - MARGIN:
            x, y = MARGIN, y + 20
        edge = VERMILION if kind == "evicted" else INK
        sheet.rect(x, y - 11, 18, 14, look.fill, pattern=look.pattern, ink=look.ink, stroke=edge)
        sheet.text(x + 24, y, words, size=SMALL)
        x += wide + 14
    return y + 12
