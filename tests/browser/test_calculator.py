"""The memory calculator in JupyterLab: what is moved by keyboard, or typed, moves the exact number."""

import pytest

from kvlab import memory
from tests.browser.jupyter import Lab, Server
from tests.notebooks.make import code, notebook, save

CELL = 'from kvlab.widgets.memory import MemoryCalculator\nMemoryCalculator("Gemma-3-27B", tokens=896)'


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    save(notebook(code(CELL, count=None)), folder / "01_calculator.ipynb")
    return folder


def test_the_slider_and_the_bytes(browser, small, tmp_path):
    with Server(small, tmp_path / "jupyter") as server:
        context = browser.new_context()
        lab = Lab(context.new_page(), server)
        lab.open("01_calculator.ipynb")
        lab.run_all()
        assert lab.errors() == []
        handle = lab.find(".kv-tokens .noUi-handle")
        total = lab.find(".kv-answer .kv-bytes-total")
        assert int(total.inner_text()) == memory.kv_bytes("Gemma-3-27B", 896)
        handle.focus()
        for tokens in (1024, 1280, 1536):  # across the edge of the model's window
            lab.page.keyboard.press("ArrowRight")
            exact = memory.kv_bytes("Gemma-3-27B", tokens)
            lab.page.locator(f'.kv-bytes-total[data-bytes="{exact}"]').wait_for(timeout=10_000)
            assert lab.find(".kv-tokens .widget-readout").inner_text() == f"{tokens:,}"
            assert int(total.inner_text()) == exact
        numbers_are_typed(lab)
        a_readout_is_not_typed_into(lab)
        what_is_no_number_is_refused(lab)
        a_narrow_page_scrolls_what_it_cannot_shrink(lab)
        context.close()


def numbers_are_typed(lab):
    """Into the field beside the slider, which goes there and on from there."""
    typed, handle = lab.find(".kv-tokens-exact input"), lab.find(".kv-tokens .noUi-handle")
    for text, tokens in (("5000", 5000), ("128,000", 128_000)):
        typed.fill(text)
        typed.press("Enter")
        answered(lab, tokens)
        assert lab.find(".kv-tokens .widget-readout").inner_text() == f"{tokens:,}"
    handle.focus()
    lab.page.keyboard.press("ArrowRight")
    answered(lab, 131_072)
    assert typed.input_value() == "131,072"


def a_readout_is_not_typed_into(lab):
    """Nothing would read it, and it would contradict the answer."""
    readout = lab.find(".kv-tokens .widget-readout")
    box = readout.bounding_box()
    lab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    readout.focus()
    lab.page.keyboard.press("End")
    lab.page.keyboard.insert_text("7")
    assert readout.inner_text() == "131,072"


def answered(lab, tokens):
    exact = memory.kv_bytes("Gemma-3-27B", tokens)
    lab.page.locator(f'.kv-fresh .kv-bytes-total[data-bytes="{exact}"]').wait_for(timeout=10_000)


def what_is_no_number_is_refused(lab):
    """And stays as it was typed; the commas of the answer are seen though they are not part of its text."""
    sequences = lab.find(".kv-sequences input")
    for text in ("1.5", "0", "999999999"):
        sequences.fill(text)
        sequences.press("Enter")
        said = lab.page.locator(".kv-error", has_text=text if "." in text else f"{int(text):,} sequences")
        said.wait_for(timeout=10_000)
        assert sequences.input_value() == text
    sequences.fill("1")
    sequences.press("Enter")
    answered(lab, 131_072)
    comma = "three => getComputedStyle(three, '::before').content"
    assert lab.find(".kv-bytes-total .kv-three").evaluate(comma) == '","'


def a_narrow_page_scrolls_what_it_cannot_shrink(lab):
    lab.page.set_viewport_size({"width": 800, "height": 1400})
    width = (
        "svg => [svg.getBoundingClientRect().width, svg.parentElement.clientWidth, svg.viewBox.baseVal.width]"
    )
    shown, room, drawn = lab.find(".kv-picture svg").evaluate(width)
    assert shown == pytest.approx(0.75 * drawn, abs=1) and room < shown
    inside = "sheet => sheet.scrollWidth <= sheet.clientWidth"
    assert lab.find(".kv-sheet").evaluate(inside), "only pictures scroll"
