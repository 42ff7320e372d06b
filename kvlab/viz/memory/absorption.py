"""Latent attention in its three forms: what each computes, reads and takes, as bars beside each other."""

from dataclasses import dataclass

from kvlab.viz.memory.looks import PARTS
from kvlab.viz.memory.pages import duration
from kvlab.viz.memory.roofline import ARITHMETIC, flops_words
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY

WIDTH, MARGIN = 860, 10
TOP, ROW, HIGH, BAR = 62, 46, 18, 98  # pixels: the first bar; a row; a bar; the length of a bar at most
COLUMNS = (234, 422, 616)  # left edges of FLOPs, bytes and time
COLORS = {"reading": PARTS["keys and values"].fill, "arithmetic": ARITHMETIC.fill}


@dataclass(frozen=True)
class FormBars:
    """One row: a form, and what it is in a few words.

    flops: of the step. held: bytes of cache that it reads and keeps, and held_words the same in words.
    seconds: its least time, None where the device's arithmetic rate is not known. limit: what that time is
    spent on, of COLORS. quickest: whether no other form takes less.
    """

    name: str
    what: str
    flops: int
    held: int
    held_words: str
    seconds: float | None = None
    limit: str = "reading"
    quickest: bool = False

    def words(self):
        said = f"{self.name}: {flop_words(self.flops)}, {self.held_words} of cache"
        if self.seconds is None:
            return said
        quickest = ", the quickest" if self.quickest else ""
        return f"{said}, {duration(self.seconds)}, limited by {self.limit}{quickest}"


def flop_words(flops):
    """A number of FLOPs: 1174683648 -> '1.17 GFLOP'."""
    return flops_words(flops).removesuffix("/s")


def form_bars(forms, title, said, note):
    """forms: FormBars from top to bottom. said: lines below the bars. note: what is not counted -> Sheet.

    Each column has a linear scale of its own, from zero. Without seconds there is no column of times.
    """
    described = "; ".join(form.words() for form in forms)
    sheet = Sheet(WIDTH, 0, f"{title}. {described}. {' '.join(said)} {note}")
    fits = (WIDTH - 2 * MARGIN) / width_of(title, 1, True)
    sheet.text(MARGIN, 17, title, size=min(13, fits), bold=True)
    for row, form in enumerate(forms):
        sheet.text(MARGIN, TOP + ROW * row + 13, form.name, size=13, bold=True)
        sheet.text(MARGIN, TOP + ROW * row + 29, form.what, size=11.5, fill=GREY)
    columns = {"FLOPs": _flops, "cache, held and read once": _held}
    if all(form.seconds is not None for form in forms):
        columns["least time"] = _time
    for x, (head, cell) in zip(COLUMNS, columns.items(), strict=False):
        _column(sheet, x, head, [cell(form) for form in forms])
    y = TOP + ROW * len(forms) + 14
    for words in said:
        sheet.text(MARGIN, y, words)
        y += 19
    sheet.text(MARGIN, y + 2, note, size=11.5, fill=GREY)
    sheet.height = y + 12
    return sheet


def _column(sheet, x, head, cells):
    most = max(cell.number for cell in cells)
    sheet.text(x, TOP - 16, head, bold=True)
    sheet.line(x, TOP - 6, x, TOP + ROW * len(cells) - 14, GREY)
    for row, cell in enumerate(cells):
        y, wide = TOP + ROW * row, BAR * cell.number / most
        sheet.rect(x, y, wide, HIGH, cell.color, tip=cell.tip)
        sheet.text(x + wide + 6, y + 13.5, cell.words, bold=cell.bold)
        if cell.below:
            sheet.text(x + 6, y + HIGH + 13, cell.below, size=11.5, fill=GREY)


@dataclass(frozen=True)
class _Cell:
    """A bar: how long it is, what is written behind and below it."""

    number: float
    words: str
    color: str
    tip: str
    below: str = ""
    bold: bool = False


def _flops(form):
    tip = f"{form.name}: {form.flops:,} FLOPs"
    return _Cell(form.flops, flop_words(form.flops), COLORS["arithmetic"], tip)


def _held(form):
    return _Cell(form.held, form.held_words, COLORS["reading"], f"{form.name}: {form.held:,} bytes")


def _time(form):
    words, limited = duration(form.seconds), f"limited by {form.limit}"
    said = f"{words}, quickest" if form.quickest else words
    return _Cell(form.seconds, said, COLORS[form.limit], f"{form.name}: {words}", limited, form.quickest)
