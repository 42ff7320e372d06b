"""One step: its packed batch as a part of the budget, what happened in it, and who stood by."""

from kvlab.viz.blocks.words import many, wrapped
from kvlab.viz.serving.batches import batches_sheet, to_scale
from kvlab.viz.serving.looks import LOOKS, MARGIN, SIZE, SMALL, WIDTH, Columns
from kvlab.viz.serving.timeline import timeline_sheet
from kvlab.viz.serving.words import Names, computed, happened
from kvlab.viz.sheet import Sheet, together, width_of
from kvlab.viz.show import GREY, INK, PALE, VERMILION, WHITE

BAR, LINE = 30, 17
PACKED = 0.72  # of the bar's width is for the largest batch, where the budget is too large to be drawn
WORDS = 88  # pixels for what is said, before it is


def step_sheet(trace, number, names=None):
    """One step of an engine's trace in detail -> Sheet. names: {name in the trace: str}.

    Raises ValueError for a step that the trace does not have.
    """
    Columns.of(trace, at=number)
    step, names = trace[number], Names(names)
    columns = [computed(trace, number, names), happened(step, names)]
    said = "; ".join(f"{what}: {words}" for column in columns for what, words in column.items() if words)
    batch = f"{many(step.tokens, 'new token')} of a budget of {trace.max_batch_tokens:,}"
    sheet = Sheet(WIDTH, 0, f"Step {number}: {batch}. {said}.".replace("..", "."))
    sheet.text(MARGIN, 16, f"Step {number}", size=14, bold=True)
    left = MARGIN + width_of(f"Step {number}", 14, True) + 10
    sheet.text(left, 16, batch, size=SIZE)
    _bar(sheet, 24, step, trace, names)
    half = (WIDTH - 3 * MARGIN) / 2
    ends = [
        _words(sheet, MARGIN + side * (half + MARGIN), 24 + BAR, half, column)
        for side, column in enumerate(columns)
    ]
    sheet.height = max(ends) + 8
    return sheet


def filmstrip(trace, numbers, names=None):
    """The timeline and the batches with some steps marked, and these steps below each other -> Picture."""
    if not numbers:
        raise ValueError("a filmstrip of no step: give the numbers of one or more")
    overview = [timeline_sheet(trace, numbers, names=names), batches_sheet(trace, numbers)]
    panels = [step_sheet(trace, number, names) for number in numbers]
    for panel in panels:
        panel.line(MARGIN, 0.5, WIDTH - MARGIN, 0.5, PALE)
    return together([*overview, *panels]).picture()


def _bar(sheet, y, step, trace, names):
    """Decodes, then chunks, each as wide as it has tokens, and what is left of the budget.

    In all steps of a trace a token is as wide. Where the budget is far more than they need, its rest is cut.
    """
    wide, budget = WIDTH - 2 * MARGIN, trace.max_batch_tokens
    largest = max(1, *(each.tokens for each in trace.steps))
    whole = to_scale(budget, largest)
    unit = wide / budget if whole else min(40, PACKED * wide / largest)
    x, edges = MARGIN, []
    for name, tokens, what in sorted(step.ran, key=lambda ran: ran[2]):
        look, taken = LOOKS[what], tokens * unit
        tip = f"{names.one(name)}: {what}, {many(tokens, 'token')}"
        sheet.rect(x, y, taken, BAR, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
        own = names.short(name)
        sizes = [f"{own}: {many(tokens, 'token')}", f"{own}: {tokens:,}"] if what == "prefill" else []
        words = next((words for words in [*sizes, own] if width_of(words, SMALL) + 2 <= taken), "")
        if words and look.pattern:
            room = width_of(words, SMALL) + 4
            sheet.rect(x + (taken - room) / 2, y + 7, room, BAR - 14, WHITE, opacity=0.85)
        sheet.text(x + taken / 2, y + BAR / 2 + 4, words, size=SMALL, anchor="middle", fill=look.ink)
        x += taken
        edges.append([(x, y), (x, y + BAR)])
    sheet.strokes(edges if unit >= 3 else [], WHITE)
    left, rest = budget - step.tokens, MARGIN + wide - x
    if left:
        tip = f"{many(left, 'token')} of the budget not used"
        sheet.rect(x, y, rest, BAR, WHITE, stroke=GREY, tip=tip)
        words = next((words for words in (tip, f"{left:,} left") if width_of(words, SMALL) + 30 < rest), "")
        sheet.text(x + rest / 2, y + BAR / 2 + 4, words, size=SMALL, anchor="middle", fill=GREY)
    if not whole:  # a break, since the rest is not to scale
        for shift in (14, 18):
            at = MARGIN + wide - shift
            sheet.line(at - 3, y + BAR + 3, at + 3, y - 3, GREY, 1.2)


def _words(sheet, x, y, room, column):
    """{what: words}, one below the other -> the y below them."""
    for what, words in column.items():
        fill = VERMILION if what == "preempted" and words else INK if words else GREY
        sheet.text(x, y + LINE, what, size=SIZE, bold=bool(words), fill=fill)
        lines = wrapped(words, room - WORDS, SIZE) or ["–"]
        for line in lines:
            y += LINE
            sheet.text(x + WORDS, y, line, size=SIZE, fill=INK if words else GREY)
    return y
