"""Lesson 18's widget in JupyterLab: its sliders by keyboard, its lists, and the picture that follows."""

import pytest

from kvlab.widgets.kernels import OccupancyExplorer
from tests.browser.jupyter import Lab, Server
from tests.notebooks.make import code, notebook, save

SOURCE = "from kvlab.widgets.kernels import OccupancyExplorer\nOccupancyExplorer()"
ROOT = ".kv-occupancy-explorer"
MOVES = [  # a field, a key, and the settings that it leads to
    ("kv-sequences", "ArrowRight", {"sequences": 2}),
    ("kv-sequences", "End", {"sequences": 256}),
    ("kv-kv-heads", "Home", {"sequences": 256, "kv_heads": 1}),
    ("kv-group", "ArrowRight", {"sequences": 256, "kv_heads": 1, "group": 8}),
    ("kv-context", "ArrowLeft", {"sequences": 256, "kv_heads": 1, "group": 8, "context": 4096}),
    ("kv-parts", "ArrowRight", {"sequences": 256, "kv_heads": 1, "group": 8, "context": 4096, "parts": 1}),
]


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    save(notebook(code(SOURCE, count=None)), folder / "18_occupancy.ipynb")
    return folder


def test_what_is_moved_changes_the_picture(browser, small, tmp_path):
    with Server(small, tmp_path / "jupyter") as server:
        context = browser.new_context()
        lab = Lab(context.new_page(), server)
        lab.open("18_occupancy.ipynb")
        lab.run_all()
        assert lab.errors() == []
        lab.show("OccupancyExplorer()")
        shows(lab, OccupancyExplorer())
        for key, press, setting in MOVES:
            lab.find(f"{ROOT} .{key} .noUi-handle").focus()
            lab.page.keyboard.press(press)
            shows(lab, OccupancyExplorer(**setting))
        lab.find(f"{ROOT} .kv-device select").select_option("NVIDIA B200 SXM: 148")
        shows(lab, OccupancyExplorer(**setting, device="NVIDIA B200 SXM"))
        everything_fits(lab)
        context.close()


def shows(lab, explorer):
    """Picture, sentence and table are those of the settings at which this one begins."""
    asked = explorer.asked
    rows = [
        [f"{cell:,}" if isinstance(cell, int) else cell for cell in row]
        for row in explorer.table(*asked).rows
    ]
    lab.page.wait_for_function(
        """([root, wanted]) => {
            const all = (inside, found) => Array.from(inside?.querySelectorAll(found) ?? []);
            const answer = document.querySelector(`${root} .kv-fresh`);
            const text = found => answer?.querySelector(found)?.textContent;
            const rows = all(answer, "tbody tr").map(row => all(row, "td").map(cell => cell.textContent));
            const seen = [text("svg title"), text(".kv-occupancy"), rows];
            return JSON.stringify(seen) === JSON.stringify(wanted);
        }""",
        arg=[ROOT, [explorer.sheet(*asked).title, explorer.said(*asked)[0], rows]],
        timeout=10_000,
    )


def everything_fits(lab):
    """Nothing but pictures scrolls sideways, and every label is drawn inside its picture."""
    inside = "sheet => sheet.scrollWidth <= sheet.clientWidth"
    assert lab.find(f"{ROOT} .kv-sheet").evaluate(inside)
    outside = """svg => Array.from(svg.querySelectorAll('text')).map(text => text.getBBox()).filter(
        box => box.x < 0 || box.x + box.width > svg.viewBox.baseVal.width).length"""
    assert lab.find(f"{ROOT} .kv-answer svg").evaluate(outside) == 0
