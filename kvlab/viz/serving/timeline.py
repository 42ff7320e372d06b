"""A row for each text, a column for each step: who waited, who ran, who was sent back."""

from kvlab.viz.blocks.words import clipped, many
from kvlab.viz.serving.looks import AXIS, LEFT, LOOKS, MARGIN, SIZE, SMALL, WIDTH, Columns
from kvlab.viz.serving.words import Names, capital, lives_of, root
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, INK, PALE, VERMILION, WHITE

MOST = 96  # rows; more would be too thin to be seen
TOLD = 12  # so many texts are described one by one to those who cannot see them
SAID = {
    "prefill": "prefill",
    "decode": "decode: one token",
    "paused": "runs, but this step had no tokens for it",
    "waiting": "waits",
}
MARKS = {  # mark, color, hollow, words
    "arrived": ("o", INK, True, "arrived"),
    "forked": ("D", INK, False, "forked"),
    "preempted": ("v", VERMILION, False, "preempted: its blocks are given back"),
    "ended": ("s", INK, False, "ended"),
    "cancelled": ("X", INK, True, "cancelled"),
}


def timeline(trace, first=0, last=None, names=None, at=None):
    """What each text of an engine's trace did at each step -> Picture.

    first, last: the steps that are drawn, both included. names: {name in the trace: str}. at: a step, or
    several, whose columns are marked. Raises ValueError for steps that the trace does not have.
    """
    return timeline_sheet(trace, at, first, last, names).picture()


def timeline_sheet(trace, at=None, first=0, last=None, names=None):
    """The same -> Sheet."""
    columns, names = Columns.of(trace, first, last, at), Names(names)
    lives = [
        life
        for life in lives_of(trace)
        if life.begun <= columns.last and (life.ended is None or life.ended[0] >= columns.first)
    ]
    sheet, drawn = Sheet(WIDTH, 0, _described(lives, columns, names)), lives[:MOST]
    tall = min(22, max(5, 480 / max(len(drawn), 1)))
    rows = {life.name: AXIS + tall * row for row, life in enumerate(drawn)}
    bottom = AXIS + tall * len(drawn) + 2
    columns.axis(sheet, bottom)
    seen = set()
    for row, life in enumerate(drawn):
        _label(sheet, names.one(life.name), row, rows[life.name], tall, columns)
        seen |= _cells(sheet, life, rows[life.name], tall, columns, names)
        if tall >= 15:
            seen |= _tokens(sheet, life, rows[life.name] + tall / 2, columns)
    for life in drawn:
        seen |= _marks(sheet, life, rows, tall, columns, names)
    columns.mark(sheet, bottom)
    if len(lives) > len(drawn):
        words = f"and {many(len(lives) - len(drawn), 'more text')}, not drawn"
        sheet.text(LEFT, bottom + 14, words, size=SIZE, fill=GREY)
        bottom += 18
    sheet.height = _legend(sheet, bottom + 19, seen) - 6
    return sheet


