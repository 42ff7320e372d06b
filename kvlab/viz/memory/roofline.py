"""A roofline with the steps of a model on it, and the time of decode split into what it is spent on."""

import math
from dataclasses import dataclass

from kvlab.viz.memory.lines import Scale, log_words, plain, ticks
from kvlab.viz.memory.looks import PARTS, Look
from kvlab.viz.memory.pages import duration
from kvlab.viz.sheet import Sheet, spin
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, SKY, VERMILION, WHITE

WIDTH, HEIGHT = 430, 348
LEFT, RIGHT, TOP, BOTTOM = 58, 416, 48, 46
READING = 0.68  # of a bar's width; the rest is the arithmetic beside it
ARITHMETIC = Look(VERMILION)
PHASES = {"prefill": (ORANGE, "s"), "decode": (BLUE, "o")}


@dataclass(frozen=True)
class Point:
    """A step on the roofline: FLOPs a byte, and FLOPs a second that the roof allows."""

    phase: str  # of PHASES
    words: str
    intensity: float
    rate: float

    @classmethod
    def of(cls, phase, words, flops, seconds, intensity):
        """Of a step's FLOPs and its time."""
        return cls(phase, words, intensity, flops / seconds)


@dataclass(frozen=True)
class Bar:
    """One decode step of a batch: bytes of weights and of cache that it reads, and the seconds these take.

    compute_s: the seconds of its arithmetic, which runs at the same time. fits: whether the device holds it.
    """

    batch: int
    weights: int
    kv: int
    read_s: float
    compute_s: float
    fits: bool = True


def roofline(bandwidth, rate, points, trail, title):
    """bandwidth in bytes a second, rate in FLOPs a second (None where unknown) -> Sheet.

    points: Points that are named, none for the roof alone. trail: (FLOPs a byte, FLOPs a second) of decode at
    other batch sizes.
    """
    across, up = roof_scales(bandwidth, rate, points, trail)
    sheet = Sheet(WIDTH, HEIGHT, f"{title}. {roof_words(bandwidth, rate, points)}")
    sheet.text(8, 17, title, size=13, bold=True)
    _axes(sheet, across, up)
    low, high = across.ends
    start, ridge = (
        max(low, up.ends[0] / bandwidth),
        rate / bandwidth if rate else min(high, up.ends[1] / bandwidth),
    )
    foot, top = (across(start), up(start * bandwidth)), (across(ridge), up(ridge * bandwidth))
    sheet.strokes([[foot, top, *([(RIGHT, top[1])] if rate else [])]], INK, 2.2)
    angle = math.degrees(math.atan2(top[1] - foot[1], top[0] - foot[0]))
    x, y = (foot[0] + top[0]) / 2, (foot[1] + top[1]) / 2
    aside, above = spin(0, -12, angle)
    sheet.text(x + aside, y + above, f"{plain(bandwidth / 1e9)} GB/s", anchor="middle", turn=angle, size=11.5)
    if rate:
        sheet.text(RIGHT, top[1] - 8, f"{flops_words(rate)} in 16 bits", anchor="end", size=11.5)
        sheet.line(*top, top[0], HEIGHT - BOTTOM, GREY, 1, dash=(2, 3))
        words, x, y = f"ridge: {plain(ridge)}", top[0], HEIGHT - BOTTOM - 7
        sheet.place([(x + 5, y, "start"), (x - 5, y, "end")], words, size=11.5, fill=GREY)
    _points(sheet, points, trail, rate, across, up)
    if trail:
        sheet.mark(17, HEIGHT + 14, BLUE, radius=3, hollow=True)
        sheet.text(28, HEIGHT + 18, "decode of the other batches that fit")
        sheet.height = HEIGHT + 28
    return sheet


def roof_scales(bandwidth, rate, points, trail):
    """Whole decades that hold the roof's ridge and every point."""
    spots = [(point.intensity, point.rate) for point in points] + list(trail)
    if rate:
        spots.append((rate / bandwidth, rate))
    if not points:
        spots.append((1, bandwidth))
    xs, ys = zip(*spots, strict=True)
    left, right = decade(min(*xs, 1), -0.1), decade(max(*xs, 1e3), 0.2, up=True)
    low, high = decade(min(ys), -0.25), decade(max(ys), 0.3, up=True)
    return Scale(left, right, LEFT, RIGHT), Scale(low, high, HEIGHT - BOTTOM, TOP)


def decade(value, room, up=False):
    power = math.log10(value) + room
    return 10.0 ** (math.ceil(power) if up else math.floor(power))


def roof_words(bandwidth, rate, points):
    roof = f"Bandwidth {plain(bandwidth / 1e9)} GB/s, "
    roof += f"arithmetic {flops_words(rate)}" if rate else "arithmetic rate unknown"
    roof += f", ridge at {plain(rate / bandwidth)} FLOPs a byte. " if rate else ". "
    said = "; ".join(
        f"{point.words}: {plain(point.intensity)} FLOPs a byte, about {flops_words(point.rate)}"
        for point in points
    )
    return f"{roof}{said}.".removesuffix(" .")


def flops_words(rate):
    for unit, one in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if rate >= one:
            return f"{plain(rate / one)} {unit}"
    return f"{plain(rate / 1e6)} MFLOP/s"


