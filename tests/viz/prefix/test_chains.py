"""Chains of named blocks: only full ones have names, and a name that was there before is found."""

from itertools import accumulate
from random import Random
from zlib import crc32

import pytest

from kvlab.viz.prefix import chains_sheet, hash_chains
from kvlab.viz.prefix.looks import BAND, LOOKS, WIDTH, WORDS
from kvlab.viz.prefix.words import text_of
from kvlab.viz.sheet import Strokes, overlap
from tests.paging.stories import WORDS as ANY
from tests.viz.sheets import faults, shown, tips

CELL = r"(.*): (.*), (\S+|no name) \((found|new|kept)\)$"


def chains(seed, size=3, texts=5):
    """Texts that begin alike, or go on alike behind other beginnings; a name is of all up to its block."""
    choose, made = Random(seed), []
    for number in range(texts):
        _, before, _ = choose.choice(made) if made else ("", [], [])
        words = before[: choose.randint(0, len(before))] + choose.choices(ANY, k=choose.randint(0, 30))
        full = [tuple(words[at : at + size]) for at in range(0, len(words) - size + 1, size)]
        names = [
            f"{crc32(repr(each).encode()):x}" for each in accumulate(full, lambda name, block: (name, block))
        ]
        made.append((choose.choice(["", "rather long text "]) + str(number), words, names))
    return made


@pytest.mark.parametrize("seed", range(6))
def test_nothing_overlaps_and_a_name_known_before_is_found(seed):
    size = seed % 4 + 1
    texts = chains(seed, size)
    sheet = chains_sheet(texts, size)
    assert faults(sheet) == [] and sheet.width == WIDTH
    cells = [each for each in tips(sheet, CELL) if each[0].height == WORDS + BAND]
    boxes = [(b.x + 0.1, b.y + 0.1, b.x + b.width - 0.1, b.y + b.height - 0.1) for b, _ in cells]
    assert not any(overlap(a, b) for n, a in enumerate(boxes) for b in boxes[:n])
    known, at = set(), iter(cells)
    for name, words, hashes in texts:
        for place in range(-(-len(words) // size)):
            _, match = next(at)
            full = place < len(hashes)
            kind = "kept" if not full else "found" if hashes[place] in known else "new"
            label = hashes[place] if full else "no name"
            assert match.groups() == (name, text_of(words[place * size :][:size]), label, kind)
        known |= set(hashes)
        full = f"{len(hashes)} full block{'s' * (len(hashes) != 1)}"
        assert f"{name}: {full}, " in sheet.title
    assert next(at, None) is None
    for box, match in tips(sheet, CELL):
        if box.height == BAND:
            assert box.fill == LOOKS[match[4]].fill


def test_an_arrow_leads_to_the_block_before():
    sheet = chains_sheet([("A", list("abcdef"), ["x", "y", "z"]), ("B", list("ab"), ["x"])], 2)
    cells = [box for box, _ in tips(sheet, CELL) if box.height == WORDS + BAND]
    arrows = [each for each in sheet.things if isinstance(each, Strokes) and len(each.lines) == 2]
    assert len(arrows) == 2
    for one, other, arrow in zip(cells, cells[1:], arrows, strict=False):
        (left, _), (right, _) = arrow.lines[0]
        assert one.x + one.width < left < right < other.x
    assert "B: 1 full block, 1 found." in sheet.title and "not full: no name, and never found" in shown(sheet)


def test_the_picture_says_the_same():
    texts = chains(1)
    assert hash_chains(texts, 3).alt == " ".join(chains_sheet(texts, 3).title.split())


@pytest.mark.parametrize("names", [[], ["x", "y"]])
def test_a_name_too_many_or_too_few_is_refused(names):
    with pytest.raises(ValueError, match=f"A has 1 full block, and {len(names)} names"):
        hash_chains([("A", list("abc"), names)], 2)
