"""A radix tree as rows, one a run: its blocks from the left, and who uses it on the right."""

from dataclasses import dataclass

from kvlab.viz.blocks.words import many
from kvlab.viz.prefix.looks import BAND, MARGIN, PANEL, SIZE, SMALL, WORDS, cell, chip, chip_width, size_on
from kvlab.viz.prefix.words import block_words, depths, kinds, lockers, of_run, root_name, tag, text_of
from kvlab.viz.sheet import width_of
from kvlab.viz.show import GREY, INK, VERMILION

HIGH, ROOT, LEAST = WORDS + BAND + 8, 24, 52  # of a run's row, of a root's, and a cell's least width
INDENT, DEEPEST = 20, 0.23  # of a child, and of all together as a part of the width
LEADER = "#CCCCCC"


@dataclass(frozen=True)
class Columns:
    """Where the tree ends, and the columns beside it begin: {name: its right edge}."""

    tree: float
    locked: float
    end: float  # of the locks
    numbers: dict

    @classmethod
    def of(cls, runs, width):
        right, numbers = width - MARGIN, {}
        if width > PANEL:
            important = any(run.blocks and run.priority for run in runs)
            for name in ("last use", "hits", *["priority"] * important):
                numbers[name] = right
                right -= width_of(name, SMALL) + 14
        longest = max((_chips_width(run) for run in runs), default=0)
        locked = right - max(min(longest, 0.22 * width), width_of("locked by", SMALL))
        return cls(locked - 10, locked, right, numbers)


def draw_tree(sheet, y, moment):
    """-> the y below it."""
    runs = moment.runs
    if not runs:
        sheet.text(MARGIN, y + 14, "nothing is stored, and nobody has anything locked", size=SIZE, fill=GREY)
        return y + 24
    columns = Columns.of(runs, sheet.width)
    sheet.text(MARGIN, y + 10, "the tree: a cell a block", size=SMALL, fill=GREY)
    sheet.text(columns.locked, y + 10, "locked by", size=SMALL, fill=GREY)
    for name, right in columns.numbers.items():
        sheet.text(right, y + 10, name, size=SMALL, anchor="end", fill=GREY)
    y += 16
    levels, ends = depths(runs), {}
    indent = min(INDENT, DEEPEST * sheet.width / max(*levels, 1))
    for number, (run, depth) in enumerate(zip(runs, levels, strict=True)):
        x = MARGIN + indent * depth
        if run.blocks:
            middle, at = y + 4 + (WORDS + BAND) / 2, x - indent + 5
            ghost = "evicted" in run.marks
            look = {"color": VERMILION, "dash": (4, 3)} if ghost else {"color": GREY}
            sheet.line(at, ends[run.parent], at, middle, **look)
            sheet.line(at, middle, x, middle, **look)
            _run(sheet, x, y + 4, run, columns)
            ends[number] = y + 4 + WORDS + BAND
            y += HIGH
        else:
            sheet.mark(x + 5, y + 12, GREY, radius=4)
            sheet.text(x + 15, y + 16, root_name(run), size=SIZE, fill=INK)
            _locks(sheet, y + 4, run, columns)
            ends[number] = y + 16
            y += ROOT
    return y + 4


def draw_beside(sheet, y, moment):
    """What requests have outside the tree -> the y below it."""
    if not moment.beside:
        return y
    words = "outside the tree: blocks that are not full, or not stored yet"
    sheet.text(MARGIN, y + 10, words, size=SMALL, fill=GREY)
    x, y, size = MARGIN, y + 16, moment.block_size
    for each in moment.beside:
        cells = []
        for place, block in enumerate(each.blocks):
            text = text_of(each.words[place * size : (place + 1) * size])
            cells.append((text, block, "locked", f"block {block}, outside the tree: {text}"))
        wide = chip_width(each.name) + 7 + sum(_widths(cells, size_on(sheet)))
        if x > MARGIN and x + wide > sheet.width - MARGIN:
            x, y = MARGIN, y + HIGH
        x = chip(sheet, x, y + 12, each.name) + 4
        x = _cells(sheet, x, y + 4, cells, sheet.width - MARGIN - x) + 18
    return y + HIGH + 4


def _run(sheet, x, y, run, columns):
    said, label = of_run(run), tag(run)
    cells = [
        (block_words(run, place), block, kind, f"block {block}: {block_words(run, place)}; {said}")
        for place, (block, kind) in enumerate(zip(run.blocks, kinds(run), strict=True))
    ]
    room = columns.tree - x - (width_of(label, SMALL, True) + 6 if label else 0)
    end = _cells(sheet, x, y, cells, room)
    fill = VERMILION if "evicted" in run.marks else INK
    sheet.text(end + 6, y + WORDS + 2, label, size=SMALL, bold=True, fill=fill)
    at, middle = end + 12 + (width_of(label, SMALL, True) if label else 0), y + (WORDS + BAND) / 2
    if at < columns.tree:
        sheet.line(at, middle, columns.tree, middle, LEADER, dash=(2, 4))
    _locks(sheet, y + 8, run, columns)
    if "evicted" not in run.marks:
        said = {"last use": f"{run.used:,}", "hits": f"{run.hits:,}", "priority": f"{run.priority:g}"}
        for name, right in columns.numbers.items():
            sheet.text(right, y + WORDS + 2, said[name], size=SIZE, anchor="end")


def _cells(sheet, x, y, cells, room):
    """(words, block, kind, tip)s beside each other, as wide as they need or as there is room -> their end."""
    size = size_on(sheet)
    wide = _widths(cells, size)
    if sum(min(each, LEAST) for each in wide) > room:
        more = width_of(f"… {len(cells)} more …", size) + 8
        count = max(int((room - more) // LEAST), 0)
        first, last = max(count - 1, min(count, 1)), len(cells) - (count > 1)
        hidden = cells[first:last]
        words = f"… {len(hidden)} more …" if count else many(len(hidden), "block")
        together = words, "", hidden[0][2], "\n".join(tip for *_, tip in hidden)
        rest = _cap(wide[:first] + wide[last:], room - more)
        wide = [*(min(each, rest) for each in wide[:first]), more, *(min(each, rest) for each in wide[last:])]
        cells = [*cells[:first], together, *cells[last:]]
    most = _cap(wide, room)
    for each, (words, block, kind, tip) in zip(wide, cells, strict=True):
        cell(sheet, x, y, min(each, most), words, str(block), kind, tip)
        x += min(each, most)
    return x


def _widths(cells, size):
    return [max(width_of(words, size) + 10, LEAST / 2) for words, *_ in cells]


def _cap(widths, room):
    """The width above which cells are cut, so that all of them have room."""
    left = len(widths)
    for width in sorted(widths):
        if width * left > room:
            return room / left
        room, left = room - width, left - 1
    return max(widths, default=0)


def _locks(sheet, y, run, columns):
    """The names of those who have it locked, as many as there is room for, and how many more."""
    names, others = lockers(run)
    x = columns.locked
    if not run.locks and "evicted" not in run.marks:
        sheet.text(x, y + 12, "nobody", size=SMALL, fill=GREY)
    while names:
        rest = len(names) - 1 + others
        room = columns.end - x - (width_of(f"+{rest}", SMALL) + 3 if rest else 0)
        if chip_width(names[0]) > room and x > columns.locked:
            break
        x = chip(sheet, x, y, names.pop(0), room)
    if names or others:
        sheet.text(x, y + 12, f"+{len(names) + others}", size=SMALL)


def _chips_width(run):
    names, others = lockers(run)
    return sum(chip_width(name) + 3 for name in names) + width_of("+99", SMALL) * bool(others)
