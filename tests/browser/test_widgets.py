"""Widgets of lessons 07 and 10 in JupyterLab: a slider or button that is moved changes the picture below."""

import pytest

from kvlab.viz.blocks import stops
from kvlab.viz.blocks.words import described
from kvlab.widgets import HeadsOverRanks
from tests.browser.jupyter import Lab, Server
from tests.notebooks.make import code, notebook, save

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


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    cells = [code(source, count=None) for source in (HEADS, POOL, "BlockStepper(log)")]
    save(notebook(*cells), folder / "01_widgets.ipynb")
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
