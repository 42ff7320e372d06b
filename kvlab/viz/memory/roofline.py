"""A roofline with the steps of a model on it, and the time of decode split into what it is spent on."""

import math
from dataclasses import dataclass

from kvlab.viz.memory.lines import Scale, plain, ticks
from kvlab.viz.memory.looks import PARTS, Look
from kvlab.viz.memory.svg import Drawing, width_of
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY, VERMILION

WIDTH, HEIGHT = 430, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 416, 40, 46
PHASES = {"prefill": (ORANGE, "s"), "decode": (BLUE, "o")}


@dataclass(frozen=True)
class Point:
    """A step on the roofline: FLOPs a byte, and FLOPs a second that it reaches at most."""

    phase: str  # of PHASES
    words: str
    intensity: float
    rate: float


@dataclass(frozen=True)
class Bar:
    """One decode step of a batch: bytes of weights and of cache that it reads, and the seconds these take.

    compute_s: the seconds of its arithmetic, which runs beside the reading. fits: whether the device holds it.
    """

    batch: int
    weights: int
    kv: int
    read_s: float
    compute_s: float
    fits: bool = True


def roofline_svg(bandwidth, rate, points, trail, title):
    """bandwidth in bytes a second, rate in FLOPs a second (None where unknown); -> SVG string.

    points: Points that are named. trail: (FLOPs a byte, FLOPs a second) of decode at other batch sizes.
    """
    across, up = roof_scales(bandwidth, rate, points, trail)
    drawing = Drawing(WIDTH, HEIGHT, f"{title}. {roof_words(bandwidth, rate, points)}")
    drawing.text(8, 17, title, size=13, bold=True)
    _axes(drawing, across, up)
    low, high = across.ends
    ridge = rate / bandwidth if rate else high
    start = max(low, up.ends[0] / bandwidth)
    corner = (across(ridge), up(ridge * bandwidth))
    path = f"M{across(start):.1f} {up(start * bandwidth):.1f}L{corner[0]:.1f} {corner[1]:.1f}"
    drawing.path(path + (f"H{RIGHT}" if rate else ""), INK, 2.2)
    angle = math.degrees(math.atan2(corner[1] - up(start * bandwidth), corner[0] - across(start)))
    middle = math.sqrt(start * ridge)
    x, y = across(middle), up(middle * bandwidth)
    drawing.text(
        x - 5, y - 7, f"{plain(bandwidth / 1e9)} GB/s", anchor="middle", turn=angle, fill=INK, size=11.5
    )
    if rate:
        drawing.text(RIGHT, corner[1] - 7, f"{flops_words(rate)} in 16 bits", anchor="end", size=11.5)
        drawing.line(corner[0], corner[1], corner[0], HEIGHT - BOTTOM, GREY, 1, dash="2 3")
        words, x, y = f"corner: {plain(ridge)}", corner[0], HEIGHT - BOTTOM - 7
        drawing.place([(x + 5, y, "start"), (x - 5, y, "end")], words, size=11.5, fill=GREY)
    _points(drawing, points, trail, across, up)
    return str(drawing)


def roof_scales(bandwidth, rate, points, trail):
    """Whole decades that hold the roof's corner and every point."""
    spots = [(point.intensity, point.rate) for point in points] + list(trail)
    if rate:
        spots.append((rate / bandwidth, rate))
    xs, ys = zip(*spots, strict=True)
    left, right = decade(min(*xs, 1), -0.1), decade(max(*xs, 1e3), 0.2, up=True)
    low, high = decade(min(ys), -0.25), decade(max(ys), 0.3, up=True)
    return Scale(left, right, LEFT, RIGHT), Scale(low, high, HEIGHT - BOTTOM, TOP)


def decade(value, room, up=False):
    power = math.log10(value) + room
    return 10.0 ** (math.ceil(power) if up else math.floor(power))


def roof_words(bandwidth, rate, points):
    roof = f"Bandwidth {plain(bandwidth / 1e9)} GB/s, "
    roof += f"arithmetic {flops_words(rate)}. " if rate else "arithmetic rate unknown. "
    return roof + "; ".join(
        f"{point.words}: {plain(point.intensity)} FLOPs a byte, at most {flops_words(point.rate)}"
        for point in points
    )


def flops_words(rate):
    for unit, one in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if rate >= one:
            return f"{plain(rate / one)} {unit}"
    return f"{plain(rate / 1e6)} MFLOP/s"


