"""Widgets of lessons 07 and 10 to 13 in JupyterLab: a slider or button that is moved changes the picture."""

import pytest

from kvlab.viz.blocks import stops
from kvlab.viz.blocks.words import described
from kvlab.viz.prefix import tree_sheet
from kvlab.viz.serving import events, load_sheet, step_sheet
from kvlab.widgets import HeadsOverRanks, ServingWorkload
from tests.browser.jupyter import Lab, Server
from tests.notebooks.make import code, notebook, save
from tests.paging.stories import ten

HEADS = "from kvlab.widgets import BlockStepper, HeadsOverRanks\nHeadsOverRanks(kv_heads=8, ranks=4)"
POOL = """
from kvlab.paging import BlockPool, BlockTable, Log
pool = BlockPool(num_blocks=6, block_size=4)
log = Log.of(pool)
a = BlockTable(pool)
log.mark("A stores 6 tokens")
a.reserve(6)
a.advance(6)
log.mark("B forks from A")
b = a.fork()
log.mark("A ends")
a.release()
""".strip()
SERVED = """
from kvlab.engine import Simulation
from kvlab.widgets import SchedulerTimeline, ServingWorkload
simulation = Simulation(num_blocks=8, block_size=4, max_batch_tokens=8, spare_blocks=0)
for prompt, answer in ((9, 6), (5, 14), (10, 3)):
    simulation.submit([0] * prompt, answer)
simulation.run()
""".strip()
FEW = {"requests": 12, "per_second": 20, "prompt": 64, "answer": 16, "num_blocks": 128}
WORKLOAD = f"ServingWorkload(**{FEW})"
TREE = """
from kvlab.widgets.prefix import RadixStepper
from tests.paging.stories import ten
RadixStepper(ten(), at=14)
""".strip()


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    sources = (
        HEADS,
        POOL,
        "BlockStepper(log)",
        SERVED,
        "SchedulerTimeline(simulation.trace)",
        WORKLOAD,
        TREE,
    )
    save(notebook(*(code(source, count=None) for source in sources)), folder / "01_widgets.ipynb")
    return folder


def test_what_is_moved_changes_the_picture(browser, small, tmp_path):
    with Server(small, tmp_path / "jupyter") as server:
        context = browser.new_context()
        lab = Lab(context.new_page(), server)
        lab.open("01_widgets.ipynb")
        lab.run_all()
        assert lab.errors() == []
        heads_are_copied_to_more_ranks(lab)
        events_are_stepped_through(lab)
        steps_of_an_engine_are_stepped_through(lab)
        a_workload_is_served_again(lab)
        a_tree_is_stepped_through_and_evicted(lab)
        context.close()


def heads_are_copied_to_more_ranks(lab):
    """Two sliders by keyboard: from 8 KV heads down to 1, then from 4 ranks to 8; the table counts copies."""
    lab.show("HeadsOverRanks(")
    picture = lab.find(".kv-heads-over-ranks .kv-answer .widget-html-content")
    widget = HeadsOverRanks()
    before = picture.locator("svg").inner_html()
    for slider, key, settings in (
        (".kv-kv-heads", "ArrowLeft", [(4, 4), (2, 4), (1, 4)]),
        (".kv-ranks", "ArrowRight", [(1, 8)]),
    ):
        lab.find(f"{slider} .noUi-handle").focus()
        for setting in settings:
            lab.page.keyboard.press(key)
            picture.locator("svg", has_text=widget.said(*setting)).wait_for(timeout=10_000)
            after = picture.locator("svg").inner_html()
            assert after != before
            before = after
    assert "each KV head is kept 8 times" in before
    assert lab.find(".kv-kv-heads .widget-readout").inner_text() == "1"
    copies = picture.locator("tr", has_text="of these, copies")
    assert f"{widget.rows(1, 8)[-1][1]:,}" in copies.inner_text()


def events_are_stepped_through(lab):
    """The slider goes one event on, the buttons to the end of a part, and at the ends they are grey."""
    log = {}
    exec(POOL, log)
    log = log["log"]
    lab.show("BlockStepper(log)")
    drawn = lab.find(".kv-block-stepper .kv-answer svg")
    before = drawn.inner_html()
    assert described(log.at(0)) == drawn.locator("title").first.text_content()
    assert lab.find(".kv-previous").is_disabled()
    lab.find(".kv-event .noUi-handle").focus()
    lab.page.keyboard.press("ArrowRight")
    stands(lab, log, 1)
    assert lab.find(".kv-previous").is_enabled()
    for number in stops(log):
        lab.find(".kv-next-mark").click()
        stands(lab, log, number)
        after = lab.find(".kv-block-stepper .kv-answer svg").inner_html()
        assert after != before
        before = after
    assert number == len(log.events) and lab.find(".kv-next").is_disabled()
    lab.find(".kv-previous-mark").click()
    stands(lab, log, stops(log)[-2])