def _label(sheet, words, row, y, tall, columns):
    """A text's name, where thin rows leave room for it, and a line from there to its cells."""
    if row % -(-12 // tall) == 0:
        words = clipped(words, LEFT - 18 - MARGIN, SMALL)
        sheet.text(LEFT - 18, y + tall / 2 + 3.7, words, size=SMALL, anchor="end")
    sheet.line(LEFT, y + tall / 2, columns.right, y + tall / 2)


def _cells(sheet, life, y, tall, columns, names):
    """-> what was drawn, as a set."""
    gap, name, seen = 4 if tall >= 18 else 2 if tall >= 9 else 1, names.one(life.name), set()
    for what, start, end, tokens in life.runs(columns.first, columns.last):
        look, x = LOOKS[what], columns.x(start)
        when = f"step {start}" if start == end else f"steps {start} to {end}"
        tip = ", ".join([f"{name}, {when}: {what}"] + [many(tokens, "token")] * bool(tokens))
        stroke = GREY if look.fill in (WHITE, PALE) else None
        place = (x, y + gap / 2, columns.x(end + 1) - x, tall - gap)
        sheet.rect(*place, look.fill, pattern=look.pattern, ink=look.ink, stroke=stroke, tip=tip)
        if what != "waiting":
            sheet.strokes(columns.edges(range(start - 1, end + 1), y + gap / 2, y + tall - gap / 2), WHITE)
        seen.add(what)
    return seen


def _tokens(sheet, life, middle, columns):
    """How many a chunk has, where its cell has room -> what was written, as a set."""
    seen = set()
    for what, start, _, tokens in life.runs(columns.first, columns.last):
        wide, x = width_of(str(tokens), SMALL) + 3, columns.x(start) + columns.cell / 2
        if what == "prefill" and wide <= columns.cell - 2:
            sheet.rect(x - wide / 2, middle - 6, wide, 12, WHITE, opacity=0.85)
            sheet.text(x, middle + 3.8, str(tokens), size=SMALL, anchor="middle")
            seen.add("tokens")
    return seen


def _marks(sheet, life, rows, tall, columns, names):
    """What happened to it, beside its cells where they would hide it -> what was drawn, as a set."""
    name, radius, seen = names.one(life.name), min(4.5, max(2.5, tall / 2 - 3)), set()
    middle = rows[life.name] + tall / 2

    def put(kind, step, x, tip):
        if columns.first <= step <= columns.last:
            mark, color, hollow, _ = MARKS[kind]
            sheet.mark(x, middle, color, mark, radius=radius, hollow=hollow, tip=f"{name}: {tip}")
            seen.add(kind)

    if life.asked:
        asked = f"a prompt of {many(life.asked[0], 'token')}, at most {life.asked[1]:,} new ones"
        x = columns.x(life.begun) - radius - 1.5
        put("arrived", life.begun, x, f"arrived before step {life.begun}, {asked}")
    else:
        x, parent = columns.x(life.begun + 1) - radius - 1.5, f"{root(life.name)}.0"
        if parent in rows and columns.first <= life.begun <= columns.last:
            sheet.line(x, rows[parent] + 0.9 * tall, x, middle, INK, 1.5)
        put("forked", life.begun, x, f"forked in step {life.begun}")
    for step, tokens in life.preempted:
        x = columns.x(step) + max(columns.cell / 2, radius)
        put("preempted", step, x, f"preempted in step {step}, {many(tokens, 'stored token')} given up")
    if life.cancelled:
        step = life.ended[0]
        put("cancelled", step, columns.x(step) + radius + 2, f"cancelled before step {step}")
    elif life.ended:
        step, why = life.ended
        put("ended", step, columns.x(step + 1) + radius + 1.5, f"ended in step {step} ({why})")
    return seen


def _legend(sheet, y, seen):
    """What was drawn means -> the y below it."""
    said = SAID | {"prefill": "prefill of so many tokens"} if "tokens" in seen else SAID
    entries = [(LOOKS[what], words) for what, words in said.items() if what in seen]
    y = sheet.legend(MARGIN, y, entries, WIDTH - MARGIN, SMALL) if entries else y
    x = MARGIN
    for kind in [kind for kind in MARKS if kind in seen]:
        mark, color, hollow, words = MARKS[kind]
        sheet.mark(x + 7, y - 4, color, mark, radius=4.5, hollow=hollow)
        sheet.text(x + 20, y, words, size=SMALL)
        x += 36 + width_of(words, SMALL)
    return y + 14


def _described(lives, columns, names):
    """In words: each text where they are few, and sums."""
    cells = [run for life in lives for run in life.runs(columns.first, columns.last)]
    sums = {what: sum(end - start + 1 for kind, start, end, _ in cells if kind == what) for what in SAID}
    times = sum(columns.first <= step <= columns.last for life in lives for step, _ in life.preempted)
    said = [
        f"Timeline of {many(len(lives), 'text')} over steps {columns.first} to {columns.last}: "
        f"{many(sums['prefill'], 'chunk')} of prefill, {many(sums['decode'], 'token')} of decode, "
        f"{many(sums['waiting'], 'step')} of waiting, {many(sums['paused'], 'step')} without tokens for a "
        f"text that ran, {many(times, 'preemption')}."
    ]
    for life in lives if len(lives) <= TOLD else ():
        parts = [f"arrived before step {life.begun}" if life.asked else f"forked in step {life.begun}"]
        parts += [f"preempted in step {step}" for step, _ in life.preempted]
        if life.ended:
            parts.append(f"{'cancelled before' if life.cancelled else 'ended in'} step {life.ended[0]}")
        said.append(f"{capital(names.one(life.name))} {', '.join(parts)}.")
    return " ".join(said)