def _axes(drawing, across, up):
    for tick in ticks(*up.ends, 10, 1):
        y = up(tick)
        drawing.line(LEFT, y, RIGHT, y)
        drawing.text(LEFT - 6, y + 4, flops_words(tick).replace("FLOP/s", ""), anchor="end", fill=GREY, size=11)
    shown = ticks(*across.ends, 10, 1)
    for tick in shown:
        x = across(tick)
        drawing.line(x, TOP, x, HEIGHT - BOTTOM)
        words = plain(tick) if tick < 1e6 else f"{plain(tick / 1e6)}M"
        anchor = "end" if x > RIGHT - 10 else "middle"
        drawing.text(x + 6 * (anchor == "end"), HEIGHT - BOTTOM + 16, words, anchor=anchor, fill=GREY, size=11)
    drawing.text((LEFT + RIGHT) / 2, HEIGHT - 8, "FLOPs for each byte read", anchor="middle", size=12)
    drawing.text(LEFT - 50, TOP - 9, "FLOP/s", size=11, fill=GREY)


def _points(drawing, points, trail, across, up):
    for intensity, rate in trail:
        drawing.mark(across(intensity), up(rate), BLUE, radius=3, hollow=True)
    for point in points:
        color, mark = PHASES[point.phase]
        x, y = across(point.intensity), up(point.rate)
        drawing.mark(x, y, color, mark, radius=6.5, tip=f"{point.words}: {plain(point.intensity)} FLOPs a byte")
        # On the slope there is room to the lower right, on the flat part below.
        places = [(x + 12, y + 16 + 15 * row, "start") for row in range(4)]
        places += [(min(x + 6, RIGHT), y + 22 + 15 * row, "end") for row in range(4)]
        drawing.place(places, point.words, size=12, bold=True)


def step_bars_svg(bars, chosen, per, title):
    """Decode steps of growing batches, each split into reading weights and reading cache -> SVG string.

    chosen: a batch, which is marked. per: "step", or "token": the step's time shared out over its batch.
    """
    share = {bar.batch: bar.batch if per == "token" else 1 for bar in bars}
    floors = [max(bar.read_s, bar.compute_s) / share[bar.batch] * 1000 for bar in bars]
    top = max(floors) or 1
    drawing = Drawing(WIDTH, HEIGHT, f"{title}. {bar_words(bars, floors, per)}")
    drawing.text(8, 17, title, size=13, bold=True)
    base, tall = HEIGHT - BOTTOM - 22, HEIGHT - BOTTOM - 22 - TOP - 14
    pitch = (RIGHT - 12) / len(bars)
    for place, (bar, floor) in enumerate(zip(bars, floors, strict=True)):
        x, wide = 12 + place * pitch + 4, pitch - 8
        y, read = base, tall * bar.read_s * 1000 / share[bar.batch] / top
        for name, part in (("weights", bar.weights), ("keys and values", bar.kv)):
            look, high = PARTS[name], read * part / max(bar.weights + bar.kv, 1)
            drawing.rect(x, y - high, wide, high, look.fill, opacity=1 if bar.fits else 0.3, tip=name)
            y -= high
        if not bar.fits:
            drawing.rect(x, y, wide, base - y, "none", pattern="x", ink="white")
        compute = base - tall * bar.compute_s * 1000 / share[bar.batch] / top
        drawing.line(x - 2, compute, x + wide + 2, compute, VERMILION, 2.5)
        picked = bar.batch == chosen
        if picked:
            drawing.rect(x - 3, base + 4, wide + 6, 19, SKY, opacity=0.45)
        drawing.text(x + wide / 2, min(y, compute) - 5, plain3(floor), size=11, anchor="middle", bold=picked)
        drawing.text(x + wide / 2, base + 18, str(bar.batch), size=12, anchor="middle", bold=picked)
    drawing.line(12, base, RIGHT, base, GREY)
    drawing.text((12 + RIGHT) / 2, base + 36, "sequences in the batch", anchor="middle")
    entries = [(PARTS["weights"], "weights"), (PARTS["keys and values"], "keys and values")]
    entries.append((Look(VERMILION), "arithmetic, beside them"))
    if not all(bar.fits for bar in bars):
        entries.append((Look("#B9CFDD", "x"), "too much for the device"))
    drawing.height = drawing.legend(12, base + 60, entries, RIGHT) - 8
    return str(drawing)


def plain3(milliseconds):
    """Three digits, or two below a tenth."""
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def bar_words(bars, floors, per):
    said = ", ".join(f"{bar.batch}: {plain3(floor)} ms" for bar, floor in zip(bars, floors, strict=True))
    return f"At least, for each {per}, by sequences in the batch: {said}."


__all__ = ["PALE", "PHASES", "Bar", "Point", "bar_words", "roof_words", "roofline_svg", "step_bars_svg", "width_of"]
