"""A pool of blocks, drawn: each block once and as the log has it, and what happened last in words."""

import re

import pytest

from kvlab import viz
from kvlab.paging import BlockPool, BlockTable, Log, Moment
from kvlab.viz.blocks import blocks_sheet, film, stops
from kvlab.viz.blocks.looks import EMPTY, looks_of
from kvlab.viz.blocks.pool import Grid
from kvlab.viz.blocks.words import counted, described, held, said, touched
from kvlab.viz.sheet import Box, Strokes
from kvlab.viz.show import INK
from tests.viz.sheets import faults, shown, tips
from tests.viz.walks import SIZES, texts_for, walk


def frames(sheet):
    return tips(sheet, r"block (\d+): (?:.*; (\d+) of \d+ slots? filled|free)$")


def outlines(sheet):
    """Where the strong outlines are, except the legend's: (left, top, right, bottom) of each."""
    strong = [thing for thing in sheet.things if isinstance(thing, Strokes) and thing.width == 3]
    corners = [[*zip(*thing.lines[0], strict=True)] for thing in strong[:-1]]
    return [(min(x), min(y), max(x), max(y)) for x, y in corners]


def around(outline, box):
    left, top, right, bottom = outline
    inside = left <= box.x and top <= box.y
    return inside and box.x + box.width <= right and box.y + box.height <= bottom


