"""What each step's batch was made of, blocks held, and texts waiting: panels over the same columns."""

from itertools import groupby

from kvlab.viz.blocks.words import many
from kvlab.viz.serving.looks import AXIS, LEFT, LOOKS, MARGIN, SMALL, WIDTH, Columns
from kvlab.viz.sheet import Sheet
from kvlab.viz.show import GREY, INK, WHITE

FAR = 4  # times what was used: a limit beyond it, and not small, is named and not drawn to scale
SMALL_LIMIT = 64


def batches(trace, first=0, last=None, at=None):
    """New tokens of each step of an engine's trace against its budget, and blocks held -> Picture.

    first, last: the steps that are drawn, both included. at: a step, or several, whose columns are marked.
    Raises ValueError for steps that the trace does not have.
    """
    return batches_sheet(trace, at, first, last).picture()


def batches_sheet(trace, at=None, first=0, last=None):
    """The same, in the columns of ``timeline_sheet`` -> Sheet."""
    columns = Columns.of(trace, first, last, at)
    steps = trace.steps[columns.first : columns.last + 1]
    sheet = Sheet(WIDTH, 0, _described(trace, steps))
    heights = {"new tokens": 66, "blocks held": 48, "texts waiting": 24}
    limits = {
        "new tokens": (trace.max_batch_tokens, f"budget: {trace.max_batch_tokens:,}"),
        "blocks held": (trace.num_blocks, f"pool: {trace.num_blocks:,}"),
    }
    layers = {
        "new tokens": {
            "decode": [s.of("decode") for s in steps],
            "prefill": [s.of("prefill") for s in steps],
        },
        "blocks held": {"held": [step.held for step in steps]},
        "texts waiting": {"waiting": [step.waiting for step in steps]},
    }
    bottom = AXIS + sum(heights.values()) + 14 * len(heights) - 6
    columns.axis(sheet, bottom)
    y = AXIS
    for name, high in heights.items():
        y = _panel(sheet, y + 8, high, name, columns, layers[name], limits.get(name)) + 6
    columns.mark(sheet, y - 2)
    for step in steps:
        place = (columns.x(step.number), AXIS, columns.cell, y - 6 - AXIS)
        sheet.rect(*place, WHITE, opacity=0, tip=_said(step))
    entries = [(LOOKS["decode"], "tokens of those that decode"), (LOOKS["prefill"], "of those that prefill")]
    sheet.height = sheet.legend(MARGIN, y + 16, entries, WIDTH - MARGIN, SMALL) - 8
    return sheet


def to_scale(limit, used):
    """Is there room for all of a limit beside what was used of it?"""
    return limit <= max(FAR * used, SMALL_LIMIT)


def _panel(sheet, top, high, name, columns, layers, limit):
    """Bars on each other: {look: values}. limit: (value, words) of a line above them -> the y below it."""
    highest = max(map(sum, zip(*layers.values(), strict=True)))
    near = limit is not None and to_scale(limit[0], highest)
    most = max(highest, limit[0] if near else 0, 1)
    unit, bottom, under = high / most, top + high, [0] * len(columns.steps)
    seam = 0 if columns.cell >= 5 else 0.5  # thin bars overlap: a browser leaves pale lines between them
    for what, values in layers.items():
        look, at = LOOKS[what], 0
        for (low, value), group in groupby(zip(under, values, strict=True)):
            count = len(list(group))
            x, wide = columns.x(columns.first + at), count * columns.cell + seam
            at += count
            if value:
                stroke = GREY if look.fill == WHITE else None
                look_of = {"pattern": look.pattern, "ink": look.ink, "stroke": stroke}
                sheet.rect(x, bottom - unit * (low + value), wide, unit * value, look.fill, **look_of)
        under = [low + value for low, value in zip(under, values, strict=True)]
    if "waiting" not in layers:
        sheet.strokes(columns.edges(columns.steps, top, bottom), WHITE)
    sheet.line(LEFT, bottom, columns.right, bottom, GREY)
    if high > 30:
        sheet.text(LEFT - 5, bottom + 1, "0", size=SMALL, anchor="end", fill=GREY)
    if highest or limit:
        sheet.text(LEFT - 5, top + 7, f"{most:,}", size=SMALL, anchor="end", fill=GREY)
    else:
        sheet.text(LEFT, bottom - 5, "none", size=SMALL, fill=GREY)
    if near:
        y = bottom - unit * limit[0]
        sheet.line(LEFT, y, columns.right, y, INK, 1.3, dash=(5, 3))
    words = [name] + ([limit[1]] + ["(far above)"] * (not near) if limit else [])
    for line, said in enumerate(words):
        y = (top + bottom) / 2 + 4 + 13 * (line - (len(words) - 1) / 2)
        sheet.text(MARGIN, y, said, size=SMALL, fill=GREY if line else INK)
    return bottom


def _said(step):
    return (
        f"step {step.number}: {many(step.of('decode'), 'token')} of decode and {step.of('prefill'):,} of "
        f"prefill, {many(step.held, 'block')} held, {many(step.waiting, 'text')} waiting"
    )


def _described(trace, steps):
    tokens, held = [step.tokens for step in steps], [step.held for step in steps]
    decode, prefill = (sum(step.of(kind) for step in steps) for kind in ("decode", "prefill"))
    return (
        f"Batches of steps {steps[0].number} to {steps[-1].number}: {many(decode, 'token')} of decode and "
        f"{prefill:,} of prefill, {sum(tokens) / len(steps):.1f} a step, at most {max(tokens):,} where the "
        f"budget is {trace.max_batch_tokens:,}. At most {max(held):,} of {many(trace.num_blocks, 'block')} "
        f"held, at most {many(max(step.waiting for step in steps), 'text')} waiting."
    )
