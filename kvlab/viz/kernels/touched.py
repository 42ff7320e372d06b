"""Which program read which page of a pool, and how many bytes."""

from dataclasses import dataclass

from kvlab.viz.blocks.words import clipped, many
from kvlab.viz.kernels.looks import MARGIN, SMALL, TITLE, WIDTH, WORKING, whole
from kvlab.viz.memory.lines import plain
from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import BLUE, GREY, INK, PALE, WHITE

REST = Look(PALE, "", GREY)
TOP = 54  # of the cells
CELL, TALL, MOST = 34, 20, 420  # most of a cell's width and height, and of all rows together
NAMES, LISTED = 200, 16  # most of the width that labels take; pages that the words name


def touched(accesses, pages, stored=None, title="Pages that programs read"):
    """A row a program, a column a page of the pool, filled where the program read it -> Picture.

    accesses: (label, {page: bytes read of it}) for each program. pages: of the pool. stored: bytes that lie
    in each page, or {page: bytes}; where it is given, cells are filled as far as that was read, and below
    the pages stands how often.
    """
    return touched_sheet(accesses, pages, stored, title).picture()


def touched_sheet(accesses, pages, stored=None, title="Pages that programs read"):
    """The same -> Sheet."""
    pages = whole(pages, "pages")
    if hasattr(stored, "__index__"):
        stored = dict.fromkeys(range(pages), stored)
    _check(accesses, pages, stored)
    by_page = {page: [read[page] for _, read in accesses if read.get(page)] for page in range(pages)}
    often = {page: _often(read, stored and stored[page]) for page, read in by_page.items() if read}
    total = sum(map(sum, by_page.values()))
    said = f"{many(len(accesses), 'program')} read {many(total, 'byte')} of {many(len(often), 'page')}"
    sheet = Sheet(WIDTH, 0, f"{title}: {said}, in a pool of {pages:,}.{_listed(often, stored)}")
    sheet.text(MARGIN, 17, title, size=TITLE, bold=True)
    below = "each page was read" if stored else "programs that read it"
    grid = Grid.of(accesses, pages, total, below)
    for page in range(0, pages, grid.stride):
        look = {"fill": INK, "bold": True} if page in often else {"fill": GREY}
        sheet.text(grid.middle(page), TOP - 6, f"{page}", size=SMALL, anchor="middle", **look)
    grid.beside(sheet, TOP - 6, "page", "bytes read", {"fill": GREY}, {"fill": GREY})
    for row, (label, read) in enumerate(accesses):
        y = TOP + row * grid.tall
        _row(sheet, grid, y, label, read, stored)
        if row % -(-12 // grid.tall) == 0:
            grid.beside(sheet, y + grid.tall / 2 + 4, str(label), f"{sum(read.values()):,}")
    grid.draw(sheet)
    base = grid.bottom + 16
    grid.beside(sheet, base, below, f"{total:,}", {"fill": GREY}, {"bold": True})
    if max((width_of(words, SMALL, True) for words in often.values()), default=0) <= grid.cell:
        for page, words in often.items():
            sheet.text(grid.middle(page), base, words, size=SMALL, anchor="middle", bold=True)
    else:
        sheet.text(grid.left, base, _spread(often), size=SMALL, bold=True)
    partly = any(grid.part(nbytes, stored and stored[page]) < 1 for page in often for nbytes in by_page[page])
    entries = [(WORKING, "read")] + [(REST, "lies in the page, and was not read")] * partly
    entries += [(Look(WHITE, "", GREY), "not touched")]
    sheet.height = sheet.legend(grid.left, base + 28, entries, WIDTH - MARGIN, SMALL) - 8
    return sheet


@dataclass(frozen=True)
class Grid:
    """Where the cells of programs and pages lie."""

    left: float
    side: float  # the right edge of the sums
    cell: float
    tall: float
    pages: int
    rows: int

    @classmethod
    def of(cls, accesses, pages, total, below):
        labels = max(width_of(str(label), SMALL) for label, _ in accesses)
        left = MARGIN + max(min(labels, NAMES), width_of(below, SMALL)) + 10
        sums = max(width_of(f"{total:,}", SMALL, True), width_of("bytes read", SMALL)) + 12
        cell = min(CELL, (WIDTH - MARGIN - sums - left) / pages)
        return cls(
            left, left + pages * cell + sums, cell, min(TALL, MOST / len(accesses)), pages, len(accesses)
        )

    @property
    def bottom(self):
        return TOP + self.rows * self.tall

    @property
    def stride(self):
        """Every how many pages there is room for a number."""
        wide, power = width_of(f"{self.pages - 1}", SMALL, True) + 3, 1
        while True:
            for stride in (power, 2 * power, 5 * power):
                if stride * self.cell >= wide:
                    return stride
            power *= 10

    def middle(self, page):
        return self.left + (page + 0.5) * self.cell

    def part(self, nbytes, stored):
        """How much of a cell is filled; all of one that is too narrow to show it."""
        return min(nbytes / stored, 1) if stored and self.cell >= 5 else 1

    def beside(self, sheet, base, words, number, look=None, other=None):
        """Words to the left of the cells, and a number to their right."""
        words = clipped(words, self.left - MARGIN - 10, SMALL)
        sheet.text(self.left - 10, base, words, size=SMALL, anchor="end", **look or {})
        sheet.text(self.side, base, number, size=SMALL, anchor="end", **other or {})

    def draw(self, sheet):
        """Lines between cells, where these are large enough, and around all."""
        right = self.left + self.pages * self.cell
        across = range(self.pages + 1) if self.cell >= 5 else (0, self.pages)
        down = range(self.rows + 1) if self.tall >= 10 else (0, self.rows)
        lines = [[(self.left + n * self.cell, y) for y in (TOP, self.bottom)] for n in across]
        lines += [[(x, TOP + n * self.tall) for x in (self.left, right)] for n in down]
        sheet.strokes(lines, GREY, 0.6)


def _row(sheet, grid, y, label, read, stored):
    """What one program read."""
    for page, nbytes in sorted(read.items()):
        if nbytes:
            part = grid.part(nbytes, stored and stored[page])
            x, tip = grid.left + page * grid.cell, f"{label}: {many(nbytes, 'byte')} of page {page}"
            sheet.rect(x, y, part * grid.cell, grid.tall, BLUE, tip=tip)
            if part < 1:
                sheet.rect(x + part * grid.cell, y, (1 - part) * grid.cell, grid.tall, REST.fill, tip=tip)


def _check(accesses, pages, stored):
    if not accesses:
        raise ValueError("there is no program: give (label, {page: bytes}) for at least one")
    for label, read in accesses:
        for page, nbytes in read.items():
            if not 0 <= page < pages or nbytes < 0:
                raise ValueError(
                    f"{label} read {nbytes} bytes of page {page}: the pool has pages 0 to {pages - 1}, and "
                    "bytes are not negative"
                )
            if nbytes and stored is not None and not stored.get(page, 0) > 0:
                raise ValueError(f"{label} read {nbytes} bytes of page {page}, and stored has none there")


def _often(read, stored):
    return f"{plain(round(sum(read) / stored, 2))}×" if stored else f"{len(read)}"


def _spread(often):
    """'4×', or '0.5× to 4×'."""
    ordered = sorted(often.values(), key=lambda words: float(words.rstrip("×").replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _listed(often, stored):
    """How often pages were read, or by how many, for those who cannot see it."""
    if not often:
        return ""
    if len(often) > LISTED or len(set(often.values())) == 1:
        said = f"each {_spread(often)}"
    else:
        said = ", ".join(f"page {page} {words}" for page, words in often.items())
    return f" {'Read so often' if stored else 'Programs that read them'}: {said}."