def some(log, most=8):
    return range(0, len(log.events) + 1, max(1, len(log.events) // most))


@pytest.mark.parametrize("with_texts", [False, True], ids=["plain", "texts"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nothing_overlaps_and_nothing_is_cut(size, with_texts):
    for seed in range(2):
        log = walk(seed, *size)
        texts = texts_for(log) if with_texts else None
        for number in some(log, 5):
            sheet = blocks_sheet(log.at(number), texts)
            assert faults(sheet) == [] and sheet.width == 780
        for across in (1, 2, 3):
            strip = film(log, some(log, 2), across, texts)
            assert faults(strip) == [] and "Step" in strip.title


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_block_is_drawn_once_with_its_owners_and_tokens(size):
    log = walk(7, *size)
    for number in some(log):
        moment, sheet = log.at(number), blocks_sheet(log.at(number))
        drawn = frames(sheet)
        assert [int(found.group(1)) for _, found in drawn] == list(range(moment.num_blocks))
        filled, counts = moment.filled(), moment.counts()
        for block, (box, found) in enumerate(drawn):
            assert found.group(2) == (str(filled[block]) if block in filled else None)
            owners = [name for name, blocks in moment.tables.items() if block in blocks]
            assert all(str(name) in box.tip for name in owners)
            inside = [text.text for text in sheet.texts() if around(frame_of(box), text_box(text))]
            assert inside[0].removeprefix("block ") == str(block)
            assert (f"×{counts[block]}" in inside) == (counts[block] > 1)
            letters = [looks_of(moment)[name].letter for name in owners]
            assert counts[block] > 1 or inside[1:] == (letters or inside[1:])


def frame_of(box):
    return box.x, box.y, box.x + box.width, box.y + box.height


def text_box(text):
    left, top, right, bottom = text.box
    return Box(left, top, right - left, bottom - top, "")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_slots_drawn_as_empty_are_the_waste(size):
    log, grid = walk(3, *size, steps=40, tables=3), Grid.of(*size, {}, 780)
    for number in some(log):
        moment, sheet = log.at(number), blocks_sheet(log.at(number))
        boxes = [thing for thing in sheet.things if isinstance(thing, Box) and thing.fill == EMPTY.fill]
        pool = [frame_of(frame) for frame, _ in frames(sheet)]
        area = sum(box.width * box.height for box in boxes if any(around(frame, box) for frame in pool))
        assert area == pytest.approx(moment.waste() * grid.cell * grid.tall, abs=1e-6)
        assert f"{moment.waste()} held slot" in shown(sheet) and f"{moment.waste()} held slot" in sheet.title


def test_an_owner_of_a_shared_block_has_a_band_of_its_own_tokens():
    log = Log.of(pool := BlockPool(4, 4))
    table = BlockTable(pool)
    table.reserve(4)
    table.advance(4)
    table.fork().truncate(1)
    sheet = blocks_sheet(log.at(len(log.events)))
    frame, looks = frames(sheet)[0][0], looks_of(log.at(len(log.events)))
    grid = Grid.of(4, 4, {}, 780)
    for name, tokens in (("A", 4), ("B", 1)):
        bands = [
            thing.width
            for thing in sheet.things
            if isinstance(thing, Box) and thing.fill == looks[name].fill and thing.height == grid.tall / 2
        ]
        assert bands == [pytest.approx(tokens * grid.cell)]
    assert "A and B; 4 of 4 slots filled" in frame.tip


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_table_has_its_blocks_in_their_order(size):
    log = walk(5, *size)
    for number in some(log):
        moment, sheet = log.at(number), blocks_sheet(log.at(number))
        drawn = {name: [] for name in moment.tables}
        for _, found in tips(sheet, r"(.*), logical block (\d+): block (\d+), (\d+) token"):
            name, place, block, tokens = found.group(1), *map(int, found.groups()[1:])
            assert place == len(drawn[name])
            room = moment.lengths[name] - place * moment.block_size
            assert tokens == min(max(room, 0), moment.block_size)
            drawn[name].append(block)
        assert drawn == moment.tables
        for name, tokens in held(moment).items():
            assert f"{name}: {tokens:,} token" in sheet.title


def test_the_block_touched_last_is_outlined_in_the_pool_and_in_its_table():
    for seed in range(4):
        log = walk(seed, marks=False)
        for number in range(len(log.events) + 1):
            moment = log.at(number)
            sheet, (block, _) = blocks_sheet(moment), touched(moment)
            entries = tips(
                sheet, rf"{moment.event[1]}, logical block \d+: block {block}," if number else "no"
            )
            wanted = [box for box, match in frames(sheet) if match.group(1) == str(block)]
            wanted += [box for box, _ in entries]
            found = outlines(sheet)
            assert len(found) == len(wanted)
            assert all(around(outline, box) for outline, box in zip(found, wanted, strict=True))


def story():
    """Every kind of event."""
    log = Log.of(pool := BlockPool(10, 4))
    log.mark("A prompt")
    a = BlockTable(pool)
    a.reserve(6)
    a.advance(6)
    b = a.fork()
    b.reserve(1)
    b.advance(1)
    b.truncate(4)
    a.fork().release()
    a.truncate(0)
    b.release()
    return log


TOLD = """Nothing has happened yet: all blocks are free.
This comes next; nothing of it has happened yet.
A begins, without a block.
A takes block 0, which was free.
A takes block 1, which was free.
A holds 6 tokens; the last is in block 1, slot 1.
B begins, without a block.
B takes block 0, too: A and B share it.
B takes block 1, too: A and B share it.
B holds 6 tokens; the last is in block 1, slot 1.
B copies block 1 to block 2, to write into it. Block 1 stays with A.
B holds 7 tokens; the last is in block 2, slot 2.
B holds 4 tokens; the last is in block 0, slot 3.
B lets go of block 2. That was its last owner: the block is free.
C begins, without a block.
C takes block 0, too: A, B and C share it.
C takes block 1, too: A and C share it.
C holds 6 tokens; the last is in block 1, slot 1.
C lets go of block 1; it stays with A.
C lets go of block 0; it stays with A and B.
C has ended.
A holds no token.
A lets go of block 1. That was its last owner: the block is free.
A lets go of block 0; it stays with B.
B lets go of block 0. That was its last owner: the block is free.
B has ended."""


def test_every_event_is_told_in_words():
    log, told = story(), TOLD.splitlines()
    assert [said(log.at(number)) for number in range(len(log.events) + 1)] == told
    for number, words in enumerate(told):
        sheet = blocks_sheet(log.at(number))
        assert words in shown(sheet) and words in sheet.title
        assert ("A prompt" in shown(sheet)) == (number > 0) == ("A prompt" in sheet.title)


def test_a_copy_shows_where_it_came_from():
    log = story()
    number = next(number for number, event in enumerate(log.events, 1) if event[0] == "copied")
    sheet = blocks_sheet(log.at(number))
    (dashed,) = [thing for thing in sheet.things if isinstance(thing, Strokes) and thing.dash]
    (left, *_), (_, *_) = zip(*dashed.lines[0], strict=True)
    assert touched(log.at(number)) == (2, 1) and left < frames(sheet)[1][0].x and dashed.color == INK


def test_numbers_count_a_shared_token_once():
    log = story()
    blocks, tokens = counted(log.at(9))
    assert blocks == "10 blocks: 8 free, 2 held, 2 of these shared"
    assert tokens == "6 tokens stored for 12 in the sequences, 2 held slots empty (waste)"
    assert counted(log.at(5))[1] == "6 tokens stored, 2 held slots empty (waste)"
    assert counted(log.at(0)) == ("10 blocks: 10 free, 0 held, 0 of these shared", counted(log.at(0))[1])
    assert described(log.at(9)).endswith("A: 6 tokens, blocks 0, 1. B: 6 tokens, blocks 0, 1.")


def test_a_table_that_lets_go_of_its_blocks_counts_only_what_they_hold():
    moment = story().at(18)  # C let go of block 1
    assert moment.lengths["C"] == 6 and held(moment)["C"] == 4


def test_tables_look_different_and_keep_their_looks():
    names = [f"beam {number}" for number in range(20)] + ["b1", "A", "b", 7, "A long one", "?!?!"]
    looks = looks_of(Moment(1, 1, born=names))
    assert len({look.letter for look in looks.values()}) == len(names)
    assert len({(look.fill, look.pattern) for look in looks.values()}) == len(names)
    assert len({look.pattern for look in [*looks.values()][:5]}) == 5
    for number in range(len(names)):
        some_alive = Moment(1, 1, tables={names[number]: []}, born=names[: number + 1])
        assert looks_of(some_alive)[names[number]] == looks[names[number]]
    assert [look.letter for look in looks_of(Moment(1, 1, born=["A", "B", "AB1"])).values()] == [
        "A",
        "B",
        "AB1",
    ]


def test_a_look_stays_when_another_table_ends():
    log = walk(2, steps=60)
    last = looks_of(log.at(len(log.events)))
    for number in some(log):
        assert looks_of(log.at(number)).items() <= last.items()
    assert len(last) > len(log.at(len(log.events)).tables)


def test_a_block_of_many_owners_says_how_many():
    log = Log.of(pool := BlockPool(4, 4))
    table = BlockTable(pool)
    table.reserve(3)
    table.advance(3)
    for _ in range(5):
        table.fork()
    sheet = blocks_sheet(log.at(len(log.events)))
    assert "×6" in shown(sheet) and "shared by more than 4" in shown(sheet)
    assert "A, B, C, D, E and F; 3 of 4 slots filled" in frames(sheet)[0][0].tip


def test_texts_lie_in_their_slots():
    log, words = story(), ["Once", " up", "on", " a", " time", "\n", " there"]
    sheet = blocks_sheet(log.at(11), {"B": words})  # B copied block 1 and wrote
    assert faults(sheet) == []
    boxes = {number: frame_of(box) for number, (box, _) in enumerate(frames(sheet))}
    drawn = {text.text: text_box(text) for text in sheet.texts()}
    for block, inside in ((0, ["Once", "·up", "on", "·a"]), (2, ["·time", "↵", "·there"])):
        assert all(around(boxes[block], drawn[text]) for text in inside)
        assert [drawn[text].x for text in inside] == sorted(drawn[text].x for text in inside)
    few = blocks_sheet(walk(1, 64, 16).at(30), texts_for(walk(1, 64, 16)))
    assert faults(few) == [] and not any("unbelievably" in text.text for text in few.texts())


def test_stops_are_the_last_moments_under_each_mark():
    log = Log.of(pool := BlockPool(10, 4))
    assert stops(log) == [0]
    table = BlockTable(pool)
    table.reserve(40)
    assert stops(log, 4) == [3, 6, 8, 11] and stops(log, 100) == list(range(12))
    log.mark("one")
    table.advance(3)
    log.mark("two")
    table.advance(3)
    table.truncate(5)
    assert [log.at(number).mark for number in stops(log)] == ["one", "two"]
    assert stops(log) == [13, len(log.events)]


def test_a_filmstrip_has_a_panel_a_moment_under_its_mark():
    log = walk(4)
    picture, strip = viz.filmstrip(log, stops(log)), film(log, stops(log))
    assert picture.alt == " ".join(strip.title.split()) and picture.width == int(strip.width)
    assert len(frames(strip)) == log.num_blocks * len(stops(log))
    for number in stops(log):
        assert described(log.at(number)) in strip.title
        assert said(log.at(number)).split()[0] in shown(strip)
    assert strip.width <= 780 and film(log, [3], 2).width < 400


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (lambda: viz.filmstrip(story(), []), "0 moments, 2 across"),
        (lambda: viz.filmstrip(story(), [1], across=0), "1 moments, 0 across"),
        (lambda: viz.filmstrip(story(), [99]), "there are 25 events"),
        (lambda: blocks_sheet(story().at(5), {"A": ["one"]}), "A holds 6 tokens, and texts has 1 for it"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        draw()
