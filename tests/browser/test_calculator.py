"""The memory calculator in JupyterLab: the token slider, moved by keyboard, moves the exact number."""

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
        context.close()
