"""Parts of a softmax, each with its own maximum, made into one."""

import math

from kvlab.viz.blocks.words import all_of, clipped, many
from kvlab.viz.kernels.looks import MARGIN, SIZE, SMALL, TITLE, WIDTH
from kvlab.viz.memory.lines import plain
from kvlab.viz.sheet import Sheet
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, WHITE

NAMES = "highest", "sum", "values"
MOST, TOP, APART, WIDEST = 6, 34, 62, 116  # parts; the first row's upper edge; between rows; a box


def merging(parts, base=math.e):
    """Parts of a context, merged two by two, and what their sums are shrunk by -> Picture.

    parts: (label, highest score, sum of base ** (score - highest)) of each, and, if wanted, the sum of its
    weighted values, a number. base: of the powers; e, or 2.
    """
    return merging_sheet(parts, base).picture()


def merging_sheet(parts, base=math.e):
    """The same -> Sheet."""
    _check(parts)
    parts = [(str(label), *map(float, numbers)) for label, *numbers in parts]
    sheet, pitch = Sheet(WIDTH, 0, ""), (WIDTH - 2 * MARGIN) / len(parts)
    sheet.text(MARGIN, 17, f"{many(len(parts), 'part')} made into one", size=TITLE, bold=True)
    wide, high = min(pitch - 6, WIDEST), 14 * len(parts[0]) + 8
    nodes = [(MARGIN + (place + 0.5) * pitch, part) for place, part in enumerate(parts)]
    bottoms, y, told = [TOP + high] * len(nodes), TOP, []
    for x, part in nodes:
        _box(sheet, x, y, (wide, high), part, part[0], len(parts) == 1)
    while len(nodes) > 1:
        y, merged, ends = y + high + APART, [], []
        for at in range(0, len(nodes) - 1, 2):
            (x0, one), (x1, other) = pair = nodes[at : at + 2]
            part, factors, middle = *joined(one, other, base), (x0 + x1) / 2
            for (x, _), bottom, factor in zip(pair, bottoms[at : at + 2], factors, strict=True):
                turn = y - APART / 2 + 8
                sheet.strokes([[(x, bottom), (x, turn), (middle, turn), (middle, y)]], GREY, 1.4)
                words = f"× {said(factor)}"
                sheet.text(x + 5, y - APART + 17, words, size=SMALL, bold=factor != 1)
            last = len(nodes) == 2
            _box(sheet, middle, y, (wide, high), part, "all" if last else "merged", last)
            shrunk = all_of(
                [f"{label} by {said(f)}" for (_, (label, *_)), f in zip(pair, factors, strict=True)]
            )
            told.append(f"{shrunk} give {_numbers(part)}.")
            merged, ends = [*merged, (middle, part)], [*ends, y + high]
        if len(nodes) % 2:
            merged, ends = [*merged, nodes[-1]], [*ends, bottoms[-1]]
        nodes, bottoms = merged, ends
    (_, final) = nodes[0]
    y += high
    lines = []
    if len(parts) > 1:
        power = f"{'e' if base == math.e else plain(base)}^(its highest − the higher of the two)"
        what = "Each sum, and each sum of values," if len(final) == 4 else "Each sum"
        lines.append(f"{what} times {power}; then the two are added.")
    if len(final) == 4:
        output = said(final[3] / final[2])
        lines.append(f"Output: values / sum = {said(final[3])} / {said(final[2])} = {output}.")
    for line in lines:
        y += 19
        sheet.text(MARGIN, y, line, size=SIZE)
    first = "; ".join(_numbers(part) for part in parts)
    sheet.title = (
        f"{many(len(parts), 'part')} made into one, two by two: {first}. {' '.join([*told, *lines])}"
    )
    sheet.height = y + 12
    return sheet


def joined(one, other, base=math.e):
    """Two parts -> (their sum as a part, the factor of each)."""
    highest = max(one[1], other[1])
    factors = base ** (one[1] - highest), base ** (other[1] - highest)
    sums = [
        a * factors[0] + b * factors[1] for a, b in zip(one[2:], other[2:], strict=True)
    ]  # of weights, and of weighted values
    return (f"{one[0]}+{other[0]}", highest, *sums), factors


def said(number):
    """Three digits; what is nearly nothing is said to be that."""
    size = abs(number)
    text = "about 0" if 0 < size < 0.0005 else plain(round(size, 4))
    return f"−{text}" if number < 0 else text


def _check(parts):
    if not 1 <= len(parts) <= MOST:
        raise ValueError(f"{len(parts)} parts: there is room for 1 to {MOST}")
    for part in parts:
        if len(part) not in (3, 4) or len(part) != len(parts[0]):
            raise ValueError(f"a part is {part!r}: give (label, highest, sum), or all with a fourth, values")
        if not all(math.isfinite(number) for number in part[1:]) or part[2] < 1:
            raise ValueError(
                f"{part[0]} has the highest {part[1]} and the sum {part[2]}: both are finite, and the sum is "
                "at least 1, which is what the highest score itself brings"
            )


def _numbers(part):
    label, *numbers = part
    names = NAMES[: len(numbers)]
    pairs = [f"{name} {said(number)}" for name, number in zip(names, numbers, strict=True)]
    return f"{label}: {', '.join(pairs)}"


def _box(sheet, x, y, sizes, part, name, final):
    wide, high = sizes
    left, (_, *numbers) = x - wide / 2, part
    sheet.rect(left, y, wide, high, PALE if not final else WHITE, stroke=GREY, tip=_numbers(part))
    if final:
        sheet.rect(left, y, wide, high, "none", stroke=BLUE)
    sheet.rect(left, y, wide, 3, BLUE if final else ORANGE)
    sheet.text(x, y + 16, clipped(name, wide - 6, SIZE, True), size=SIZE, anchor="middle", bold=True)
    for row, (name, number) in enumerate(zip(NAMES, numbers, strict=False)):
        base = y + 31 + 14 * row
        sheet.text(left + 5, base, name, size=SMALL, fill=INK)
        sheet.text(left + wide - 5, base, said(number), size=SMALL, anchor="end", bold=True)
