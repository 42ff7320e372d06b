"""How a table, a slot and a block look, and what the looks mean."""

import re
from dataclasses import replace
from itertools import chain, count
from string import ascii_uppercase

from kvlab.viz.blocks.words import clipped
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import width_of
from kvlab.viz.show import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, WHITE

FILLS = (Look(BLUE), Look(ORANGE, ink=INK), Look(GREEN), Look(PURPLE, ink=INK), Look(SKY, ink=INK))
FILLS += (Look(VERMILION),)
PATTERNS = ("", "/", "x", "-", "|")
EMPTY, FREE, CROWD = Look(PALE, ".", GREY), Look(WHITE, "", GREY), Look(PALE, "x", INK)
BANDS = 4  # so many owners of a block are told apart in its slots
WIDTH, PANEL, MARGIN = 780, 384, 10
SIZE, SMALL = 12, 10.5


def looks_of(moment):
    """{name: Look} of all tables so far: a table keeps its look, and its letter, when others end."""
    looks, letters = {}, set()
    for place, name in enumerate(dict.fromkeys([*moment.born, *moment.tables])):
        turn, at = divmod(place, len(FILLS))
        pattern = PATTERNS[(place + turn) % len(PATTERNS)]
        short = _short(str(name))
        letter = next(
            each for each in chain([short], ascii_uppercase, map(str, count())) if each not in letters
        )
        letters.add(letter)
        looks[name] = replace(FILLS[at], pattern=pattern, letter=letter)
    return looks


def _short(name):
    """'B' -> 'B', 'beam 12' -> 'b12'."""
    parts = re.findall(r"[^\W\d_]+|\d+", name)
    return name if len(name) <= 3 else "".join(part if part.isdigit() else part[0] for part in parts)[:3]


def section(sheet, y, name, more):
    """A heading, and words after it -> the y below them."""
    sheet.text(MARGIN, y, name, size=SIZE, bold=True)
    left = MARGIN + width_of(name, SIZE, True) + 10
    sheet.text(left, y, clipped(more, sheet.width - MARGIN - left, SIZE), size=SIZE, fill=GREY)
    return y + 10


def chip_width(look):
    return max(14, width_of(look.letter, SMALL, True) + 4)


def chip(sheet, x, y, look, wide=0, tall=14):
    """A table's letter, on its color."""
    wide = max(wide, chip_width(look))
    sheet.rect(x, y, wide, tall, look.fill)
    middle = {"anchor": "middle", "fill": look.ink, "bold": True}
    sheet.text(x + wide / 2, y + tall / 2 + 4, look.letter, size=SMALL, **middle)


def outline(sheet, x, y, wide, high, thick, dash=(), color=INK):
    corners = [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y), (x + wide, y)]
    sheet.strokes([corners], color, thick, dash)


def legend(sheet, y, crowd=False):
    """crowd: has a block more owners than bands? -> the y below it."""

    def plain(look):
        return lambda x, y: sheet.rect(
            x, y, 16, 14, look.fill, pattern=look.pattern, ink=look.ink, stroke=GREY
        )

    def bands(x, y):
        sheet.rect(x, y, 16, 7, BLUE)
        sheet.rect(x, y + 7, 16, 7, ORANGE, pattern="/")

    entries = [
        (lambda x, y: outline(sheet, x + 1, y + 1, 14, 12, 3), "touched last (dashed: copied from)"),
        (plain(EMPTY), "held, but empty: waste"),
        (plain(FREE), "free"),
        (bands, "shared: a band for each owner"),
        *[(plain(CROWD), f"shared by more than {BANDS}")] * crowd,
    ]
    x = MARGIN
    for draw, words in entries:
        wide = 22 + width_of(words, SMALL)
        if x > MARGIN and x + wide > sheet.width - MARGIN:
            x, y = MARGIN, y + 20
        draw(x, y - 11)
        sheet.text(x + 22, y, words, size=SMALL, fill=INK)
        x += wide + 14
    return y + 12
