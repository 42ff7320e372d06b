"""Texts as chains of full blocks, each with a name that stands for it and for all before it."""

from kvlab.viz.blocks.looks import section
from kvlab.viz.blocks.words import clipped, many
from kvlab.viz.prefix.looks import BAND, LOOKS, MARGIN, SIZE, SMALL, WIDTH, WORDS, cell
from kvlab.viz.prefix.words import text_of
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, INK

GAP, LEFT, ROW = 20, 96, WORDS + BAND + 14
SAID = {
    "found": "a name that is there already: found",
    "new": "a new name: computed, and stored under it",
    "kept": "not full: no name, and never found",
}


def hash_chains(texts, block_size):
    """Texts in the order in which they came, below each other, and the names of their blocks -> Picture.

    texts: (name, words of its tokens, names of its full blocks). Raises ValueError where there are more or
    fewer names than full blocks.
    """
    return chains_sheet(texts, block_size).picture()


def chains_sheet(texts, block_size):
    """The same -> Sheet."""
    sheet, y, seen, told = Sheet(WIDTH, 0, ""), 8, set(), []
    words = (
        f"an arrow points to the block before, which is a part of what is named; {block_size} tokens a block"
    )
    y = section(sheet, y + 10, "Named blocks", words)
    for name, pieces, hashes in texts:
        full = len(pieces) // block_size
        if len(hashes) != full:
            raise ValueError(
                f"{name} has {many(full, 'full block')}, and {len(hashes)} names: give one for each"
            )
        parts = [text_of(pieces[at : at + block_size]) for at in range(0, len(pieces), block_size)]
        kinds = ["found" if each in seen else "new" for each in hashes]
        kinds += ["kept"] * (len(parts) - full)
        y = _chain(sheet, y, name, list(zip(parts, [*hashes, "no name"], kinds, strict=False)))
        known = kinds.count("found")
        told.append(
            f"{name}: {many(full, 'full block')}, {known} found" + ", and a part" * (len(parts) > full)
        )
        seen |= set(hashes)
    sheet.title = f"{many(len(told), 'text')} as chains of named blocks. {'. '.join(told)}."
    entries = [(LOOKS[kind], words) for kind, words in SAID.items()]
    sheet.height = sheet.legend(MARGIN, y + 22, entries, WIDTH - MARGIN, SMALL) - 6
    return sheet


def _chain(sheet, y, name, cells):
    """-> the y below it."""
    y += 8
    sheet.text(MARGIN, y + WORDS + 2, clipped(str(name), LEFT - MARGIN - 8, SIZE, True), size=SIZE, bold=True)
    x, right = LEFT, sheet.width - MARGIN
    for number, (words, below, kind) in enumerate(cells):
        wide = max(width_of(words, SIZE), width_of(below, SMALL), 30) + 12
        wide = min(wide, right - LEFT - GAP)
        if number and x + GAP + wide > right:
            x, y = LEFT, y + ROW
        if number:
            _arrow(sheet, x, x + GAP, y + (WORDS + BAND) / 2)
            x += GAP
        cell(sheet, x, y, wide, words, below, kind, f"{name}: {words}, {below} ({kind})")
        x += wide
    if not cells:
        sheet.text(LEFT, y + WORDS + 2, "empty", size=SIZE, fill=GREY)
    return y + ROW - 8


def _arrow(sheet, left, right, y):
    """To the left: a block names the one before it."""
    left, right = left + 2, right - 2
    sheet.strokes([[(left, y), (right, y)], [(left + 5, y - 4), (left, y), (left + 5, y + 4)]], INK, 1.3)
