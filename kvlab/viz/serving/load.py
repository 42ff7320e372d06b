"""A served workload against the clock: who runs and who waits, blocks held, and how long steps take."""

import math
from dataclasses import dataclass

from kvlab.viz.memory.lines import plain
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, VERMILION

WIDTH, LEFT, RIGHT, SMALL, SIZE = 780, 56, 16, 11, 12
HIGH, APART = 64, 34  # of a panel, and between two
RUNNING, WAITING, HELD, LONGEST = Look(BLUE), Look(ORANGE, "/", INK), Look(SKY, ink=INK), Look(GREEN)


@dataclass
class Moment:
    """The most of each in a stretch of time."""

    running: int = 0
    waiting: int = 0
    held: int = 0
    milliseconds: float = 0.0
    preempted: bool = False


def load_sheet(trace, bins=140):
    """Three panels over the seconds of a trace, each column the most in a stretch of time -> Sheet."""
    steps = [step for step in trace.steps if step.ran]
    end = max((step.began + step.seconds for step in steps), default=0.0) or 1.0
    moments, preempted = _moments(steps, end, bins), sum(len(step.preempted) for step in steps)
    most = {name: max(getattr(each, name) for each in moments) for name in vars(moments[0])}
    running, waiting = (
        max((len(each.ran) for each in steps), default=0),
        max((s.waiting for s in steps), default=0),
    )
    words = (
        f"{plain(end)} seconds: at most {running} texts run and {waiting} wait, at most "
        f"{most['held']:,} of {trace.num_blocks:,} blocks are held, texts are preempted {preempted} times, "
        f"and the longest step takes {plain(most['milliseconds'])} ms."
    )
    sheet = Sheet(WIDTH, 3 * (HIGH + APART) + 22, words)
    texts = [(each.running, each.waiting) for each in moments]
    beside = _named(sheet, LEFT, 14, RUNNING, "texts that run")
    _named(sheet, beside, 14, WAITING, "texts that wait")
    y = _panel(sheet, 22, texts, max(map(sum, texts)), (RUNNING, WAITING))
    beside = _named(sheet, LEFT, y - 8, HELD, "blocks held, % of the pool")
    if preempted:
        sheet.mark(beside + 6, y - 12, VERMILION, "X")
        sheet.text(beside + 17, y - 8, "a text is preempted", size=SIZE, bold=True)
    share = [(100 * each.held / trace.num_blocks,) for each in moments]
    top, y = y, _panel(sheet, y, share, 100, (HELD,))
    for place, each in enumerate(moments):
        if each.preempted:
            x = LEFT + (place + 0.5) * (WIDTH - LEFT - RIGHT) / bins
            sheet.mark(x, top, VERMILION, "X", radius=4)
    _named(sheet, LEFT, y - 8, LONGEST, "longest step, ms")
    times = [(each.milliseconds,) for each in moments]
    y = _panel(sheet, y, times, most["milliseconds"], (LONGEST,))
    _seconds(sheet, y - APART + 18, end)
    return sheet


def _moments(steps, end, bins):
    moments = [Moment() for _ in range(bins)]
    for step in steps:
        first = min(int(bins * step.began / end), bins - 1)
        last = math.ceil(bins * (step.began + step.seconds) / end - 1e-9)
        for moment in moments[first : max(last, first + 1)]:
            if len(step.ran) + step.waiting > moment.running + moment.waiting:
                moment.running, moment.waiting = len(step.ran), step.waiting
            moment.held = max(moment.held, step.held)
            moment.milliseconds = max(moment.milliseconds, 1000 * step.seconds)
        moments[first].preempted |= bool(step.preempted)
    return moments


def _named(sheet, x, y, look, words):
    """A swatch and what it stands for -> where the next may begin."""
    sheet.rect(x, y - 10, 12, 12, look.fill, pattern=look.pattern, ink=look.ink)
    sheet.text(x + 17, y, words, size=SIZE, bold=True)
    return x + 17 + width_of(words, SIZE, True) + 16


def _panel(sheet, top, columns, most, looks):
    """Stacked columns -> where the next panel begins."""
    base, most = top + HIGH, most or 1
    wide = (WIDTH - LEFT - RIGHT) / len(columns)
    for value, at in ((most, top), (0, base)):
        sheet.line(LEFT, at, WIDTH - RIGHT, at, GREY if at == base else PALE)
        sheet.text(LEFT - 6, at + 4, plain(value), size=SMALL, anchor="end", fill=GREY)
    for place, look in enumerate(looks):
        for first, last, (below, value) in _runs([(sum(each[:place]), each[place]) for each in columns]):
            high = HIGH * value / most
            y = base - HIGH * below / most - high
            x, length = LEFT + first * wide, (last - first) * wide
            sheet.rect(x, y, length, high, look.fill, pattern=look.pattern, ink=look.ink)
    return base + APART


def _runs(pairs):
    """Equal neighbours that are not empty, as (first, behind the last, pair)."""
    first = 0
    for number in range(1, len(pairs) + 1):
        if number == len(pairs) or pairs[number] != pairs[first]:
            if pairs[first][1]:
                yield first, number, pairs[first]
            first = number


def _seconds(sheet, y, end):
    """Round numbers of seconds, four to ten of them."""
    power = 10 ** math.floor(math.log10(end))
    step = next(power * part for part in (0.2, 0.5, 1) if end / (power * part) < 10)
    for number in range(int(end / step + 1e-9) + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * number * step / end
        words = plain(number * step) + (" s" if number == 0 else "")
        sheet.text(x, y, words, size=SMALL, anchor="middle", fill=GREY)
