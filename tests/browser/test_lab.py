"""Lessons in JupyterLab, in a browser, as a reader runs them."""

import psutil
import pytest

from kvlab.exercises.questions import RECALL
from tests.browser import conftest
from tests.browser.jupyter import Lab, Server
from tests.notebooks.make import COMMITTED, code, notebook, save

# The lessons that are run in the browser. nbval runs all of them; here it is about what only a browser shows.
LESSONS = ["04_the_kv_cache.ipynb"]


@pytest.mark.parametrize("name", LESSONS)
def test_every_cell_of_the_lesson_runs(lab, name):
    assert (COMMITTED / name).exists()
    lab.open(name)
    lab.run_all()
    cells = lab.cells()
    assert cells and lab.errors() == []
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    a_recall_question_answers(lab, name[:2])


def a_recall_question_answers(lab, lesson):
    """Click the first option of the first question: it says whether that is right, and why."""
    lab.show(f'recall("{lesson}")')
    lab.find(".kv-recall .widget-radio-box").locator("label").first.click()
    option = RECALL[lesson][0].options[0]
    said = lab.page.locator(".kv-recall .widget-html-content", has_text=option.why).first
    said.wait_for(state="attached")
    assert said.inner_text().startswith("Right." if option.right else "No.")


def test_a_slider_moved_by_keyboard_redraws_the_attention_map(lab):
    """Lesson 03's browser: focus the layer slider, press a key, and another head's map stands there."""
    lab.open("03_a_decoder.ipynb")
    lab.run_all()
    assert lab.errors() == []
    lab.show("AttentionBrowser(watched.maps")
    picture = lab.find(".kv-attention-map .widget-html-content")
    before = picture.inner_html()
    assert "layer 0, head 0" in before
    for slider, expected in ((".kv-layer", "layer 1, head 0"), (".kv-head", "layer 1, head 1")):
        handle = lab.find(f"{slider} .noUi-handle")
        handle.focus()
        lab.page.keyboard.press("ArrowRight")
        lab.page.locator(".kv-attention-map svg title", has_text=expected).first.wait_for(state="attached")
        assert lab.find(f"{slider} .widget-readout").inner_text() == "1"
    after = picture.inner_html()
    assert after != before
    assert after.count("<rect") == before.count("<rect") > 100


@pytest.fixture
def small(tmp_path):
    """A notebook whose second cell fails."""
    folder = tmp_path / "small"
    folder.mkdir()
    cells = [
        code("import os\nprint(os.getpid())", count=None),
        code("1 / 0", count=None),
        code("x = 1", count=None),
    ]
    save(notebook(*cells), folder / "01_small.ipynb")
    return folder


def test_a_failing_cell_is_noticed_and_no_process_is_left(browser, small, tmp_path):
    """The check above could fail; and when the server is gone its kernels are gone."""
    with Server(small, tmp_path / "jupyter") as server:
        context = browser.new_context()
        lab = Lab(context.new_page(), server)
        lab.open("01_small.ipynb")
        lab.run_all()
        assert lab.errors() == ["1 / 0"]
        assert [cell["count"] for cell in lab.cells()] == [1, 2, None]
        family = server.processes()
        kernel = int(lab.page.locator(".jp-OutputArea-output pre").first.inner_text())
        context.close()
    assert kernel in [process.pid for process in family]
    assert not [
        process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_the_token_stays_on(server, browser):
    page = browser.new_page()
    page.goto(server.address["url"] + "lab")
    assert "/login" in page.url
    page.close()


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_chromium(monkeypatch, required, outcome):
    monkeypatch.setenv("KVLAB_REQUIRE_BROWSER", required)
    with pytest.raises(outcome, match="apt install chromium"):
        conftest.without_chromium()