def stands(lab, log, number):
    """The picture is of the moment after so many events, and the slider says so."""
    said = described(log.at(number))
    lab.page.wait_for_function(
        "said => document.querySelector('.kv-block-stepper svg title')?.textContent === said",
        arg=said,
        timeout=10_000,
    )
    assert lab.find(".kv-event .widget-readout").inner_text() == str(number)


def steps_of_an_engine_are_stepped_through(lab):
    """The slider goes one step on, the buttons from event to event, and at the ends they are grey."""
    names = {}
    exec(SERVED, names)
    trace, root = names["simulation"].trace, ".kv-scheduler-timeline"
    lab.show("SchedulerTimeline(simulation.trace)")
    shows(lab, root, step_sheet(trace, 0).title)
    assert lab.find(f"{root} .kv-previous-event").is_disabled()
    lab.find(f"{root} .kv-step .noUi-handle").focus()
    lab.page.keyboard.press("ArrowRight")
    shows(lab, root, step_sheet(trace, 1).title)
    for number in [number for number in events(trace) if number > 1]:
        lab.find(f"{root} .kv-next-event").click()
        shows(lab, root, step_sheet(trace, number).title)
        assert lab.find(f"{root} .kv-step .widget-readout").inner_text() == str(number)
    assert number == len(trace) - 1 and lab.find(f"{root} .kv-next").is_disabled()
    lab.find(f"{root} .kv-previous").click()
    shows(lab, root, step_sheet(trace, number - 1).title)


def a_workload_is_served_again(lab):
    """More requests a second, then prompts that the pool cannot hold: refused in words, until they can be."""
    widget, root = ServingWorkload(**FEW), ".kv-serving-workload"
    lab.show(WORKLOAD)
    shows(lab, root, load_sheet(widget.first.trace).title)
    lab.find(f"{root} .kv-rate .noUi-handle").focus()
    lab.page.keyboard.press("ArrowRight")
    shows(lab, root, load_sheet(widget.compute(25, *widget.asked[1:]).trace).title)
    lab.find(f"{root} .kv-prompt .noUi-handle").focus()
    lab.page.keyboard.press("End")
    with pytest.raises(ValueError) as refused:
        widget.compute(25, 4096, *widget.asked[2:])
    lab.page.locator(f"{root} .kv-error", has_text=str(refused.value)).wait_for(timeout=10_000)
    assert lab.find(f"{root} .kv-prompt .widget-readout").inner_text() == "4,096"
    lab.page.keyboard.press("Home")
    shows(lab, root, load_sheet(widget.compute(25, 8, *widget.asked[2:]).trace).title)
    assert lab.page.locator(f"{root} .kv-error").count() == 0


def a_tree_is_stepped_through_and_evicted(lab):
    """The slider by keyboard; then a block after the other is evicted, until all that is left is locked."""
    story, root = ten(), ".kv-radix-stepper"
    lab.show("RadixStepper(ten()")
    shows(lab, root, tree_sheet(story.moments[14]).title)
    lab.find(f"{root} .kv-moment .noUi-handle").focus()
    for key, number in (("ArrowRight", 15), ("Home", 0), ("ArrowRight", 1)):
        lab.page.keyboard.press(key)
        shows(lab, root, tree_sheet(story.moments[number]).title)
    while story.evictable:
        assert lab.find(f"{root} .kv-evictable").inner_text() == f"{story.evictable} can go"
        lab.find(f"{root} .kv-evict").click()
        story.evict(1)
        shows(lab, root, tree_sheet(story.moments[-1]).title)
        moment = len(story.moments) - 1
        assert lab.find(f"{root} .kv-moment .widget-readout").inner_text() == str(moment)
        written = lab.find(f"{root} .kv-answer svg").locator("text").all_text_contents()
        assert story.moments[-1].said in written and story.moments[-2].said not in written
    lab.page.locator(f"{root} .kv-evictable", has_text="none can go").wait_for(timeout=10_000)
    assert lab.find(f"{root} .kv-evict").is_disabled() and moment == 20
    lab.find(f"{root} .kv-previous").click()
    shows(lab, root, tree_sheet(story.moments[-2]).title)


def shows(lab, root, said):
    """The picture in a widget is an answer to its settings, and has these words."""
    lab.page.wait_for_function(
        "([title, said]) => document.querySelector(title)?.textContent.includes(said)",
        arg=[f"{root} .kv-fresh svg title", said],
        timeout=10_000,
    )
