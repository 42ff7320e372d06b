"""The pictures of memory: well-formed, described, to scale, and with no text over another."""

import re

import pytest

from kvlab.viz import memory as viz
from kvlab.viz.memory.lines import MOST, log_words, spread, ticks
from kvlab.viz.memory.looks import MARKS, SERIES
from kvlab.viz.memory.pages import without_list
from kvlab.viz.memory.roofline import time_unit
from kvlab.viz.sheet import Box, Sheet, Strokes, hatching
from tests.viz.sheets import faults, shown

GiB = 2**30
KINDS = list(viz.KINDS)


def parts(**more):
    """Parts of a device's memory, in GiB."""
    sizes = {"weights": 14.5, "kept back": 8, "states": 0, "keys and values": 16}
    sizes |= {"page padding": 0, "free": 41.5}
    sizes |= {name.replace("_", " "): size for name, size in more.items()}
    return [(name, int(size * GiB), f"{size:.2f} GiB") for name, size in sizes.items()]


def bar(**more):
    return viz.device_bar(parts(**more), (80 * GiB, "80.00 GiB"), "Memory of a device")


def widths(sheet):
    """{name: pixels} of the parts of a bar."""
    boxes = [thing for thing in sheet.things if isinstance(thing, Box) and thing.tip]
    return {box.tip.split(":")[0]: box.width for box in boxes}


def test_a_bar_is_to_scale():
    drawn = widths(bar())
    assert list(drawn) == ["weights", "kept back", "keys and values", "free"]
    assert drawn["weights"] / drawn["keys and values"] == pytest.approx(14.5 / 16)
    assert drawn["free"] / drawn["kept back"] == pytest.approx(41.5 / 8)
    assert sum(drawn.values()) == pytest.approx(760)


def test_what_does_not_fit_is_drawn_beyond_the_edge_and_to_scale():
    sheet = bar(keys_and_values=120, free=0, too_much=62.5)
    assert sum(widths(sheet).values()) == pytest.approx(760)
    assert widths(sheet)["weights"] / widths(sheet)["keys and values"] == pytest.approx(14.5 / 120)
    edge = 10 + 760 * 80 / 142.5
    assert any(
        isinstance(thing, Strokes) and thing.lines[0][0][0] == pytest.approx(edge) for thing in sheet.things
    )
    assert "too much 62.50 GiB" in shown(sheet)
    assert "more than the device holds" in sheet.title
    assert "more than" not in bar().title


@pytest.mark.parametrize("kv", [0, 0.001, 1, 30, 57.5, 500, 10**6])
@pytest.mark.parametrize("pool", [0, 0.1, 40])
def test_a_bar_has_no_faults(kv, pool):
    over = max(0, kv + pool - 57.5)
    assert (
        faults(bar(keys_and_values=kv, page_padding=pool, free=max(0, 57.5 - kv - pool), too_much=over)) == []
    )


@pytest.mark.parametrize("count", [0, 1, 26, 48, 49, 118, 250])
def test_a_strip_has_a_column_a_layer(count):
    layers = [(KINDS[i % len(KINDS)], 1000 * (i % 3), f"{i % 3} kB") for i in range(count)]
    sheet = viz.layer_strip(layers, {kind: f"some {kind}" for kind in KINDS}, "Layers")
    assert faults(sheet) == []
    assert set(re.findall(r"layer (\d+), ", sheet.svg())) == {str(i) for i in range(count)}
    tall = {thing.height for thing in sheet.things if isinstance(thing, Box) and "2 kB" in thing.tip}
    assert tall <= {44, 15}  # the tallest, and the cell of its letter


def test_kinds_differ_by_more_than_color():
    letters = [look.letter for look in viz.KINDS.values()]
    assert len(set(letters)) == len(letters) and all(letters)
    assert len({(look.fill, look.pattern) for look in viz.KINDS.values()}) == len(letters)
    assert len({(look.fill, look.pattern) for look in viz.PARTS.values()}) == len(viz.PARTS)
    assert len(set(SERIES)) == len(set(MARKS)) == len(SERIES) == MOST


def lines(count=5, name="A model of some length"):
    points = [tuple((2**i, (index + 1) * 1000 * 2**i) for i in range(7, 21)) for index in range(count)]
    return [viz.Line(f"{name} {i}", each, each[8][1], 2**15) for i, each in enumerate(points)]


@pytest.mark.parametrize("count", [1, 5, MOST])
@pytest.mark.parametrize("tokens", [1, 128, 32768, 2**20])
def test_lines_have_no_faults(count, tokens):
    assert faults(viz.lines_chart(lines(count), tokens, ("GiB", GiB), "Lines")) == []


def test_lines_say_what_they_are_at_the_chosen_length():
    sheet = viz.lines_chart(lines(2, "M"), 32768, ("GiB", GiB), "Lines")
    assert "At 32,768 tokens: M 1 0.061 GiB, M 0 0.0305 GiB." in sheet.title
    with pytest.raises(ValueError, match="no line to draw"):
        viz.lines_chart([], 1, ("GiB", GiB), "Lines")
    with pytest.raises(ValueError, match=f"{MOST + 1} lines cannot be told apart"):
        viz.lines_chart(lines(MOST + 1), 1, ("GiB", GiB), "Lines")


