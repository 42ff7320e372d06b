"""Bytes against tokens, one line a model, on logarithmic axes; each line has its name at its end."""

import math
from dataclasses import dataclass

from kvlab.viz.memory.looks import MARKS, SERIES
from kvlab.viz.memory.svg import Drawing, width_of
from kvlab.viz.show import GREY, INK, PALE

WIDTH, HEIGHT = 800, 430
LEFT, TOP, BOTTOM = 70, 34, 44
APART = 16  # pixels between the names at the lines' ends
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


def lines_svg(lines, tokens, unit, title):
    """lines: at most MOST Lines over the same tokens. tokens: the chosen length. unit: (name, bytes)."""
    if len(lines) > MOST:
        raise ValueError(f"{len(lines)} lines cannot be told apart; draw {MOST} at most")
    right = WIDTH - 24 - max((width_of(line.name, 12.5, True) for line in lines), default=0)
    drawing = Drawing(WIDTH, HEIGHT, f"{title}. At {tokens:,} tokens: {chosen_words(lines, unit)}")
    drawing.text(12, 17, title, size=13, bold=True)
    across, up = scales(lines, right)
    for tick in ticks(*up.ends, 10, unit[1]):
        y = up(tick)
        drawing.line(LEFT, y, right, y)
        drawing.text(LEFT - 8, y + 4, plain(tick / unit[1]), anchor="end", fill=GREY)
    for tick in ticks(*across.ends, 4, 1):
        x = across(tick)
        drawing.line(x, TOP, x, HEIGHT - BOTTOM)
        drawing.text(x, HEIGHT - BOTTOM + 16, f"{tick:,.0f}", anchor="middle", fill=GREY, size=11.5)
    drawing.text((LEFT + right) / 2, HEIGHT - 8, "tokens of one text", anchor="middle")
    drawing.text(15, (TOP + HEIGHT - BOTTOM) / 2, unit[0], anchor="middle", turn=-90)
    at = across(tokens)
    drawing.line(at, TOP, at, HEIGHT - BOTTOM, INK, 1.5, dash="4 3")
    for line, color in zip(lines, SERIES, strict=False):
        _curve(drawing, line, color, across, up)
    for line, color, mark in zip(lines, SERIES, MARKS, strict=False):
        drawing.mark(at, up(line.chosen), color, mark, radius=5.5, tip=f"{line.name}: {line.chosen:,} bytes")
    _names(drawing, lines, right, up)
    anchor = "end" if at > (LEFT + right) / 2 else "start"
    drawing.text(at, TOP - 5, f"{tokens:,} tokens", anchor=anchor, bold=True)
    return str(drawing)


def chosen_words(lines, unit):
    ordered = sorted(lines, key=lambda line: -line.chosen)
    return ", ".join(f"{line.name} {plain(line.chosen / unit[1])} {unit[0]}" for line in ordered) + "."


class Scale:
    """Logarithmic, from a range of values to a range of pixels."""

    def __init__(self, low, high, start, end):
        self.ends, self.start, self.end = (low, high), start, end

    def __call__(self, value):
        low, high = map(math.log, self.ends)
        return self.start + (self.end - self.start) * (math.log(max(value, self.ends[0])) - low) / (high - low)


def scales(lines, right):
    """Scales that hold all points, with some room above and below."""
    points = [point for line in lines for point in line.points] or [(1, 1), (2, 2)]
    lengths, amounts = zip(*points, strict=True)
    low = min((amount for amount in amounts if amount), default=1)
    across = Scale(min(lengths), max(lengths), LEFT, right)
    return across, Scale(low / 1.4, max(max(amounts), 2 * low) * 1.4, HEIGHT - BOTTOM, TOP)


def ticks(low, high, base, unit):
    """Powers of ``base`` times ``unit`` between two values, at most nine."""
    first, last = math.ceil(math.log(low / unit, base) - 1e-9), math.floor(math.log(high / unit, base) + 1e-9)
    stride = max(1, -(-(last - first + 1) // 9))
    return [unit * base**power for power in range(first, last + 1, stride)]


def plain(value):
    """A number of any size without an exponent: 0.001, 12.5, 1,000."""
    if value >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _curve(drawing, line, color, across, up):
    limit = line.limit or math.inf
    within = [point for point in line.points if point[0] <= limit]
    beyond = [point for point in line.points if point[0] >= (within[-1][0] if within else 0)]
    for points, width, dash in ((within, 2.4, ""), (beyond, 1.6, "1.5 4")):
        steps = [f"{across(tokens):.1f} {up(amount):.1f}" for tokens, amount in points]
        drawing.path("M" + "L".join(steps) if len(steps) > 1 else "", color, width, dash=dash, cap="round")


def _names(drawing, lines, right, up):
    """The names, as near to their lines' ends as leaves them readable, with a thread to the end."""
    ends = [up(line.points[-1][1]) for line in lines]
    for line, color, mark, end, y in zip(
        lines, SERIES, MARKS, ends, spread(ends, APART, TOP, HEIGHT - BOTTOM), strict=False
    ):
        drawing.path(f"M{right:.1f} {end:.1f}L{right + 8:.1f} {y:.1f}", color, 1)
        drawing.mark(right + 12, y, color, mark, radius=3.6)
        drawing.text(right + 19, y + 4, line.name, fill=INK, size=12.5)


def spread(places, apart, low, high):
    """Places moved as little as needed so that neighbours are ``apart`` and all lie in [low, high]."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved, last = list(places), low - apart
    for i in order:
        last = moved[i] = max(places[i], last + apart)
    last = high + apart
    for i in reversed(order):
        last = moved[i] = min(moved[i], last - apart)
    return moved


__all__ = ["MOST", "PALE", "Line", "Scale", "chosen_words", "lines_svg", "plain", "scales", "spread", "ticks"]
