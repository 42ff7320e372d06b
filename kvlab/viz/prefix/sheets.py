"""A radix tree of prefixes, after one operation or after several."""

from kvlab.viz.blocks.looks import outline
from kvlab.viz.blocks.words import many, wrapped
from kvlab.viz.prefix.looks import LOOKS, MARGIN, PANEL, SIZE, SMALL, WIDTH, legend
from kvlab.viz.prefix.rows import draw_beside, draw_tree
from kvlab.viz.prefix.words import counted, described, so_far
from kvlab.viz.sheet import Sheet, together, width_of
from kvlab.viz.show import BLUE, GREY, INK, PALE, WHITE

BAR = 16


def tree_sheet(moment, title=""):
    """A moment of a story: what was done, the pool, and the tree -> Sheet."""
    sheet = _drawn(moment, title, WIDTH)
    sheet.height = legend(sheet, sheet.height + 14)
    return sheet


def tree_film(story, steps=None, across=2):
    """The tree after some operations of a story, as panels -> Picture. steps: numbers of its moments."""
    return film(story, steps, across).picture()


def film(story, steps=None, across=2):
    """The same -> Sheet."""
    steps = stops(story) if steps is None else list(steps)
    if not steps or across < 1:
        raise ValueError(f"{len(steps)} moments, {across} across: a film has at least one of one")
    last = len(story.moments) - 1
    for step in steps:
        if not 0 <= step <= last:
            raise ValueError(f"there is no moment {step}: the story has moments 0 to {last}")
    width = WIDTH if across == 1 else PANEL
    panels = [_drawn(story.moments[step], f"{step}", width) for step in steps]
    rows = [panels[first : first + across] for first in range(0, len(panels), across)]
    for row in rows:
        highest = max(panel.height for panel in row)
        for panel in row:
            panel.height = highest
            outline(panel, 0.5, 0.5, width - 1, highest - 1, 1, color=PALE)
    whole = together([together(row, across=True) for row in rows])
    told = " ".join(f"{step}. {panel.title}" for step, panel in zip(steps, panels, strict=True))
    whole.title = f"{many(len(panels), 'moment')} of a radix tree. {told}"
    whole.height = legend(whole, whole.height + 24)
    return whole


def stops(story, most=6):
    """Moments in which the tree changed, evenly spread where they are many -> numbers, rising."""
    changed = [
        number
        for number, moment in enumerate(story.moments)
        if any(set(run.marks) & {"new", "split", "evicted"} for run in moment.runs)
    ] or [len(story.moments) - 1]
    few = min(most, len(changed))
    return sorted({changed[round(part * (len(changed) - 1) / max(few - 1, 1))] for part in range(few)})


def _drawn(moment, title, width):
    """One panel -> Sheet."""
    sheet, y = Sheet(width, 0, described(moment)), 4
    left = MARGIN + (width_of(title, 14, True) + 10 if title else 0)
    sheet.text(MARGIN, y + 19, title, size=14, bold=True, fill=BLUE)
    for line in wrapped(moment.said, width - MARGIN - left, 13, True):
        y += 18
        sheet.text(left, y, line, size=13, bold=True)
    y = _pool(sheet, y + 10, moment)
    for line in wrapped(so_far(moment), width - 2 * MARGIN, SMALL):
        y += 14
        sheet.text(MARGIN, y, line, size=SMALL, fill=GREY)
    y = draw_tree(sheet, y + 12, moment)
    sheet.height = draw_beside(sheet, y, moment) + 4
    return sheet


def _pool(sheet, y, moment):
    """The pool's blocks, by who has them -> the y below them."""
    parts = {"held": (moment.held, LOOKS["locked"]), "kept": (moment.kept, LOOKS["kept"])}
    total, wide = moment.free + moment.held + moment.kept, sheet.width - 2 * MARGIN
    unit = min(wide / total, 22)
    words = counted(moment)
    sheet.text(MARGIN, y + 12, words, size=SIZE, fill=INK)
    beside = MARGIN + width_of(words, SIZE) + 12
    if beside + unit * total > sheet.width - MARGIN:
        y, beside = y + 18, MARGIN
    x, edges = beside, []
    for name, (count, look) in parts.items():
        tip = f"{many(count, 'block')} {name}"
        sheet.rect(x, y, count * unit, BAR, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
        x += count * unit
    tip = f"{many(moment.free, 'block')} free"
    sheet.rect(x, y, moment.free * unit, BAR, WHITE, tip=tip)
    marks = range(total + 1) if unit >= 4 else (0, moment.held, moment.held + moment.kept, total)
    edges += [[(beside + at * unit, y), (beside + at * unit, y + BAR)] for at in marks]
    edges += [[(beside, at), (beside + total * unit, at)] for at in (y, y + BAR)]
    sheet.strokes(edges, GREY)
    return y + BAR + 2
