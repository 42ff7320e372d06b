"""Parts of a softmax, each with its own maximum, made into one."""

import math
from dataclasses import dataclass

from kvlab.viz.blocks.words import all_of, clipped, many
from kvlab.viz.kernels.looks import MARGIN, SIZE, SMALL, TITLE, WIDTH
from kvlab.viz.memory.lines import plain
from kvlab.viz.sheet import Sheet
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, WHITE

NAMES = "highest", "total", "result"
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
    sheet, pitch = Sheet(WIDTH, 0, ""), (WIDTH - 2 * MARGIN) / len(parts)
    sheet.text(MARGIN, 17, f"{many(len(parts), 'part')} made into one", size=TITLE, bold=True)
    wide, high = min(pitch - 6, WIDEST), 14 * len(parts[0]) + 8
    nodes, y, told = [], TOP, []
    for place, (label, *numbers) in enumerate(parts):
        node = Node((str(label), *map(float, numbers)), MARGIN + (place + 0.5) * pitch, y + high)
        _box(sheet, node, (wide, high), str(label), len(parts) == 1)
        nodes.append(node)
    first = "; ".join(_numbers(node.part) for node in nodes)
    while len(nodes) > 1:
        y += high + APART
        pairs, alone = zip(nodes[::2], nodes[1::2], strict=False), nodes[len(nodes) // 2 * 2 :]
        merged = [_merged(sheet, pair, y + high, high, base, told) for pair in pairs]
        for node in merged:
            last = len(nodes) == 2
            _box(sheet, node, (wide, high), "all" if last else "merged", last)
        nodes = merged + alone
    lines = _lines(nodes[0].part, base, len(parts))
    for row, line in enumerate(lines, 1):
        sheet.text(MARGIN, y + high + 19 * row, line, size=SIZE)
    title = f"{many(len(parts), 'part')} made into one, two by two: {first}."
    sheet.title, sheet.height = " ".join([title, *told, *lines]), y + high + 19 * len(lines) + 12
    return sheet


@dataclass(frozen=True)
class Node:
    """A part, and the middle of its box's lower edge."""

    part: tuple
    x: float
    bottom: float


def _merged(sheet, pair, bottom, high, base, told):
    """What two parts give, and lines from them to it -> Node."""
    part, factors = joined(*(node.part for node in pair), base)
    top, x = bottom - high, sum(node.x for node in pair) / 2
    for node, factor in zip(pair, factors, strict=True):
        turn = top - APART / 2 + 8
        sheet.strokes([[(node.x, node.bottom), (node.x, turn), (x, turn), (x, top)]], GREY, 1.4)
        sheet.text(node.x + 5, top - APART + 17, f"× {said(factor)}", size=SMALL, bold=factor != 1)
    shrunk = [f"{node.part[0]} by {said(factor)}" for node, factor in zip(pair, factors, strict=True)]
    told.append(f"{all_of(shrunk)} give {_numbers(part)}.")
    return Node(part, x, bottom)


def _lines(final, base, count):
    """What is done with the numbers, in words."""
    lines = []
    if count > 1:
        power = f"{'e' if base == math.e else plain(base)}^(its highest − the higher of the two)"
        what = "Each total, and each result," if len(final) == 4 else "Each total"
        lines.append(f"{what} times {power}; then the two are added.")
    if len(final) == 4:
        output = said(final[3] / final[2])
        lines.append(f"Output: result / total = {said(final[3])} / {said(final[2])} = {output}.")
    return lines


def joined(one, other, base=math.e):
    """Two parts -> (their sum as a part, the factor of each)."""
    highest = max(one[1], other[1])
    factors = base ** (one[1] - highest), base ** (other[1] - highest)
    # Of weights, and of weighted values:
    sums = [a * factors[0] + b * factors[1] for a, b in zip(one[2:], other[2:], strict=True)]
    return (f"{one[0]}+{other[0]}", highest, *sums), factors


def said(number):
    """Three digits; what is nearly nothing is said to be that."""
    size = abs(number)
    if 0 < size < 0.0005:
        return "about 0"
    return "−" * (number < 0) + plain(round(size, 4))


def _check(parts):
    if not 1 <= len(parts) <= MOST:
        raise ValueError(f"{len(parts)} parts: there is room for 1 to {MOST}")
    for part in parts:
        if len(part) not in (3, 4) or len(part) != len(parts[0]):
            raise ValueError(
                f"a part is {part!r}: give (label, highest, total), or all with a fourth, a result"
            )
        if not all(math.isfinite(number) for number in part[1:]) or part[2] < 1:
            raise ValueError(
                f"{part[0]} has the highest {part[1]} and the total {part[2]}: both are finite, the total "
                "is at least 1, which is what the highest score itself brings"
            )


def _numbers(part):
    label, *numbers = part
    pairs = [f"{name} {said(number)}" for name, number in zip(NAMES, numbers, strict=False)]
    return f"{label}: {', '.join(pairs)}"


def _box(sheet, node, sizes, name, final):
    wide, high = sizes
    left, top, (_, *numbers) = node.x - wide / 2, node.bottom - high, node.part
    fill, edge = (WHITE, BLUE) if final else (PALE, GREY)
    sheet.rect(left, top, wide, high, fill, stroke=edge, tip=_numbers(node.part))
    sheet.rect(left, top, wide, 3, BLUE if final else ORANGE)
    name = clipped(name, wide - 6, SIZE, True)
    sheet.text(node.x, top + 16, name, size=SIZE, anchor="middle", bold=True)
    for row, (words, number) in enumerate(zip(NAMES, numbers, strict=False)):
        base = top + 31 + 14 * row
        sheet.text(left + 5, base, words, size=SMALL, fill=INK)
        sheet.text(left + wide - 5, base, said(number), size=SMALL, anchor="end", bold=True)
