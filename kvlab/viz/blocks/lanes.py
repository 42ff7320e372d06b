"""Memory given out in one piece for each request: what of it is used, and what is lost."""

from kvlab.viz.blocks.words import clipped, many
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, SKY, WHITE

LOOKS = {
    "tokens": Look(BLUE),
    "reserved": Look(SKY, "/", INK),
    "internal": Look(ORANGE, "x", INK),
    "free": Look(WHITE, "", INK),
}
SAID = {
    "tokens": "tokens",
    "reserved": "reserved, for tokens to come",
    "internal": "reserved, never used: internal fragmentation",
    "free": "free; in pieces too small to use: external fragmentation",
}
WIDTH, MARGIN, HIGH, SIZE, SMALL = 780, 10, 34, 13, 11


def memory_lanes(rows, slots):
    """Memories of so many slots, and what lies in them -> Picture.

    rows: (title, [(first slot, how many, kind, label)]) each; a kind is "tokens", "reserved", "internal" or
    "free". What no part covers is free.
    """
    return lanes(rows, slots).picture()


def lanes(rows, slots):
    """The same -> Sheet."""
    _check(rows, slots)
    counts = [_counted(parts, slots) for _, parts in rows]
    said = [f"{title}: {words}." for (title, _), words in zip(rows, counts, strict=True)]
    sheet = Sheet(WIDTH, 0, f"Memory of {many(slots, 'slot')}, one a token. {' '.join(said)}")
    unit, y = (WIDTH - 2 * MARGIN) / slots, 8
    for (title, parts), words in zip(rows, counts, strict=True):
        y = _lane(sheet, y, title, words, sorted(parts), unit)
    for slot in _marks(slots):
        x = MARGIN + slot * unit
        sheet.line(x, y - 4, x, y + 1, GREY)
        side = "start" if slot == 0 else "end" if slot == slots else "middle"
        sheet.text(x, y + 13, f"{slot:,}" if slot else "slot 0", size=SMALL, anchor=side, fill=GREY)
    entries = [(look, SAID[kind]) for kind, look in LOOKS.items()]
    sheet.height = sheet.legend(MARGIN, y + 40, entries, WIDTH - MARGIN) - 8
    return sheet


def _check(rows, slots):
    if slots < 1 or not rows:
        raise ValueError(f"{many(len(rows), 'lane')} of {slots} slots: draw at least one lane of one slot")
    for title, parts in rows:
        end = 0
        for first, length, kind, _ in sorted(parts):
            if kind not in LOOKS:
                raise ValueError(f"{title}: there is no kind {kind!r}; known: {', '.join(LOOKS)}")
            if length < 1 or first < end or first + length > slots:
                raise ValueError(
                    f"{title}: {kind} in slots {first} to {first + length} do not fit after slot {end} and "
                    f"before slot {slots}"
                )
            end = first + length


def _counted(parts, slots):
    """'8 tokens, 4 reserved, 52 free'."""
    sums = dict.fromkeys(LOOKS, 0)
    for _, length, kind, _ in parts:
        sums[kind] += length
    sums["free"] = slots - sum(count for kind, count in sums.items() if kind != "free")
    names = {"tokens": "tokens", "reserved": "reserved", "internal": "never used", "free": "free"}
    return ", ".join(f"{count:,} {names[kind]}" for kind, count in sums.items() if count)


def _lane(sheet, y, title, words, parts, unit):
    """-> the y below it."""
    room = WIDTH - 2 * MARGIN - width_of(words, SMALL) - 12
    sheet.text(MARGIN, y + 14, clipped(title, room, SIZE, True), size=SIZE, bold=True)
    sheet.text(WIDTH - MARGIN, y + 14, words, size=SMALL, anchor="end")
    top, below = y + 22, []
    sheet.rect(MARGIN, top, WIDTH - 2 * MARGIN, HIGH, WHITE, stroke=INK)
    for first, length, kind, name in parts:
        look, x, wide = LOOKS[kind], MARGIN + first * unit, length * unit
        tip = f"{name or kind}: {many(length, 'slot')} from {first}"
        sheet.rect(x, top, wide, HIGH, look.fill, pattern=look.pattern, ink=look.ink, stroke=INK, tip=tip)
        if unit >= 8:
            edges = [[(x + n * unit, top), (x + n * unit, top + HIGH)] for n in range(1, length)]
            sheet.strokes(edges, look.ink, 0.5)
        taken = width_of(name, SMALL) + 4
        if name and taken <= wide - 2:
            if look.pattern or unit >= 8:
                sheet.rect(x + (wide - taken) / 2, top + 9, taken, HIGH - 18, WHITE, opacity=0.85)
            ink = INK if look.pattern or unit >= 8 else look.ink
            sheet.text(x + wide / 2, top + HIGH / 2 + 4, name, size=SMALL, anchor="middle", fill=ink)
        elif name:
            below.append((x + wide / 2, name))
    return _below(sheet, top + HIGH, below) + 12


def _below(sheet, y, labels):
    """Labels that have no room in their parts, in as many lines as they need -> the y below them."""
    taken = []  # how far to the left each line is
    for middle, name in reversed(labels):  # so that no leader crosses a label
        name = clipped(name, WIDTH - 2 * MARGIN, SMALL)
        left, wide = min(middle - 3, WIDTH - MARGIN - width_of(name, SMALL)), width_of(name, SMALL)
        line = next((line for line, end in enumerate(taken) if left + wide + 8 <= end), len(taken))
        taken[line : line + 1] = [left]
        sheet.line(middle, y, middle, y + 5 + 14 * line, INK)
        sheet.text(left, y + 15 + 14 * line, name, size=SMALL)
    return y + 14 * len(taken) + 5 * bool(taken)


def _marks(slots, most=8):
    """Round numbers up to and with ``slots``."""
    step = 1
    while slots > step * most:
        step *= 2
    return [*range(0, slots - step // 2, step), slots]