def test_equal_lines_keep_their_names_apart():
    same = [viz.Line(name, ((128, 5000), (2**20, 5000)), 5000) for name in "abcdefgh"]
    sheet = viz.lines_chart(same, 4096, ("GB", 10**9), "Lines")
    assert faults(sheet) == []
    places = [text.y for text in sheet.texts() if text.text in list("abcdefgh")]
    assert places == sorted(places) and len(set(places)) == 8


def test_spread_moves_no_further_than_needed():
    assert spread([50, 100], 17, 0, 200) == [50, 100]
    assert spread([100, 50, 51], 10, 0, 200) == [100, 50, 60]
    assert spread([195, 198, 199], 10, 0, 200) == [180, 190, 200]


def test_a_logarithmic_axis_says_so():
    said = shown(viz.lines_chart(lines(), 4096, ("GiB", GiB), "Lines"))
    assert "tokens of one text (log scale: ×4 from line to line)" in said
    assert "GiB (log scale: ×10 from line to line)" in said
    assert log_words([5]) == "log scale"


def test_ticks_are_round():
    assert ticks(0.5, 2000, 10, 1) == [1, 10, 100, 1000]
    assert ticks(GiB / 50, 3 * GiB, 10, GiB) == pytest.approx([GiB / 10, GiB])
    assert len(ticks(1, 1e30, 10, 1)) <= 9


@pytest.mark.parametrize(
    ("value", "words"), [(0.00123, "0.00123"), (0, "0"), (1, "1"), (9.876, "9.88"), (12345.6, "12,346")]
)
def test_plain_numbers(value, words):
    assert viz.plain(value) == words


def bars(read=0.004, compute=0.0001, count=9):
    return [viz.Bar(2**i, 10**9, 10**8 * 2**i, read * (1 + i), compute * 2**i, i < 7) for i in range(count)]


@pytest.mark.parametrize("per", ["step", "token"])
@pytest.mark.parametrize(("read", "compute"), [(1e-7, 1e-9), (0.004, 1e-4), (0.001, 0.1), (40, 0)])
def test_bars_have_no_faults(per, read, compute):
    assert faults(viz.step_bars(bars(read, compute), 16, per, "Time")) == []


def test_a_bar_is_as_tall_as_its_floor_and_split_by_bytes():
    one, two = viz.Bar(1, 300, 100, 0.004, 0.001), viz.Bar(2, 300, 200, 0.005, 0.008)
    sheet = viz.step_bars([one, two], 1, "step", "Time")
    assert "1: 4.00 ms, 2: 8.00 ms" in sheet.title
    boxes = [thing for thing in sheet.things if isinstance(thing, Box) and thing.tip]
    tall = [box.height for box in boxes if "bytes" in box.tip]
    assert tall[0] / tall[1] == pytest.approx(3) and tall[2] / tall[3] == pytest.approx(1.5)
    assert sum(tall[2:]) / sum(tall[:2]) == pytest.approx(5 / 4)
    arithmetic = [box for box in boxes if box.tip.startswith("arithmetic")]
    assert [box.height / sum(tall[:2]) for box in arithmetic] == pytest.approx([1 / 4, 8 / 4])
    assert all(box.width > 20 for box in arithmetic) and "the taller one counts" in shown(sheet)
    assert "1: 4.00 ms, 2: 4.00 ms" in viz.step_bars([one, two], 1, "token", "Time").title


def test_arithmetic_too_short_to_be_seen_is_said_to_be():
    quick = viz.step_bars(bars(0.004, 1e-9), 1, "step", "Time")
    assert "arithmetic, at the same time: too short to be seen" in shown(quick)
    assert not [thing for thing in quick.things if isinstance(thing, Box) and "arithmetic" in thing.tip]
    assert "arithmetic" not in shown(viz.step_bars(bars(0.004, 0), 1, "step", "Time"))


@pytest.mark.parametrize(
    ("seconds", "unit"), [(40_000, "h"), (900, "min"), (20, "s"), (0.02, "ms"), (0.0002, "µs")]
)
def test_the_unit_of_a_time(seconds, unit):
    assert time_unit(seconds)[0] == unit


@pytest.mark.parametrize("rate", [None, 1e15])
@pytest.mark.parametrize("intensity", [0.5, 30, 290, 310, 20_000])
def test_a_roofline_has_no_faults(rate, intensity):
    reached = min(intensity * 3e12, rate or 1e30)
    points = [viz.Point("decode", "decode, batch 256", intensity, reached)]
    points += [viz.Point("prefill", "prefill, one text", 9000.0, rate)] if rate else []
    trail = [(2.0**i, min(2.0**i * 3e12, rate or 1e30)) for i in range(6)]
    sheet = viz.roofline(3e12, rate, points, trail, "Roofline")
    assert faults(sheet) == []
    assert ("1 PFLOP/s in 16 bits" in shown(sheet)) == (rate is not None) == ("ridge: 333" in shown(sheet))
    assert "FLOPs for each byte read (log scale: ×10 from line to line)" in shown(sheet)
    assert "Bandwidth 3,000 GB/s" in sheet.title


