"""A server of one's own: each slider changes the simulation, and what is shown is the simulation's."""

import re

import pytest

from kvlab.engine import Price, Simulation, arrivals, serve
from kvlab.paging.reservation import lognormal
from kvlab.widgets import ServingWorkload
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")
FEW = {"requests": 12, "prompt": 64, "answer": 16, "num_blocks": 128}


def metrics(per_second=20, prompt=64, answer=16, budget=512, blocks=128, spare=1):
    simulation = Simulation(blocks, 16, budget, spare, Price())
    times = arrivals(lognormal(prompt, answer, 12, seed=1), per_second, seed=1)
    serve(simulation, [(at, [0] * p, a) for at, p, a in times])
    return simulation.metrics()


@pytest.mark.parametrize(
    ("key", "value", "asked"),
    [
        ("kv-rate", 100, {"per_second": 100}),
        ("kv-prompt", 256, {"prompt": 256}),
        ("kv-answer-tokens", 64, {"answer": 64}),
        ("kv-budget", 64, {"budget": 64}),
        ("kv-blocks", 256, {"blocks": 256}),
        ("kv-spare", 0, {"spare": 0}),
    ],
)
def test_each_slider_serves_again(key, value, asked):
    widget, _ = live(ServingWorkload(**FEW))
    before = words(field(widget, "kv-answer").value)
    field(widget, key).value = value
    page, m = words(field(widget, "kv-answer").value), metrics(**asked)
    figures = [m.ttft.median, m.ttft.p90, m.ttft.longest]
    assert "time to first token " + " ".join(f"{1000 * each:,.1f}" for each in figures) in page
    assert f"{m.throughput:,.0f} tokens a second, {m.running:.1f} texts in a step" in page
    assert f"{m.pool_used:.0%} of a pool of" in page and before != page or asked == {"spare": 0}


def test_a_reserve_that_matters_is_seen():
    pages = []
    for spare in (0, 8):
        widget, _ = live(ServingWorkload(per_second=100, requests=30, prompt=64, answer=128, num_blocks=64))
        field(widget, "kv-spare").value = spare
        pages.append(words(field(widget, "kv-answer").value))
    counts = [int(re.search(r"(\d+) preemption", page).group(1)) for page in pages]
    assert counts[0] > counts[1]


def test_a_text_that_no_pool_holds_is_refused_and_the_last_answer_stays():
    shown = ServingWorkload(**FEW)
    widget, _ = live(shown)
    before = words(field(widget, "kv-answer").value)
    field(widget, "kv-prompt").value = 4096
    page = words(field(widget, "kv-answer").value)
    assert (
        "tokens, and the pool has 2,048 slots: take more blocks" in page and shown.said(shown.first) in page
    )
    field(widget, "kv-prompt").value = 64
    assert words(field(widget, "kv-answer").value) == before


def test_what_cannot_be_served_at_the_start_fails_there():
    with pytest.raises(ValueError, match="and the pool has 32 slots"):
        ServingWorkload(num_blocks=2)
    with pytest.raises(ValueError, match="no-such"):
        ServingWorkload(model="no-such-model")


def test_without_a_kernel_there_are_the_same_figures():
    shown = ServingWorkload(**FEW)
    widget, _ = live(shown)
    page = words(field(widget, "kv-answer").value)
    assert shown.said(shown.first) in page and shown.said(shown.first) in shown.text()
    assert shown.said(shown.first) in words(shown.html())
    assert "texts run and" in shown.static_figure().alt and shown.about() in shown.static_figure().alt