def _axes(sheet, across, up):
    for tick in ticks(*up.ends, 10, 1):
        y = up(tick)
        sheet.line(LEFT, y, RIGHT, y)
        sheet.text(LEFT - 6, y + 4, flops_words(tick).replace("FLOP/s", ""), anchor="end", fill=GREY, size=11)
    shown = ticks(*across.ends, 10, 1)
    for tick in shown:
        x = across(tick)
        sheet.line(x, TOP, x, HEIGHT - BOTTOM)
        words = (
            plain(tick)
            if tick < 1e3
            else f"{plain(tick / 1e3)} k"
            if tick < 1e6
            else f"{plain(tick / 1e6)} M"
        )
        anchor = "end" if x > RIGHT - 10 else "middle"
        sheet.text(x + 6 * (anchor == "end"), HEIGHT - BOTTOM + 16, words, anchor=anchor, fill=GREY, size=11)
    below = f"FLOPs for each byte read ({log_words(shown)})"
    sheet.text((LEFT + RIGHT) / 2, HEIGHT - 8, below, anchor="middle", size=11.5)
    sheet.text(LEFT - 50, TOP - 9, "FLOP/s (log scale)", size=11, fill=GREY)


def _points(sheet, points, trail, rate, across, up):
    for spot in trail:
        sheet.mark(across(spot[0]), up(spot[1]), BLUE, radius=3, hollow=True)
    for point in points:
        color, mark = PHASES[point.phase]
        x, y = across(point.intensity), up(point.rate)
        sheet.mark(x, y, color, mark, radius=6.5, tip=f"{point.words}: {plain(point.intensity)} FLOPs a byte")
        # On the slope there is room to the lower right and upper left, below the flat part at the right edge.
        places = [(x + 12, y + 16 + 15 * row, "start") for row in range(4)]
        if rate is None or point.rate < 0.999 * rate:
            places += [(x + 14, y + 4 - 14 * row, "start") for row in range(2)]
            places += [(x - 12, y - 8 - 15 * row, "end") for row in range(3)]
        places += [(RIGHT, y + 22 + 15 * row, "end") for row in range(4)]
        sheet.place(places, point.words, bold=True, halo=True)


def step_bars(bars, chosen, per, title):
    """Decode steps of growing batches, each split into reading weights and reading cache -> Sheet.

    chosen: a batch, which is marked. per: "step", or "token": the step's time shared out over its batch.
    """
    times = [_times(bar, per) for bar in bars]
    unit, one = time_unit(max(map(max, times)))
    floors = [plain3(max(each) / one) for each in times]
    sheet = Sheet(WIDTH, 0, f"{title}, in {unit}. {bar_words(bars, floors, unit)}")
    sheet.text(8, 17, f"{title}, in {unit}", size=13, bold=True)
    base, left = HEIGHT - BOTTOM - 22, 12
    scale, pitch = (base - TOP - 14) / max(map(max, times)), (RIGHT - left) / len(bars)
    for place, (bar, (read, compute), floor) in enumerate(zip(bars, times, floors, strict=True)):
        x, wide, picked = left + place * pitch + 3, pitch - 6, bar.batch == chosen
        _stack(sheet, bar, x, base, READING * wide, read * scale)
        _beside(sheet, bar, x + READING * wide + 1, base, (1 - READING) * wide - 1, compute * scale)
        if picked:
            sheet.rect(x - 3, base + 4, wide + 6, 19, SKY, opacity=0.45)
        top, words = base - max(read, compute) * scale - 5, {"anchor": "middle", "bold": picked}
        sheet.text(x + wide / 2, top, floor, size=11, **words)
        sheet.text(x + wide / 2, base + 18, str(bar.batch), **words)
    sheet.line(left, base, RIGHT, base, GREY)
    sheet.text((left + RIGHT) / 2, base + 36, "sequences in the batch", anchor="middle")
    entries = [(PARTS["weights"], "reading weights"), (PARTS["keys and values"], "reading keys and values")]
    if tallest := max(compute for _, compute in times):
        seen = "the taller one counts" if tallest * scale >= 1 else "too short to be seen"
        entries.append((ARITHMETIC, f"arithmetic, at the same time: {seen}"))
    if not all(bar.fits for bar in bars):
        entries.append((Look("#B9CFDD", "x"), "too much for the device"))
    sheet.height = sheet.legend(left, base + 60, entries, RIGHT) - 8
    return sheet


def _times(bar, per):
    """(reading, arithmetic) in seconds, of the step or of one of its tokens."""
    share = bar.batch if per == "token" else 1
    return bar.read_s / share, bar.compute_s / share


def _stack(sheet, bar, x, base, wide, tall):
    """What is read, the weights below; pale and crossed where the device cannot hold it."""
    y = base
    for name, part in (("weights", bar.weights), ("keys and values", bar.kv)):
        high = tall * part / max(bar.weights + bar.kv, 1)
        tip, opacity = f"{name}: {part:,} bytes", 1 if bar.fits else 0.3
        sheet.rect(x, y - high, wide, high, PARTS[name].fill, opacity=opacity, tip=tip)
        y -= high
    if not bar.fits:
        sheet.rect(x, y, wide, base - y, "none", pattern="x", ink=WHITE)


def _beside(sheet, bar, x, base, wide, tall):
    """The arithmetic of a step, where it is tall enough to be seen."""
    if tall >= 1:
        opacity, tip = 1 if bar.fits else 0.3, f"arithmetic: {duration(bar.compute_s)}"
        sheet.rect(x, base - tall, wide, tall, ARITHMETIC.fill, opacity=opacity, tip=tip)


def time_unit(seconds):
    """(name, seconds) of the unit in which a time is read best."""
    units = (("h", 3600, 7200), ("min", 60, 600), ("s", 1, 10), ("ms", 1e-3, 1e-3), ("µs", 1e-6, 0))
    return next((name, one) for name, one, least in units if seconds >= least)


def plain3(value):
    """Three digits, and two below one."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if value >= 1 else f"{value:#.2g}"


def bar_words(bars, floors, unit):
    said = ", ".join(f"{bar.batch}: {floor} {unit}" for bar, floor in zip(bars, floors, strict=True))
    return f"By sequences in the batch: {said}."
