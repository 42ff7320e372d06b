"""A GPU: many multiprocessors with little memory each, and one large memory beside them."""

import math

from kvlab.viz.blocks.looks import outline
from kvlab.viz.blocks.words import many, wrapped
from kvlab.viz.kernels.looks import MARGIN, SIZE, SMALL, TITLE, WIDTH, arrow, boxed, whole
from kvlab.viz.memory.looks import PARTS, Look
from kvlab.viz.sheet import Sheet
from kvlab.viz.show import GREY, INK, ORANGE, PALE, SKY, VERMILION, WHITE

ARITHMETIC, REGISTERS, SHARED = Look(VERMILION), Look(ORANGE, "", INK), Look(SKY, "", INK)
CACHE, MEMORY = Look(PALE, "", INK), Look(WHITE, "", INK)
TOP, HIGH = 42, 216  # of the chip
ONE, GRID, L2, FAR = (MARGIN, 206), (258, 228), (498, 46), (644, 126)  # (left edge, width) of each part


def gpu(name, multiprocessors, *, registers, shared, cache, memory, bandwidth):
    """What a GPU is made of, from near to far, not to scale -> Picture.

    multiprocessors: how many. registers, shared (of each multiprocessor), cache, memory and bandwidth: in
    words, such as "227 KiB".
    """
    sizes = {"registers": registers, "shared": shared, "cache": cache, "memory": memory}
    return gpu_sheet(name, multiprocessors, bandwidth=bandwidth, **sizes).picture()


def gpu_sheet(name, multiprocessors, *, registers, shared, cache, memory, bandwidth):
    """The same -> Sheet."""
    count = many(whole(multiprocessors, "multiprocessors"), "multiprocessor")
    alt = (
        f"{name}, not to scale: {count}, each with {registers} of registers and {shared} of shared memory; "
        f"an L2 cache of {cache} for all of them; beside the chip {memory} of memory, from which "
        f"{bandwidth} can be read."
    )
    sheet = Sheet(WIDTH, TOP + HIGH + 66, alt)
    sheet.text(MARGIN, 16, f"{name}, from near to far (not to scale)", size=TITLE, bold=True)
    _multiprocessor(sheet, registers, shared)
    square = _squares(sheet, multiprocessors)
    left, right = ONE[0] + ONE[1], GRID[0]
    near = [((left, TOP), (right, TOP)), ((left, TOP + HIGH), (right, TOP + square))]
    sheet.strokes(near, GREY, 1, (3, 3))
    boxed(sheet, L2[0], TOP, L2[1], HIGH, CACHE, tip=f"L2 cache: {cache}")
    middle = TOP + HIGH / 2
    sheet.text(L2[0] + L2[1] / 2 + 4, middle, f"L2 cache {cache}", anchor="middle", turn=-90, bold=True)
    wide = L2[0] + L2[1] - GRID[0]
    outline(sheet, GRID[0] - 8, TOP - 8, wide + 16, HIGH + 16, 1.5)
    boxed(sheet, FAR[0], TOP - 8, FAR[1], HIGH + 16, MEMORY, tip=f"memory: {memory}")
    outline(sheet, FAR[0], TOP - 8, FAR[1], HIGH + 16, 1.5)
    held = (
        ("weights", PARTS["weights"]),
        ("keys and values, in pages", PARTS["keys and values"]),
        ("all else", CACHE),
    )
    high = (HIGH - 16) / len(held)
    for place, (words, look) in enumerate(held):
        top = TOP + place * (high + 8)
        boxed(sheet, FAR[0] + 8, top, FAR[1] - 16, high, look, tip=words)
        lines = wrapped(words, FAR[1] - 26, SMALL)
        for line, text in enumerate(lines):
            y = top + high / 2 + 4 + 14 * (line - (len(lines) - 1) / 2)
            sheet.text(FAR[0] + FAR[1] / 2, y, text, size=SMALL, anchor="middle", fill=look.ink)
    start, end = L2[0] + L2[1] + 14, FAR[0] - 6
    arrow(sheet, (start, middle), (end, middle), INK, 2.2, both=True)
    sheet.text((start + end) / 2, middle - 10, bandwidth, anchor="middle", bold=True)
    _named(sheet, ONE, "one multiprocessor", "a program works here")
    _named(sheet, GRID, count, "each with programs of its own")
    _named(sheet, FAR, f"memory: {memory}", "for all programs")
    return sheet


def _named(sheet, part, words, more):
    middle, y = part[0] + part[1] / 2, TOP + HIGH + 28
    sheet.text(middle, y, words, size=SIZE, anchor="middle", bold=True)
    sheet.text(middle, y + 17, more, size=SMALL, anchor="middle", fill=GREY)


def _multiprocessor(sheet, registers, shared):
    """One of them, enlarged."""
    left, wide = ONE
    outline(sheet, left, TOP, wide, HIGH, 1.5)
    parts = [
        ("arithmetic", "matrix products and all else", ARITHMETIC, 54),
        (f"registers: {registers}", "what a program computes with", REGISTERS, 54),
        (f"shared memory: {shared}", "what is on its way", SHARED, 72),
    ]
    y = TOP + 8
    for words, more, look, high in parts:
        boxed(sheet, left + 8, y, wide - 16, high, look, tip=words)
        middle = left + wide / 2
        sheet.text(middle, y + high / 2 - 3, words, anchor="middle", fill=look.ink, bold=True)
        sheet.text(middle, y + high / 2 + 13, more, size=SMALL, anchor="middle", fill=look.ink)
        y += high + 10


def _squares(sheet, count):
    """A square for each multiprocessor -> the size of one."""
    left, wide = GRID
    columns = math.ceil(math.sqrt(count * wide / HIGH))
    pitch = min(wide / columns, HIGH / -(-count // columns))
    size = 0.84 * pitch
    for number in range(count):
        row, column = divmod(number, columns)
        place = left + column * pitch, TOP + row * pitch, size, size
        sheet.rect(*place, PALE, stroke=GREY, tip=f"multiprocessor {number}")
    inside = (ARITHMETIC, 0.3), (REGISTERS, 0.3), (SHARED, 0.4)
    y = TOP
    for look, part in inside:
        sheet.rect(left, y, size, part * size, look.fill)
        y += part * size
    outline(sheet, left, TOP, size, size, 1.5)
    return size