@pytest.mark.parametrize("rate", [None, 1e15])
def test_a_roof_may_stand_alone(rate):
    sheet = viz.roofline(3e12, rate, [], [], "Roofline")
    assert faults(sheet) == [] and "decode" not in shown(sheet) + sheet.title
    assert "Bandwidth 3,000 GB/s" in sheet.title


def test_a_point_of_a_step():
    assert viz.Point.of("decode", "d", flops=600, seconds=2, intensity=5) == viz.Point("decode", "d", 5, 300)


def test_a_drawing_becomes_a_picture_and_keeps_its_description():
    both = viz.together([bar(), viz.layer_strip([("full", 5, "5 B")] * 3, {"full": "three"}, "Layers")])
    picture = both.picture()
    assert (picture.width, picture.height) == (780, int(both.height))
    assert picture.alt == both.title and "Memory of a device: 80.00 GiB" in picture.alt
    assert picture.png == both.picture().png
    assert faults(both) == []


def test_what_is_drawn_later_covers_what_was_drawn_before_in_a_picture_too():
    def picture(cover):
        sheet = Sheet(40, 20, "A box.")
        if cover:
            sheet.text(5, 15, "x")
            sheet.mark(30, 10, "#FF0000")
            sheet.rect(0, 0, 40, 20, "#0000FF", pattern="x")
        sheet.rect(0, 0, 40, 20, "#00FF00")
        return sheet.picture().png

    assert picture(True) == picture(False)


def test_sheets_side_by_side():
    both = viz.together([Sheet(100, 50, "One."), Sheet(80, 70, "Two.")], across=True, gap=10)
    assert (both.width, both.height, both.title) == (190, 70, "One. Two.")


@pytest.mark.parametrize("pattern", "/x-|.")
@pytest.mark.parametrize(("width", "height"), [(2, 2), (5, 40), (300, 12)])
def test_patterns_stay_in_their_box(pattern, width, height):
    for line in hatching(pattern, 10, 20, width, height):
        for x, y in line:
            assert 10 - 1e-9 <= x <= 10 + width + 1e-9 and 20 - 1e-9 <= y <= 20 + height + 1e-9


def test_digits_in_threes_are_the_number_alone():
    page = viz.grouped(1073741824)
    assert re.sub("<[^>]*>", "", page) == "1073741824"
    assert page.count('<span class="kv-three">') == 3


@pytest.mark.parametrize(
    ("number", "exact", "words"),
    [(400, 100, "4.00 times the true size"), (7, 7, "right here"), (0, 0, "both are empty")],
)
def test_times(number, exact, words):
    assert viz.times(number, exact) == words


def test_times_in_words():
    said = {0.0000451: "45.1 µs", 0.0051: "5.10 ms", 0.1234: "123 ms", 12.3: "12.3 s", 119: "119 s"}
    said |= {3.401e-8: "34.0 ns", 0.9994e-6: "999 ns", 0.9996e-6: "1.00 µs"}
    said |= {0.99996: "1.00 s", 300: "5.00 min", 7199: "120 min", 59_700.944: "16.6 h", 1e7: "2,778 h"}
    assert {seconds: viz.duration(seconds) for seconds in said} == said
    assert [viz.per_second(8, s) for s in (0.01, 4)] == ["800", "2.00"]


def test_a_long_list_is_folded_and_what_comes_after_it_is_not():
    names = [f"name-{i}.5 ({i}B)" for i in range(13)]
    said = f"unknown 'x'; a guess would be wrong. Known: {', '.join(names)}. Give <it> by hand: f(a=1, b=2)"
    page = viz.refusal(said)
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "13 are known" in folded and ", ".join(names) in folded
    assert "would be wrong. Give &lt;it&gt; by hand: f(a=1, b=2)" in page and "by hand" not in folded
    assert without_list(f"unknown 'x'; known: {', '.join(names)}") == ("unknown 'x'.", names)
    for short in ("unknown 'x'; known: a, b", "a, b, c", "known: " + ", ".join(names[:12])):
        assert without_list(short) == (short, []) and "<details>" not in viz.refusal(short)


def test_a_narrow_page_shrinks_a_sheet_to_three_quarters_and_then_scrolls():
    assert 'width="400" height="50"' in Sheet(400, 50, "One.").svg()
    assert "max-width: 100%; min-width: 300px; height: auto" in Sheet(400, 50, "One.").svg()
    page = viz.side_by_side(["<svg>"], "")
    assert '<div class="kv-picture"><svg></div>' in page
    assert ".kv-picture { max-width: 100%; overflow-x: auto }" in page


def test_pages_escape_what_they_are_given():
    fact = viz.Fact("<b>", "<i>", "<u>", "x")
    page = viz.answer_page("<h>", "<a>", 5, [], [fact], ["<w>"], ["<n>"], stale="<s>")
    assert not re.search("<(b|i|u|h|a|w|n|s)>(?!Not computed)", page)
    assert "kv-stale" in page and "kv-stale" not in viz.answer_page("1 B", "", 1, [], [])
