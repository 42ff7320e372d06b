"""How programs fill a GPU: every field asks again, and the numbers are those of the kernel's own rules."""

import re
from html import unescape
from itertools import product

import pytest

from kvlab import memory
from kvlab.kernels import splits
from kvlab.kernels.triton_launch import tiling
from kvlab.viz.kernels.looks import percent
from kvlab.viz.memory import duration
from kvlab.widgets.kernels import (
    CONTEXTS,
    GROUPS,
    HEAD_DIM,
    KV_HEADS,
    MULTIPROCESSORS,
    SEQUENCES,
    TILE,
    OccupancyExplorer,
    launch,
)
from tests.viz.sheets import faults
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")
FIRST = {"sequences": 1, "kv_heads": 8, "group": 4, "context": 8192, "parts": None}
FIRST["device"] = "NVIDIA H100 SXM"
SETTINGS = list(product((1, 7, 256), (1, 8, 32), (1, 4), (128, 8192, 131_072), (0, 1, 5, 64)))


def drawn(page):
    return unescape(re.search("<svg.*?<title>(.*?)</title>", page).group(1))


def by_hand(sequences, kv_heads, group, context, parts, device):
    """-> (parts, programs, bytes)."""
    parts = parts or splits.choose(sequences * kv_heads, context, TILE, MULTIPROCESSORS[device])
    tiles = -(-context // TILE)
    parts = -(-tiles // -(-tiles // parts))  # whole tiles in each
    return parts, sequences * kv_heads * parts, sequences * context * kv_heads * HEAD_DIM * 2 * 2


@pytest.mark.parametrize("group", GROUPS)
def test_the_tile_is_the_kernels_and_a_kv_head_needs_one_tile_of_rows(group):
    sizes = tiling(group, HEAD_DIM, HEAD_DIM, latent=False, itemsize=2)
    assert sizes.tokens == TILE and sizes.rows >= group


@pytest.mark.parametrize("device", MULTIPROCESSORS)
def test_the_least_time_is_that_of_programs_alike_turn_after_turn(device):
    count, bandwidth = MULTIPROCESSORS[device], memory.device(device).bandwidth
    for asked in SETTINGS:
        found, (parts, programs, nbytes) = launch(*asked, device), by_hand(*asked, device)
        assert (found.parts, found.programs, found.nbytes) == (parts, programs, nbytes)
        assert found.turns == -(-programs // count) and found.share * parts >= asked[3]
        one = (nbytes / programs) / (bandwidth / count)  # a program alone, with its share of the bandwidth
        assert found.modelled_s == pytest.approx(found.turns * one)
        assert found.full_s == pytest.approx(nbytes / bandwidth)


def test_a_program_for_each_query_head_reads_all_of_its_kv_head():
    alone, packed = (launch(2, 8, 4, 4096, 1, FIRST["device"], packed) for packed in (False, True))
    assert alone.programs == 4 * packed.programs == 64 and alone.nbytes == 4 * packed.nbytes


def numbers(each):
    """A row of the table, without its name."""
    read = memory.size(each.nbytes, "decimal")
    row = f"{each.parts} {each.programs:,} {each.turns:,} {percent(each.busy)} {read}"
    return f"{row} {duration(each.modelled_s)}"


@pytest.mark.parametrize(
    ("key", "value", "asked"),
    [
        ("kv-sequences", 64, {"sequences": 64}),
        ("kv-kv-heads", 32, {"kv_heads": 32}),
        ("kv-group", 16, {"group": 16}),
        ("kv-context", 131_072, {"context": 131_072}),
        ("kv-parts", 3, {"parts": 3}),
        ("kv-device", "NVIDIA B200 SXM", {"device": "NVIDIA B200 SXM"}),
    ],
)
def test_each_field_asks_again(key, value, asked):
    widget, before = live(OccupancyExplorer(**FIRST))
    assert "kv-occupancy-explorer" in widget._dom_classes
    field(widget, key).value = value
    answer, setting = field(widget, "kv-answer").value, FIRST | asked
    page, now = words(answer), launch(**setting)
    count = MULTIPROCESSORS[setting["device"]]
    turns = f"{now.turns} turn{'s' * (now.turns > 1)}"
    assert page != words(before) and "Not computed" not in page
    assert (
        f"{now.programs:,} programs in {turns} on {count} multiprocessors: {percent(now.busy)} busy." in page
    )
    model, full = duration(now.modelled_s), duration(now.full_s)
    assert f"read in {model} by this model; with all of the bandwidth in {full}" in page
    assert f"{now.programs:,} programs in {turns}, {percent(now.busy)} busy" in drawn(answer)
    assert f"{count} multiprocessors, busy or idle" in drawn(answer)
    rows = {
        "a program for each query head": launch(**setting | {"parts": 1}, packed=False),
        "a program for each KV head": launch(**setting | {"parts": 1}),
        "... and part, as the kernel does": launch(**setting | {"parts": None}),
    }
    if setting["parts"]:
        rows["... and part, as chosen here"] = now
    for name, each in rows.items():
        assert f"{name} {numbers(each)}" in page
    assert page.count("... and part") == len(rows) - 2 and "A simple model." in page


def test_it_says_what_the_kernel_takes():
    explorer = OccupancyExplorer(**FIRST | {"parts": 3})
    parts, programs, _ = by_hand(**FIRST)
    share = splits.share(8192, parts, TILE)
    assert parts > 3 and launch(**FIRST).programs == programs == 8 * parts
    assert f"The kernel takes {parts} parts of up to {share:,} tokens." in explorer.text()
    widget, _ = live(explorer)
    field(widget, "kv-sequences").value = 256
    assert "The kernel takes 1 part: it does not cut the contexts." in words(field(widget, "kv-answer").value)
    field(widget, "kv-parts").value = 0
    assert "1 part each" in drawn(field(widget, "kv-answer").value)


def test_more_parts_than_tiles_are_as_many_as_there_are_tiles():
    page = words(OccupancyExplorer(context=128, parts=64).html())
    assert "1 sequence of 128 tokens, 8 KV heads, 2 parts each" in page and "16 programs in 1 turn" in page


@pytest.mark.parametrize("device", MULTIPROCESSORS)
def test_nothing_overlaps(device):
    for asked in SETTINGS[::7]:
        assert faults(OccupancyExplorer(**FIRST).sheet(*asked, device)) == []


def test_the_drawing_does_not_become_less_high():
    explorer = OccupancyExplorer(**FIRST)
    asked = [(sequences, *explorer.asked[1:]) for sequences in (1, 256, 1)]
    heights = [int(re.search(r'<svg[^>]* height="(\d+)', explorer.page(*each)).group(1)) for each in asked]
    assert heights[1] == heights[2] > heights[0]


def test_its_fields_begin_where_they_were_told_to():
    widget, _ = live(OccupancyExplorer(3, 6, 5, 1000, 17, "A100 80GB SXM"))
    keys = "kv-sequences", "kv-kv-heads", "kv-group", "kv-context", "kv-parts", "kv-device"
    assert [field(widget, key).value for key in keys] == [3, 6, 5, 1000, 17, "NVIDIA A100 80GB SXM"]
    ranges = SEQUENCES, KV_HEADS, GROUPS, CONTEXTS
    for key, own, values in zip(keys, (3, 6, 5, 1000), ranges, strict=False):
        assert [value for _, value in field(widget, key).options] == sorted({*values, own})
    assert [value for _, value in field(widget, "kv-parts").options] == list(range(splits.MOST + 1))
    assert all(memory.device(name).name == name for name in MULTIPROCESSORS)


def test_a_failure_is_said_and_the_last_answer_stays(monkeypatch):
    widget, first = live(OccupancyExplorer(**FIRST))
    monkeypatch.setitem(MULTIPROCESSORS, "NVIDIA B200 SXM", 0)
    field(widget, "kv-device").value = "NVIDIA B200 SXM"
    page = words(field(widget, "kv-answer").value)
    assert "Not computed" in page and "on 132 multiprocessors" in page
    field(widget, "kv-device").value = FIRST["device"]
    assert field(widget, "kv-answer").value == first


def test_without_a_kernel_there_are_the_same_numbers():
    explorer = OccupancyExplorer(**FIRST | {"parts": 17})
    for still in (" ".join(explorer.text().split()), words(explorer.html())):
        assert "128 programs in 1 turn on 132 multiprocessors: 97% busy." in still
        assert "1 sequence of 8,192 tokens, 8 KV heads, 16 parts each" in still
        assert "a simple model" in still.lower() and "draws its share of the bandwidth" in still
        assert numbers(launch(**FIRST)) in still
    data, _ = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data and "<svg" not in data["text/html"]
    assert "128 programs in 1 turn, 97% busy" in explorer.static_figure().alt


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sequences": 0}, "sequences is 0"),
        ({"kv_heads": 0}, "kv_heads is 0"),
        ({"group": -1}, "group is -1"),
        ({"context": 0}, "context is 0"),
        ({"parts": 0}, "parts is 0"),
        ({"parts": 65}, "parts is 65; the kernel takes 64 at most"),
        ({"device": "NVIDIA T4"}, "NVIDIA T4 is not among the devices here: NVIDIA A100 80GB SXM, "),
        ({"device": "no such GPU"}, "no such GPU"),
    ],
)
def test_a_wrong_setting_fails_where_it_is_written(wrong, said):
    with pytest.raises(ValueError, match=said):
        OccupancyExplorer(**FIRST | wrong)
