"""The figures command: a stored picture is what its script draws, and a changed byte is noticed."""

from kvlab.commands import figures
from kvlab.paths import ROOT


def test_stored_figures_are_what_their_scripts_draw():
    scripts = sorted(figures.FIGURES.glob("*.py"))
    assert scripts
    assert [script.name for script in scripts if figures.redraw(script, check=True)] == []


def test_every_figure_is_used():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for script in figures.FIGURES.glob("*.py"):
        assert f"figures/{script.stem}.png" in readme


def test_a_changed_picture_is_noticed_and_redrawn(tmp_path):
    script = tmp_path / "dot.py"
    script.write_text("def draw():\n    return b'dot'\n")
    assert figures.redraw(script, check=True)
    assert not script.with_suffix(".png").exists()
    assert figures.redraw(script, check=False)
    assert not figures.redraw(script, check=True)
    script.with_suffix(".png").write_bytes(b"dat")
    assert figures.redraw(script, check=True)
    assert script.with_suffix(".png").read_bytes() == b"dat"
