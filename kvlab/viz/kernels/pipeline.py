"""A kernel's loop in time: page numbers are looked up, keys and values loaded, and products computed.

A schematic picture: three lengths of time are fixed, and any number of loads may be on their way at once.
"""

from dataclasses import dataclass

from kvlab.viz.blocks.words import many
from kvlab.viz.kernels.looks import MARGIN, SIZE, SMALL, TITLE, WIDTH, whole
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY

LOOK_UP, LOAD, PRODUCT = Look(SKY, "", INK), Look(ORANGE, "/", INK), Look(BLUE)
WAITS = Look(PALE, "x", GREY)
TIMES = {"look-up": 2, "load": 4, "product": 2}  # in units of the picture
WAYS = {
    "ahead": "as written: page numbers looked up a turn ahead",
    "same turn": "as written: page numbers looked up in the same turn",
}
LEFT, ROW, HIGH, MOST = 78, 17, 13, 12  # rows' left edge, from turn to turn, a bar's height; turns


@dataclass(frozen=True)
class Turn:
    """When a turn of the loop has each of its parts, from the one moment to the other."""

    look_up: tuple
    load: tuple
    product: tuple


def pipeline(cases, turns=6):
    """A kernel's loop in time, a row for each tile of tokens, in pipelines of some stages -> Picture.

    cases: (stages, "ahead" or "same turn"): whether page numbers are looked up a turn before the loads that
    need them, or in the same turn.
    """
    return pipeline_sheet(cases, turns).picture()


def pipeline_sheet(cases, turns=6):
    """The same -> Sheet."""
    turns = whole(turns, "turns")
    if turns > MOST or not cases:
        raise ValueError(
            f"{many(len(cases), 'case')}, {turns} turns: draw one case at least, {MOST} turns at most"
        )
    told, timed = [], [(stages, way, schedule(stages, way, turns)) for stages, way in cases]
    longest = max(each[-1].product[1] for *_, each in timed)
    sheet, unit = Sheet(WIDTH, 0, ""), (WIDTH - MARGIN - 34 - LEFT) / longest
    y = 4
    for stages, way, each in timed:
        ahead, end = distance(stages, way), each[-1].product[1]
        loads = f"loads run {many(ahead, 'turn')} ahead" if ahead else "each turn waits for its own loads"
        title = f"{many(stages, 'stage')}: {loads}"
        took = f"{turns} turns take" if turns > 1 else "a turn takes"
        told.append(f"{title}, {WAYS[way]}: {took} {end} units")
        sheet.text(MARGIN, y + 14, title, size=TITLE, bold=True)
        beside = MARGIN + width_of(title, TITLE, True) + 12
        sheet.text(beside, y + 14, WAYS[way], size=SMALL, fill=GREY)
        y = _panel(sheet, y + 22, each, unit) + 12
    words = "time, schematic: a look-up takes {look-up} units, loads {load}, products {product}"
    words = words.format(**TIMES)
    sheet.text(LEFT, y + 8, f"{words} →", size=SMALL, fill=GREY)
    entries = [(LOOK_UP, "page numbers"), (LOAD, "keys and values on their way"), (PRODUCT, "products")]
    entries += [(WAITS, "waits")]
    sheet.title = f"A loop in time, schematic. {'. '.join(told)}. Here {words.split(': ')[1]}."
    sheet.height = sheet.legend(LEFT, y + 30, entries, WIDTH - MARGIN) - 8
    return sheet


def distance(stages, way):
    """How many turns before their products loads are begun.

    Stages are one for the products, and the others for what is on its way. Loads that wait for a look-up in
    their turn share these with it; with 2 stages there is none to share, and the turn waits for the look-up.
    (So Triton 3.7 compiles such loops: with the look-up in the same turn 3 and 4 stages give the same code.)
    """
    stages = whole(stages, "stages")
    if way not in WAYS:
        raise ValueError(f"page numbers are looked up {way!r}; known: {', '.join(WAYS)}")
    return stages - 1 if way == "ahead" or stages < 3 else (stages - 1) // 2


def schedule(stages, way, turns):
    """-> [Turn]. Some loads begin before the loop, at 0, the others when a turn has what it waited for."""
    ahead = distance(stages, way)
    earlier = ahead + 1 if way == "ahead" else 2 * ahead if stages > 2 else ahead
    looked, loaded, done = [], [], []

    def begin(number, start, parts, time):
        """The next of these parts, up to ``number``, which there may not be."""
        if len(parts) <= number < turns:
            parts.append((start, start + time))

    for number in range(turns):
        free = done[-1][1] if done else 0  # from when on this turn can begin
        if number == 0:
            for first in range(earlier):
                begin(first, 0, looked, TIMES["look-up"])
            for first in range(ahead):
                begin(first, looked[min(first, turns - 1)][1], loaded, TIMES["load"])
        ready = max(free, loaded[number][1]) if ahead else free
        begin(number + earlier, ready, looked, TIMES["look-up"])
        if number + ahead < turns:
            begin(number + ahead, max(ready, looked[number + ahead][1]), loaded, TIMES["load"])
        start = max(ready, loaded[number][1])
        if (
            earlier == ahead and number + ahead < turns
        ):  # this turn's loads wait for their look-up, all else too
            start = max(start, looked[number + ahead][1])
        done.append((start, start + TIMES["product"]))
    return [Turn(*parts) for parts in zip(looked, loaded, done, strict=True)]


def _panel(sheet, y, turns, unit):
    """A row a turn, and one of all products -> the y below."""

    def bar(place, part, look, tip):
        (start, end), top = part, y + place * ROW
        at = (LEFT + start * unit, top, (end - start) * unit, HIGH)
        sheet.rect(*at, look.fill, pattern=look.pattern, ink=look.ink, tip=f"{tip}: {start} to {end}")

    end, bottom = turns[-1].product[1], y + len(turns) * ROW + 6
    for moment in range(0, end + 1, 2):
        x = LEFT + moment * unit
        sheet.line(x, y - 2, x, bottom + HIGH, PALE)
    for number, turn in enumerate(turns):
        sheet.text(LEFT - 8, y + number * ROW + 11, f"tile {number}", size=SMALL, anchor="end")
        parts = (LOOK_UP, "page numbers"), (LOAD, "keys and values"), (PRODUCT, "products")
        for (look, name), part in zip(parts, (turn.look_up, turn.load, turn.product), strict=True):
            bar(number, part, look, f"tile {number}, {name}")
    y, last = bottom, 0
    sheet.line(LEFT, y - 3, LEFT + end * unit, y - 3, GREY, 0.8)
    for turn in turns:
        if turn.product[0] > last:
            bar(0, (last, turn.product[0]), WAITS, "waits")
        bar(0, turn.product, PRODUCT, "products")
        last = turn.product[1]
    sheet.text(LEFT - 8, y + 11, "products", size=SMALL, anchor="end", bold=True)
    sheet.text(LEFT + end * unit + 6, y + 11, str(end), size=SIZE, bold=True)
    return y + HIGH
