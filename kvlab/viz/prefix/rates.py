"""How much a prefix cache finds, against the size of its pool."""

from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREY, INK, PALE, VERMILION, WHITE

WIDTH, HIGH, LEFT, RIGHT, TOP = 780, 210, 56, 20, 34
SIZE, SMALL = 12, 11


def rates_sheet(rates, at, best, title):
    """rates: [(slots of the pool, part of the tokens that is found)], None where a text does not fit.

    at: the slots of the chosen pool. best: the part that is found in a pool without end -> Sheet.
    """
    told = ", ".join(f"{slots:,} slots {said(rate)}" for slots, rate in rates)
    words = f"{title}. Tokens found against slots of the pool: {told}. In a pool without end {said(best)}."
    sheet = Sheet(WIDTH, TOP + HIGH + 44, words)
    sheet.text(LEFT, 16, title, size=SIZE, bold=True)
    step = (WIDTH - LEFT - RIGHT) / len(rates)
    places = {slots: LEFT + (number + 0.5) * step for number, (slots, _) in enumerate(rates)}
    small = [slots for slots, rate in rates if rate is None]
    if small:
        sheet.rect(LEFT, TOP, len(small) * step, HIGH, WHITE, pattern="/", ink=PALE)
    for percent in (0, 25, 50, 75, 100):
        y = height(percent / 100)
        sheet.line(LEFT, y, WIDTH - RIGHT, y, PALE if percent else GREY)
        sheet.text(LEFT - 6, y + 4, f"{percent}%", size=SMALL, anchor="end", fill=GREY)
    for slots, x in places.items():
        chosen = {"fill": BLUE, "bold": True} if slots == at else {"fill": GREY}
        sheet.text(x, TOP + HIGH + 17, f"{slots:,}", size=SMALL, anchor="middle", **chosen)
    middle = (LEFT + WIDTH - RIGHT) / 2
    sheet.text(middle, TOP + HIGH + 36, "slots of the pool", size=SMALL, anchor="middle")
    if small:
        middle = LEFT + len(small) * step / 2
        told = "too small for a text" if len(small) > 1 else "too small"
        room = width_of(told, SMALL) + 6
        sheet.rect(middle - room / 2, TOP + HIGH / 2 - 12, room, 17, WHITE)
        sheet.text(middle, TOP + HIGH / 2, told, size=SMALL, anchor="middle", fill=GREY)
    y = height(best)
    sheet.line(LEFT, y, WIDTH - RIGHT, y, INK, 1.3, dash=(5, 3))
    x = places[at]
    sheet.line(x, TOP, x, TOP + HIGH, BLUE, 1.2, dash=(2, 3))
    points = [(places[slots], height(rate), rate) for slots, rate in rates if rate is not None]
    sheet.strokes([[(x, y) for x, y, _ in points]], BLUE, 2.4)
    for each, y, rate in points:
        sheet.mark(each, y, BLUE, radius=6.5 if each == x else 4, hollow=each == x, tip=said(rate))
    for each, y, rate in points:
        if each == x:
            sheet.place(around(each, y), said(rate), halo=True, size=14, bold=True, fill=BLUE)
    y, right = height(best), WIDTH - RIGHT - 6
    free = [(LEFT + 6, y - 6, "start"), (LEFT + 6, y + 15, "start"), (right, y - 6, "end")]
    sheet.place(free, f"in a pool without end {said(best)}", halo=True, size=SMALL)
    if dict(rates)[at] is None:
        sheet.mark(x, TOP + HIGH - 12, VERMILION, "X")
    return sheet


def height(rate):
    """Less than nothing is drawn as nothing."""
    return TOP + HIGH * (1 - max(rate, 0))


def said(rate):
    return "none" if rate is None else f"{rate:.1%}"


def around(x, y):
    return [
        (x + 11, y + 20, "start"),
        (x - 11, y + 20, "end"),
        (x + 11, y - 9, "start"),
        (x - 11, y - 9, "end"),
    ]
