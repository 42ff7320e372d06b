"""Which query heads read which KV heads, and which rank holds them: every head is drawn, and in its place."""

import re
from itertools import product

import pytest

from kvlab import viz
from kvlab.memory import ModelSpec, cost, replicated
from kvlab.viz.heads import COPY, KEPT, QUERY, heads_over_ranks, sharing
from kvlab.viz.sheet import Box, Strokes
from tests.viz.sheets import faults, shown

KINDS = {"multi-head (MHA)": 6, "grouped-query (GQA)": 2, "multi-query (MQA)": 1}
DIVISORS = [1, 2, 4, 8, 16, 32]
PAIRS = list(product(DIVISORS, DIVISORS))


def written(sheet, pattern):
    return [text.text for text in sheet.texts() if re.fullmatch(pattern, text.text)]


@pytest.mark.parametrize(("kind", "kv_heads"), KINDS.items())
def test_a_panel_has_all_heads_and_leads_each_to_the_one_it_reads(kind, kv_heads):
    sheet = sharing(6, {kind: kv_heads})
    assert faults(sheet) == []
    assert written(sheet, "q\\d+") == [f"q{head}" for head in range(6)]
    for letter in "kv":
        assert written(sheet, f"{letter}\\d+") == [f"{letter}{head}" for head in range(kv_heads)]
    middles = {text.text: text.x for text in sheet.texts()}
    lines = [thing.lines[0] for thing in sheet.things if isinstance(thing, Strokes) and thing.width > 1]
    read = [f"k{head // (6 // kv_heads)}" for head in range(6)]
    expected = [(middles[f"q{head}"], middles[key]) for head, key in enumerate(read)]
    assert [(start[0], end[0]) for start, end in lines] == expected


def test_panels_stand_side_by_side_and_count_what_a_token_keeps():
    sheet, picture = sharing(6, KINDS), viz.head_sharing(6, KINDS)
    assert faults(sheet) == [] and (picture.width, picture.alt) == (int(sheet.width), sheet.title)
    assert sheet.width <= 780
    for said in ("6 keys + 6 values a token", "2 keys + 2 values a token", "1 key + 1 value a token"):
        assert said in shown(sheet) and said in picture.alt
    assert "grouped-query (GQA): 6 query heads over 2 KV heads" in picture.alt


@pytest.mark.parametrize("query_heads", [1, 2, 12, 16, 32])
def test_panels_that_do_not_fit_side_by_side_stand_below_each_other(query_heads):
    kinds = {"multi-head (MHA)": query_heads, "multi-query (MQA)": 1}
    sheet = sharing(query_heads, kinds)
    assert faults(sheet) == []
    first, second = (text for text in sheet.texts() if text.text in kinds)
    assert (first.y == second.y) == (query_heads < 12) == (first.x != second.x)


def boxes(sheet, look):
    """What the boxes of a look, but the legend's, say when they are pointed at."""
    return [
        thing.tip
        for thing in sheet.things
        if isinstance(thing, Box) and thing.tip and thing.fill == look.fill
    ]


@pytest.mark.parametrize(("kv_heads", "ranks"), PAIRS)
def test_ranks_hold_what_memory_counts(kv_heads, ranks):
    sheet = heads_over_ranks(32, kv_heads, ranks)
    assert faults(sheet) == [] and sheet.width == 780
    spec = ModelSpec.uniform(layers=1, kv_heads=kv_heads, head_dim=1, query_heads=32)
    one_head = cost(spec, 1).bytes_total // kv_heads
    kept, copies = boxes(sheet, KEPT), boxes(sheet, COPY)
    found = cost(spec, 1, tp=ranks)
    assert len(kept) == kv_heads
    assert len(kept) + len(copies) == found.bytes_total // one_head
    on_ranks = [int(re.match("rank (\\d+)", tip).group(1)) for tip in kept + copies]
    assert {on_ranks.count(rank) for rank in range(ranks)} == {found.bytes_per_rank // one_head}
    heads = [int(tip.split("kv ")[1]) for tip in kept + copies]
    times = replicated(spec, ranks)
    assert {heads.count(head) for head in range(kv_heads)} == {times}
    assert sorted(heads[:kv_heads]) == list(range(kv_heads))
    assert (f"kept {times} times" in sheet.title) == (times > 1) == ("copy of a KV head" in shown(sheet))
    assert ("no KV head is kept twice" in sheet.title) == (times == 1)


@pytest.mark.parametrize(("kv_heads", "ranks"), PAIRS)
def test_each_rank_has_the_kv_heads_that_its_query_heads_read(kv_heads, ranks):
    sheet = heads_over_ranks(32, kv_heads, ranks)
    assert written(sheet, "rank \\d+") == [f"rank {rank}" for rank in range(ranks)]
    for rank, queries in enumerate(written(sheet, "q [\\d–]+")):
        first, *last = map(int, re.findall("\\d+", queries))
        computed = range(first, (last or [first])[0] + 1)
        assert len(computed) == 32 // ranks and first == rank * 32 // ranks
        tips = [tip for tip in boxes(sheet, KEPT) + boxes(sheet, COPY) if tip.startswith(f"rank {rank},")]
        assert {int(tip.split("kv ")[1]) for tip in tips} == {head * kv_heads // 32 for head in computed}


def test_a_copy_differs_by_more_than_its_color():
    sheet = heads_over_ranks(32, 2, 8)
    assert (
        len({look.pattern for look in (KEPT, COPY)}) == len({look.fill for look in (KEPT, COPY, QUERY)}) - 1
    )
    assert written(sheet, "copy: kv \\d") == ["copy: kv 0"] * 3 + ["copy: kv 1"] * 3
    assert all("copy: kv" in tip for tip in boxes(sheet, COPY))


@pytest.mark.parametrize(
    ("query_heads", "kv_heads", "ranks"), [(1, 1, 1), (24, 3, 6), (128, 128, 8), (128, 8, 64)]
)
def test_other_numbers_of_heads_have_no_faults(query_heads, kv_heads, ranks):
    assert faults(heads_over_ranks(query_heads, kv_heads, ranks)) == []


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: viz.head_sharing(6, {"four": 4}), "4 KV heads .* 6 query heads .* one of 1, 2, 3, 6"),
        (lambda: viz.head_sharing(6, {"none": 0}), "0 KV heads .* 6 query heads"),
        (lambda: heads_over_ranks(32, 5, 4), "5 KV heads .* 32 query heads .* one of 1, 2, 4, 8, 16, 32"),
        (lambda: heads_over_ranks(32, 8, 3), "3 ranks .* 32 query heads .* one of 1, 2, 4, 8, 16, 32"),
        (lambda: heads_over_ranks(24, 3, 4), "3 KV heads .* 4 ranks .* that divides 3, or a multiple of it"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(draw, said):
    with pytest.raises(ValueError, match=said):
        draw()
