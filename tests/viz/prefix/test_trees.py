"""A radix tree, drawn: every block once and as the tree has it, and nothing lies over anything else."""

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.paging import BlockPool, RadixTree, Story
from kvlab.viz.prefix import film, tree_sheet
from kvlab.viz.prefix.looks import BAND, LOOKS, SAID, WIDTH, WORDS
from kvlab.viz.prefix.sheets import BAR
from kvlab.viz.prefix.words import described, text_of
from kvlab.viz.sheet import Box, Shape, Strokes, overlap
from kvlab.viz.show import INK, VERMILION
from tests.paging.prefix_cases import nodes
from tests.paging.stories import SIZES, ten, told
from tests.viz.sheets import faults, shown, tips

BLOCK = r"block (\d+)(, outside the tree)?: (.*?)(?:; (locked by .*))?$"
few = settings(max_examples=15, deadline=None)
seeds = given(seed=st.integers(0, 10**6), size=st.sampled_from(SIZES))


def panels(seed, size):
    """Sheets of both widths, of a few moments of a random story -> [(moment, Sheet)]."""
    moments = told(seed, *size).moments[:: max(1, 40 // 6)]
    wide = [(moment, tree_sheet(moment, "7")) for moment in moments]
    return wide + [(moment, film(told_once(moment), [0])) for moment in moments]


class told_once:
    """A story of one moment."""

    def __init__(self, moment):
        self.moments = [moment]


def box_of(box):
    return box.x + 0.01, box.y + 0.01, box.x + box.width - 0.01, box.y + box.height - 0.01


def cells(sheet):
    """The whole cells: one for a block, or for all that have no room."""
    return [box for box, _ in tips(sheet, r"block \d+") if box.height == WORDS + BAND]


def drawn(sheet):
    """(block, outside the tree?, words, what is said of its run, its band's color, its cell), in order."""
    bands = {(box.x, box.y - WORDS): box.fill for box, _ in tips(sheet, r"block \d+") if box.height == BAND}
    for cell in cells(sheet):
        for line in cell.tip.split("\n"):
            block, outside, words, said = re.match(BLOCK, line).groups()
            yield int(block), bool(outside), words, said, bands[cell.x, cell.y], cell


def outside(sheet):
    """Marks and lines that leave it."""
    for thing in sheet.things:
        lines = [thing.points] if isinstance(thing, Shape) else getattr(thing, "lines", ())
        yield from (
            (x, y)
            for line in lines
            for x, y in line
            if not (0 <= x <= sheet.width and 0 <= y <= sheet.height)
        )


def cut(sheet):
    """Texts that stand partly in a cell, or a name's box, and partly out of it."""
    dark = [thing for thing in sheet.things if isinstance(thing, Box) and thing.fill == INK]
    for box in [*cells(sheet), *dark]:
        left, top, right, bottom = box_of(box)
        for text in sheet.texts():
            x0, y0, x1, y1 = text.box
            if overlap(text.box, box_of(box)) and not (
                left <= x0 and x1 <= right and top - 1 <= y0 and y1 <= bottom + 1
            ):
                yield text.text


def crossed(sheet):
    """Texts outside the cells that a line of the tree goes through."""
    lines = [
        (min(a, c), min(b, d), max(a, c), max(b, d))
        for thing in sheet.things
        if isinstance(thing, Strokes) and thing.color != INK
        for line in thing.lines
        for (a, b), (c, d) in zip(line, line[1:], strict=False)
        if a == c or b == d
    ]
    inside = [box_of(box) for box in cells(sheet)]
    for text in sheet.texts():
        left, top, right, bottom = text.box
        if any(overlap(text.box, box) for box in inside):
            continue
        if any(a < right and left < c + 0.01 and b < bottom and top < d + 0.01 for a, b, c, d in lines):
            yield text.text


@few
@seeds
def test_nothing_overlaps_and_nothing_is_cut(seed, size):
    for _, sheet in panels(seed, size):
        assert faults(sheet) == [] and [*outside(sheet)] == []
        boxes = [*map(box_of, cells(sheet))]
        assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
        assert [*cut(sheet)] == [] and [*crossed(sheet)] == []


def test_what_is_wrong_with_a_drawing_is_noticed():
    sheet = tree_sheet(ten().moments[-1])
    assert not [*cut(sheet)] and not [*crossed(sheet)] and not [*outside(sheet)]
    first = cells(sheet)[0]
    sheet.text(first.x + first.width - 4, first.y + 12, "too long for its cell")
    assert {*cut(sheet)} == {"too long for its cell"}
    sheet.text(330, 300, "in the way of a line")
    sheet.line(0, 298, 900, 298)
    assert "in the way of a line" in [*crossed(sheet)] and (900, 298) in [*outside(sheet)]


@few
@seeds
def test_the_picture_is_the_tree(seed, size):
    story = told(seed, *size)
    tree, moment, step = story.tree, story.moments[-1], size[1]
    for sheet in (tree_sheet(moment), film(told_once(moment), [0])):
        seen = [each for each in drawn(sheet) if "evicted" not in (each[3] or "")]
        wanted = {}
        for node in nodes(tree):
            ids = memoryview(node.key).cast("i").tolist()
            for place, block in enumerate(node.blocks):
                wanted[block] = text_of(story.spell(ids[place * step : (place + 1) * step])), node
        inside = {block: (words, said) for block, beside, words, said, _, _ in seen if not beside}
        assert inside.keys() == wanted.keys()
        for block, (words, node) in wanted.items():
            assert inside[block][0] == words
            said = inside[block][1]
            assert f"; {node.hits} hit" in said and f"last use {node.used}" in said
            assert (f"priority {node.priority:g}" in said) == bool(node.priority)
            assert said.startswith("locked by nobody") == (node.locks == 0)
        own = {block for table in story.tables.values() for block in table.blocks} - wanted.keys()
        assert {block for block, beside, *_ in seen if beside} == own


@few
@seeds
def test_the_band_below_a_block_says_what_it_is(seed, size):
    for moment, sheet in panels(seed, size):
        seen, hidden = drawn(sheet), {}
        for run in moment.runs:
            for place, block in enumerate(run.blocks):
                kind = "found" if "found" in run.marks else "locked" if run.locks else "kept"
                kind = "new" if place >= len(run.blocks) - run.new else kind
                kind = "evicted" if "evicted" in run.marks else kind
                number, _, _, _, fill, cell = next(seen)
                assert number == block
                if "\n" in cell.tip:
                    hidden[cell] = hidden.get(cell, 0) + 1
                else:
                    assert fill == LOOKS[kind].fill
        for cell, count in hidden.items():
            wanted = {f"… {count} more …", f"{count} block{'s' * (count > 1)}"}
            assert wanted & {t.text for t in sheet.texts() if overlap(t.box, box_of(cell))}
        marks = {mark for run in moment.runs if run.blocks for mark in run.marks}
        assert all(mark in shown(sheet).replace("evicted now", "").replace("found now", "") for mark in marks)
        assert ("end goes next" in shown(sheet)) == any(run.next for run in moment.runs)
        assert all(said in shown(sheet) for said in SAID.values())


def rows(sheet, moment):
    """Where each run with blocks begins: (x, y)."""
    found, at = [], iter(cells(sheet))
    for run in moment.runs:
        if run.blocks:
            first = next(at)
            seen = len(first.tip.split("\n"))
            while seen < len(run.blocks):
                seen += len(next(at).tip.split("\n"))
            found.append((first.x, first.y))
        else:
            found.append(None)
    return found


@few
@seeds
def test_a_run_stands_below_what_it_goes_on_from_and_further_to_the_right(seed, size):
    for moment, sheet in panels(seed, size):
        places = rows(sheet, moment)
        heights = [place[1] for place in places if place]
        assert heights == sorted(set(heights))
        for run, place in zip(moment.runs, places, strict=True):
            if run.blocks and moment.runs[run.parent].blocks:
                x, y = places[run.parent]
                assert place[0] > x and place[1] > y


@few
@seeds
def test_names_are_beside_the_runs_that_they_have_locked(seed, size):
    for moment, sheet in panels(seed, size):
        for run, place in zip(moment.runs, rows(sheet, moment), strict=True):
            if not place:
                continue
            row = [text for text in sheet.texts() if place[1] < text.y < place[1] + WORDS + BAND]
            chips = [thing for thing in sheet.things if isinstance(thing, Box) and thing.fill == INK]
            beside = [chip for chip in chips if place[1] < chip.y < place[1] + WORDS + BAND]
            more = [int(text.text[1:]) for text in row if re.fullmatch(r"\+\d+", text.text)]
            assert len(beside) + sum(more) == run.locks
            assert ("nobody" in [text.text for text in row]) == (not run.locks and "evicted" not in run.marks)
            names = [text.text for text in row if any(overlap(text.box, box_of(chip)) for chip in beside)]
            assert all(
                str(n).startswith(t.removesuffix("…")) for t, n in zip(names, run.locked, strict=False)
            )


@few
@seeds
def test_numbers_of_a_run_are_in_their_columns(seed, size):
    for moment in told(seed, *size).moments[-3:]:
        sheet = tree_sheet(moment)
        heads = {text.text: text.x for text in sheet.texts() if text.text in ("hits", "last use", "priority")}
        important = any(run.priority for run in moment.runs if run.blocks)
        assert ("priority" in heads) == important or not moment.runs
        for run, place in zip(moment.runs, rows(sheet, moment), strict=True):
            if place and "evicted" not in run.marks:
                row = {
                    text.x: text.text for text in sheet.texts() if place[1] < text.y < place[1] + WORDS + BAND
                }
                assert row[heads["hits"]] == f"{run.hits}" and row[heads["last use"]] == f"{run.used}"


@few
@seeds
def test_the_strip_is_the_pool(seed, size):
    for moment, sheet in panels(seed, size):
        wide = {}
        for kind in ("held", "kept", "free"):
            ((box, found),) = tips(sheet, rf"(\d+) blocks? {kind}$")
            assert int(found[1]) == getattr(moment, kind) and box.height == BAR
            wide[kind] = box.width
        total = moment.held + moment.kept + moment.free
        assert all(
            wide[kind] * total == pytest.approx(getattr(moment, kind) * sum(wide.values())) for kind in wide
        )
        assert f"{moment.held} held, {moment.kept} kept, {moment.free} free" in shown(sheet)


def test_what_a_screen_reader_says():
    story = ten()
    said = described(story.moments[3])
    assert said == (
        "B asks for 10 tokens: 6 found, 4 to compute. 12 blocks: 4 held, 0 kept, 8 free. "
        "6 of 20 tokens found so far (30%), 0 blocks evicted. "
        "Level 1: “You are a kind assistant .”, blocks 0, 1; locked by A and B; 1 hit; last use 3; "
        "found, split. "
        "Level 2: “Who wrote Faust ? Goethe .”, blocks 2, 3; locked by A; 0 hits; last use 2; split."
    )
    last = described(story.moments[-1])
    assert "Root of namespace 'adapter'. Level 1: “Translate : good”, block 6; locked by nobody" in last
    assert "Outside the tree E has “tree” in 11." in last and "evicted." in last
    for moment in story.moments:
        assert tree_sheet(moment).title == described(moment)
        assert moment.said.split(".")[0] in shown(tree_sheet(moment))


def test_lines_lead_from_a_run_to_those_that_go_on_from_it():
    for moment in ten().moments:
        sheet = tree_sheet(moment)
        places = rows(sheet, moment)
        corners = {
            tuple(line) for thing in sheet.things if isinstance(thing, Strokes) for line in thing.lines
        }
        for run, place in zip(moment.runs, places, strict=True):
            if place:
                middle = place[1] + (WORDS + BAND) / 2
                ((at, _), _) = next(line for line in corners if line[1] == (place[0], middle))
                ((_, top), _) = next(line for line in corners if line[1] == (at, middle) and line[0][0] == at)
                parent = places[run.parent]
                assert top == parent[1] + WORDS + BAND if parent else top < place[1]
                assert parent is None or parent[0] < at < place[0]


def test_words_are_whole_where_there_is_room_and_what_is_gone_is_red():
    for moment in ten().moments:
        sheet = tree_sheet(moment)
        written = [text.text for text in sheet.texts()]
        assert not any("…" in text for text in written)
        evicted = [text for text in sheet.texts() if text.text.startswith("evicted") and text.bold]
        assert len(evicted) == sum(bool(run.blocks) and "evicted" in run.marks for run in moment.runs)
        assert all(text.fill == VERMILION for text in evicted)


def test_an_empty_tree_is_said_to_be_empty():
    sheet = tree_sheet(Story(RadixTree(BlockPool(3, 2))).moments[0])
    assert "nothing is stored" in shown(sheet) and "The tree is empty." in sheet.title and faults(sheet) == []


def test_thirty_runs_have_room_on_a_page():
    story = Story(RadixTree(BlockPool(64, 2)))
    for number in range(30):
        story.request(number, [7, 7, number, number])
        story.store(number)
        story.end(number)
    sheet = tree_sheet(story.moments[-1])
    assert len([run for run in story.moments[-1].runs if run.blocks]) == 31
    assert sheet.height < 1450 and sheet.width == WIDTH and faults(sheet) == []


def test_a_long_run_is_shortened_and_says_by_how_much():
    story = Story(RadixTree(BlockPool(64, 2)))
    story.request("A", range(80))
    story.store("A")
    sheet = tree_sheet(story.moments[-1])
    (cell,) = [cell for cell in cells(sheet) if "\n" in cell.tip]
    count = len(cell.tip.split("\n"))
    assert f"… {count} more …" in shown(sheet) and len(cells(sheet)) == 41 - count
    assert cells(sheet)[0].tip.startswith("block 0") and cells(sheet)[-1].tip.startswith("block 39")
