"""A pool of blocks and the block tables of its sequences, at one moment or at several."""

from kvlab.viz.attention_map import label
from kvlab.viz.blocks.looks import BANDS, MARGIN, PANEL, SIZE, WIDTH, legend, looks_of, outline, section
from kvlab.viz.blocks.pool import GAP, Grid, draw_block
from kvlab.viz.blocks.tables import tables
from kvlab.viz.blocks.words import counted, described, many, said, wrapped
from kvlab.viz.sheet import Sheet, together
from kvlab.viz.show import BLUE, INK, PALE


def blocks_sheet(moment, texts=None):
    """The pool's blocks in their order, and below them the block tables -> Sheet.

    moment: of a pool's log. texts: the tokens' texts of some tables, {name: list of str}.
    """
    sheet = _drawn(moment, texts or {}, WIDTH)
    sheet.height = legend(sheet, sheet.height + 14, _crowded(moment))
    return sheet


def filmstrip(log, numbers, across=2, texts=None):
    """The moments after so many events each, as panels under their marks -> Picture."""
    return film(log, numbers, across, texts).picture()


def film(log, numbers, across=2, texts=None):
    """The same -> Sheet."""
    if not numbers or across < 1:
        raise ValueError(f"{len(numbers)} moments, {across} across: a filmstrip has at least one of one")
    moments = [log.at(number) for number in numbers]
    panels = [_drawn(moment, texts or {}, PANEL) for moment in moments]
    rows = [panels[first : first + across] for first in range(0, len(panels), across)]
    for row in rows:
        highest = max(panel.height for panel in row)
        for panel in row:
            panel.height = highest
            outline(panel, 0.5, 0.5, PANEL - 1, highest - 1, 1, color=PALE)
    whole = together([together(row, across=True) for row in rows])
    titles = " ".join(f"{number}. {panel.title}" for number, panel in enumerate(panels, 1))
    whole.title = f"{many(len(panels), 'moment')} of a pool of blocks. {titles}"
    whole.height = legend(whole, whole.height + 24, any(map(_crowded, moments)))
    return whole


def stops(log, most=6):
    """The last moment under each mark; without marks, some evenly spread -> numbers of events, rising."""
    if marks := log.marks():
        return sorted({mark - 1 for mark in marks[1:]} | {len(log.events)})
    return sorted({round(part * len(log.events) / most) for part in range(1, most + 1)})


def _drawn(moment, texts, width):
    """One panel -> Sheet."""
    _check(moment, texts)
    texts = {name: [label(text) for text in pieces] for name, pieces in texts.items()}
    sheet, looks, y = Sheet(width, 0, described(moment)), looks_of(moment), 4
    pool = f"The pool: {many(moment.num_blocks, 'block')} of {many(moment.block_size, 'slot')}"
    for text, size, bold, fill in (
        (moment.mark, 14, True, BLUE),
        (said(moment), 13, True, INK),
        *((line, SIZE, False, INK) for line in counted(moment)),
    ):
        for line in wrapped(text, width - 2 * MARGIN, size, bold):
            y += size + 5
            sheet.text(MARGIN, y, line, size=size, bold=bold, fill=fill)
    y = section(sheet, y + 26, pool, "one token a slot")
    grid = Grid.of(moment.num_blocks, moment.block_size, texts, width)
    for block in range(moment.num_blocks):
        draw_block(sheet, grid, moment, block, grid.corner(block, y), looks, texts)
    sheet.height = tables(sheet, moment, looks, y + grid.rows * (grid.high + GAP) + 18)
    return sheet


def _crowded(moment):
    return max(moment.counts().values(), default=0) > BANDS


def _check(moment, texts):
    for name, pieces in texts.items():
        if len(pieces) < moment.lengths.get(name, 0):
            held = many(moment.lengths[name], "token")
            raise ValueError(f"{name} holds {held}, and texts has {len(pieces)} for it: give one for each")
