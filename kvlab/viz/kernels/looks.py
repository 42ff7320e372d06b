"""What the pictures of kernels have in common."""

from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import width_of
from kvlab.viz.show import BLUE, GREY, INK, PALE, VERMILION, WHITE

WORKING, IDLE, MASKED = Look(BLUE), Look(PALE, "", GREY), Look(PALE, "/", GREY)
WIDTH, MARGIN = 780, 10
TITLE, SIZE, SMALL = 13, 12, 11
HIGHLIGHT = VERMILION


def whole(value, name, least=1):
    """A number of things -> int. Raises ValueError for one that cannot be."""
    if not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name} is {value!r}: give a whole number, at least {least}")
    return int(value)


def percent(share):
    """0.0606 -> '6.06%'; all of it is '100%', and nearly all of it is not."""
    text = f"{100 * share:.3g}"
    return f"{99.9 if text == '100' and share < 1 else text}%"


def arrow(sheet, start, end, color=INK, width=1.3, both=False):
    """A straight one, level or upright."""
    (x0, y0), (x1, y1) = start, end
    length = max(abs(x1 - x0), abs(y1 - y0)) or 1
    a, b = 5 * (x1 - x0) / length, 5 * (y1 - y0) / length
    lines = [[start, end], [(x1 - a - b, y1 - b - a), end, (x1 - a + b, y1 - b + a)]]
    lines += [[(x0 + a - b, y0 + b - a), start, (x0 + a + b, y0 + b + a)]] * both
    sheet.strokes(lines, color, width)


def boxed(sheet, x, y, wide, high, look, words="", tip="", size=SMALL):
    """A box with words in its middle, on white where it is hatched."""
    edge = GREY if look.fill in (WHITE, PALE) else None
    sheet.rect(x, y, wide, high, look.fill, pattern=look.pattern, ink=look.ink, stroke=edge, tip=tip)
    if words:
        taken, ink = width_of(words, size) + 4, look.ink
        if look.pattern:
            sheet.rect(x + (wide - taken) / 2, y + (high - size - 2) / 2, taken, size + 2, WHITE, opacity=0.9)
            ink = INK
        sheet.text(x + wide / 2, y + high / 2 + 0.36 * size, words, size=size, anchor="middle", fill=ink)
