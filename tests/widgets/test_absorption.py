"""Absorb or expand: what it shows is what kvlab.memory says, at every stop of its sliders."""

import pytest

from kvlab import memory
from kvlab.viz import memory as viz
from kvlab.widgets.memory import AbsorbOrExpand
from kvlab.widgets.memory.absorption import CACHED, NEW, quickest, turn
from tests.viz.sheets import faults
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")


def says(*fragments, **values):
    page = words(live(AbsorbOrExpand(), **values)[1])
    for fragment in fragments:
        assert fragment in page
    return page


def test_one_new_token_is_absorbed():
    says(
        "DeepSeek-V3, one layer: 1 new token after 4,096 cached, on NVIDIA H100 SXM",
        "Absorbed is quickest, limited by reading 4.50 MiB.",
        "Expanded cache reads 71.1 times as much, expanded each step computes 117 times as much.",
        "After 4,096 cached tokens, expanding in each step takes fewer FLOPs than absorbing from 168 new",
        "1.41 µs, quickest",
        "One layer, one sequence. Not counted: projections, reading weights (a batch shares that), writing",
    )


def test_a_prompt_is_expanded():
    page = says(
        "4,096 new tokens and none cached",
        "Expanded cache and expanded each step are equally quick, limited by arithmetic, 825 GFLOP.",
        "Absorbed computes 3 times as much.",
        "Without cached tokens, expanding in each step takes fewer FLOPs than absorbing from the first new",
        kv_new=4096,
        kv_cached=0,
    )
    assert page.count("834 µs, quickest") == 2


@pytest.mark.parametrize("device", ["NVIDIA H100 SXM", "NVIDIA T4"])
@pytest.mark.parametrize("new", [1, 64, 8192])
@pytest.mark.parametrize("cached", [0, 1024, 131072])
def test_it_follows_its_fields(new, cached, device):
    page = says(kv_new=new, kv_cached=cached, kv_device=device)
    steps = memory.latent_step("DeepSeek-V3", new, cached)
    least = {name: step.on(device).floor_s for name, step in steps.items()}
    for name, step in steps.items():
        mark = ", quickest" if least[name] == min(least.values()) else ""
        assert f"{viz.duration(least[name])}{mark} " in page
        assert memory.size(step.held) in page and viz.flop_words(step.flops) in page
        assert f"{name}: {step.flops:,} FLOPs" in page and f"{name}: {step.held:,} bytes" in page


@pytest.mark.parametrize(
    "device", ["NVIDIA H100 SXM", "NVIDIA RTX PRO 6000 Blackwell Server", "Apple M4 Pro"]
)
@pytest.mark.parametrize("model", ["DeepSeek-V3", "DeepSeek-V2-Lite", "Kimi-Linear-48B-A3B"])
def test_no_stop_has_a_fault(model, device):
    shown = AbsorbOrExpand(model, device=device)
    for new in sorted(NEW)[::3]:
        for cached in sorted(CACHED)[::4]:
            assert faults(shown.sheet(new, cached, device)) == []


def test_the_fields_and_where_they_begin():
    widget = AbsorbOrExpand(new=5, cached=1000, device="T4").widget()
    stops = {name: [value for _, value in field(widget, name).options] for name in ("kv-new", "kv-cached")}
    assert stops["kv-new"] == [1, 2, 4, 5, *(2**power for power in range(3, 14))]
    assert stops["kv-cached"] == sorted([0, 1000, *(2**power for power in range(18))])
    assert (field(widget, "kv-new").value, field(widget, "kv-cached").value) == (5, 1000)
    assert field(widget, "kv-device").value == "NVIDIA T4" and field(widget, "kv-absorption") is widget
    assert "5 new tokens after 1,000 cached, on NVIDIA T4" in words(field(widget, "kv-answer").value)


def test_a_device_of_unknown_rate_has_no_quickest():
    page = says(
        "Which is quickest is not known, because the arithmetic rate of Apple M4 Pro is not.",
        kv_device="Apple M4 Pro",
    )
    assert "least time" not in page and "limited by" not in page
    assert "µs" not in AbsorbOrExpand(device="Apple M4 Pro").text()


def bars(*seconds, limits=("reading",) * 3):
    names = ("one", "two", "three")
    return [
        viz.FormBars(name, "", 100, 200, "200 B", each, limit, each == min(seconds))
        for name, each, limit in zip(names, seconds, limits, strict=True)
    ]


def test_sentences():
    assert quickest(bars(1, 1, 1), "") == [
        "One and two and three are equally quick, limited by reading 200 B."
    ]
    assert quickest(bars(2, 1, 1), "")[0] == "Two and three are equally quick, limited by reading 200 B."
    assert (
        turn(None, 1)
        == "After 1 cached token, expanding in each step never takes fewer FLOPs than absorbing."
    )


def test_a_wrong_argument_fails_where_it_is_written():
    with pytest.raises(ValueError, match="Llama-3.1-8B has no latent layers"):
        AbsorbOrExpand("Llama-3.1-8B")
    with pytest.raises(memory.UnknownName, match="H100"):
        AbsorbOrExpand(device="H100")
    with pytest.raises(ValueError, match="new is 0"):
        AbsorbOrExpand(new=0)


def test_a_fault_is_said_and_the_last_answer_stays(monkeypatch):
    widget, good = live(AbsorbOrExpand())
    monkeypatch.setattr(memory, "latent_step", lambda *_: {}["nothing"])
    field(widget, "kv-new").value = 2
    page = field(widget, "kv-answer").value
    assert "failed (KeyError: 'nothing')" in words(page) and "kv-stale" in page and "kv-fresh" in good
    assert "1 new token after 4,096 cached" in words(page)


def test_without_a_kernel_there_are_a_table_and_a_picture():
    shown = AbsorbOrExpand()
    data, _ = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"].startswith("<table>") and data["text/plain"] == shown.text()
    for step in memory.latent_step("DeepSeek-V3", 1, 4096).values():
        assert f"{step.flops:,}" in shown.text() and f"{step.held:,}" in shown.html()
    assert shown.text().splitlines()[-1].split()[-2:] == ["reading", "quickest"]
    picture = shown.static_figure()
    assert picture.width == 860 and "absorbed: 1.17 GFLOP, 4.50 MiB of cache, 1.41 µs" in picture.alt
