"""Bytes against tokens, one line a model, on logarithmic axes; each line has its name at its end."""

import math
from dataclasses import dataclass

from kvlab.viz.memory.looks import MARKS, SERIES
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, INK

WIDTH, HEIGHT = 800, 430
LEFT, TOP, BOTTOM = 70, 46, 46
APART = 17  # pixels between the names at the lines' ends
MOST = len(SERIES)


@dataclass(frozen=True)
class Line:
    """``points`` are (tokens, bytes) from left to right; ``chosen`` the bytes at the chosen length.

    limit: tokens that the model was made for, None where unknown; beyond them the line is dotted.
    """

    name: str
    points: tuple
    chosen: int
    limit: int | None = None


def lines_chart(lines, tokens, unit, title):
    """lines: at most MOST Lines. tokens: the chosen length. unit: (name, bytes) -> Sheet."""
    if not lines:
        raise ValueError("no line to draw")
    if len(lines) > MOST:
        raise ValueError(f"{len(lines)} lines cannot be told apart; draw {MOST} at most")
    length = f"{tokens:,} token{'' if tokens == 1 else 's'}"
    right = WIDTH - 24 - max(width_of(line.name, 12.5) for line in lines)
    sheet = Sheet(WIDTH, HEIGHT, f"{title}. At {length}: {chosen_words(lines, unit)}")
    sheet.text(12, 17, title, size=13, bold=True)
    across, up = scales(lines, tokens, right)
    heights, lengths = ticks(*up.ends, 10, unit[1]), ticks(*across.ends, 4, 1)
    for tick in heights:
        y = up(tick)
        sheet.line(LEFT, y, right, y)
        sheet.text(LEFT - 8, y + 4, plain(tick / unit[1]), anchor="end", fill=GREY)
    for tick in lengths:
        x = across(tick)
        sheet.line(x, TOP, x, HEIGHT - BOTTOM)
        sheet.text(x, HEIGHT - BOTTOM + 17, f"{tick:,.0f}", anchor="middle", fill=GREY, size=11.5)
    below, beside = f"tokens of one text ({log_words(lengths)})", f"{unit[0]} ({log_words(heights)})"
    sheet.text((LEFT + right) / 2, HEIGHT - 7, below, anchor="middle")
    sheet.text(16, (TOP + HEIGHT - BOTTOM) / 2, beside, anchor="middle", turn=-90)
    at = across(tokens)
    sheet.line(at, TOP, at, HEIGHT - BOTTOM, INK, 1.5, dash=(4, 3))
    for line, color in zip(lines, SERIES, strict=False):
        _curve(sheet, line, color, across, up)
    for line, color, mark in zip(lines, SERIES, MARKS, strict=False):
        sheet.mark(at, up(line.chosen), color, mark, radius=5.5, tip=f"{line.name}: {line.chosen:,} bytes")
    _names(sheet, lines, right, up)
    anchor = "end" if at > (LEFT + right) / 2 else "start"
    sheet.text(at, TOP - 6, length, anchor=anchor, bold=True)
    return sheet


def chosen_words(lines, unit):
    ordered = sorted(lines, key=lambda line: -line.chosen)
    return ", ".join(f"{line.name} {plain(line.chosen / unit[1])} {unit[0]}" for line in ordered) + "."


class Scale:
    """Logarithmic, from a range of values to a range of pixels; a value outside is taken to the edge."""

    def __init__(self, low, high, start, end):
        self.ends, self.start, self.end = (low, high), start, end

    def __call__(self, value):
        low, high = map(math.log, self.ends)
        share = (math.log(min(max(value, self.ends[0]), self.ends[1])) - low) / (high - low)
        return self.start + (self.end - self.start) * share


def scales(lines, tokens, right):
    """Scales that hold all points, with some room above and below."""
    points = [point for line in lines for point in line.points]
    lengths = [length for length, _ in points]
    amounts = [amount for _, amount in points] + [line.chosen for line in lines]
    low = min((amount for amount in amounts if amount), default=1)
    across = Scale(min(*lengths, tokens), max(*lengths, tokens), LEFT, right)
    return across, Scale(low / 1.4, max(*amounts, 2 * low) * 1.4, HEIGHT - BOTTOM, TOP)


def ticks(low, high, base, unit):
    """Powers of ``base`` times ``unit`` between two values, at most nine."""
    first, last = math.ceil(math.log(low / unit, base) - 1e-9), math.floor(math.log(high / unit, base) + 1e-9)
    stride = max(1, -(-(last - first + 1) // 9))
    return [unit * base**power for power in range(first, last + 1, stride)]


def log_words(shown):
    """What an axis with these ticks has to say of itself."""
    if len(shown) < 2:
        return "log scale"
    return f"log scale: ×{plain(shown[1] / shown[0])} from line to line"


def plain(value):
    """A number of any size without an exponent: 0.001, 12.5, 1,000."""
    if value >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _curve(sheet, line, color, across, up):
    limit = line.limit or math.inf
    within = [point for point in line.points if point[0] <= limit]
    beyond = [point for point in line.points if point[0] >= (within[-1][0] if within else 0)]
    for points, width, dash in ((within, 2.4, ()), (beyond, 1.8, (2, 4))):
        sheet.strokes([[(across(tokens), up(amount)) for tokens, amount in points]], color, width, dash)


def _names(sheet, lines, right, up):
    """The names, as near to their lines' ends as leaves them readable, with a thread to the end."""
    ends = [up(line.points[-1][1]) for line in lines]
    places = spread(ends, APART, TOP + 4, HEIGHT - BOTTOM - 4)
    for line, color, mark, end, y in zip(lines, SERIES, MARKS, ends, places, strict=False):
        sheet.line(right, end, right + 9, y, color)
        sheet.mark(right + 12, y, color, mark, radius=4)
        sheet.text(right + 20, y + 4.5, line.name, size=12.5)


def spread(places, apart, low, high):
    """Places moved so that neighbours are ``apart`` and all lie from ``low`` to ``high``, order kept."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved, last = list(places), low - apart
    for i in order:
        last = moved[i] = max(places[i], last + apart)
    last = high + apart
    for i in reversed(order):
        last = moved[i] = min(moved[i], last - apart)
    return moved
