"""Shared memory against the stages of a kernel's pipeline."""

from kvlab.viz.blocks.words import many
from kvlab.viz.kernels.looks import HIGHLIGHT, MARGIN, SIZE, SMALL, TITLE, WIDTH
from kvlab.viz.memory.lines import plain
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREEN, GREY, INK, ORANGE, SKY

LOOKS = (Look(BLUE), Look(ORANGE, "/", INK), Look(SKY, ".", INK), Look(GREEN, "x"))
LEFT, TOP, HIGH = 52, 62, 180


def stage_bars(series, limit=None):
    """Shared memory of a program in KiB, a bar for each number of stages and variant -> Picture.

    series: {name of a variant: {stages: KiB}}. limit: KiB that there are, as a line.
    """
    return stage_bars_sheet(series, limit).picture()


def stage_bars_sheet(series, limit=None):
    """The same -> Sheet."""
    _check(series, limit)
    stages = sorted({number for sizes in series.values() for number in sizes})
    told = "; ".join(f"{name}: {_told(sizes)}" for name, sizes in series.items())
    line = f" There are {plain(limit)} KiB." if limit else ""
    sheet = Sheet(WIDTH, 0, f"Shared memory of a program in KiB, by stages. {told}.{line}")
    sheet.text(MARGIN, 17, "Shared memory of a program, in KiB", size=TITLE, bold=True)
    most = max(limit or 0, *(size for sizes in series.values() for size in sizes.values())) or 1
    scale, base, right = HIGH / most, TOP + HIGH, WIDTH - MARGIN
    pitch = (right - LEFT) / len(stages)
    wide, labels = min(0.8 * pitch / len(series), 64), []
    for tick in _ticks(most):
        y = base - tick * scale
        sheet.line(LEFT, y, right, y)
        sheet.text(LEFT - 6, y + 4, plain(tick), size=SMALL, anchor="end", fill=GREY)
    for place, number in enumerate(stages):
        middle = LEFT + (place + 0.5) * pitch
        sheet.text(middle, base + 17, str(number), size=SIZE, anchor="middle", bold=True)
        for at, (name, sizes) in enumerate(series.items()):
            if number in sizes:
                look, high = LOOKS[at], sizes[number] * scale
                x, tip = middle + (at - len(series) / 2) * wide, f"{name}, {many(number, 'stage')}"
                tip = f"{tip}: {plain(sizes[number])} KiB"
                bar = (x + 1, base - high, wide - 2, high)
                sheet.rect(*bar, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
                labels.append((x + wide / 2, base - high - 5, plain(sizes[number])))
    sheet.line(LEFT, base, right, base, GREY)
    sheet.text((LEFT + right) / 2, base + 35, "stages of the pipeline", size=SMALL, anchor="middle")
    if limit:
        y, words = base - limit * scale, f"- - -  all that a multiprocessor gives a program: {plain(limit)}"
        sheet.line(LEFT, y, right, y, HIGHLIGHT, 1.8, dash=(6, 4))
        sheet.text(right, 17, words, size=SMALL, anchor="end", fill=HIGHLIGHT, bold=True)
    _label(sheet, labels, wide)
    entries = [(look, name) for look, name in zip(LOOKS, series, strict=False)]
    sheet.height = sheet.legend(LEFT, base + 60, entries, right) - 8
    return sheet


def _label(sheet, labels, wide):
    """A number on each bar, upright where there is room."""
    if max(width_of(words, SMALL) for *_, words in labels) <= wide:
        for x, y, words in labels:
            sheet.place([(x, y, "middle")], words, halo=True, size=SMALL)
    else:
        for x, y, words in labels:
            sheet.text(x + 4, y, words, size=SMALL, turn=-90)


def _check(series, limit):
    if not series or not all(series.values()):
        raise ValueError("there is nothing to draw: give {name: {stages: KiB}}")
    if len(series) > len(LOOKS):
        raise ValueError(f"{len(series)} variants cannot be told apart; draw {len(LOOKS)} at most")
    sizes = [size for each in series.values() for size in each.values()]
    if min(sizes) < 0 or (limit is not None and limit <= 0):
        raise ValueError(
            f"the smallest size is {min(sizes)} KiB, the limit {limit}: neither is below nothing"
        )


def _told(sizes):
    return ", ".join(f"{many(number, 'stage')} {plain(size)}" for number, size in sorted(sizes.items()))


def _ticks(most):
    """Round numbers up to ``most``, four to eight of them."""
    power = 1.0
    while most / power > 8:
        power *= 2
    while most / power < 4:
        power /= 2
    return [power * number for number in range(int(most / power) + 1)]
