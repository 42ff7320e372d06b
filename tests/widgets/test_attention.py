"""The attention browser: moving a slider redraws the head it names."""

import pytest
import torch

from kvlab.viz.attention_map import attention_figure, attention_svg
from kvlab.widgets import AttentionBrowser

PIECES = ["<bos>", "To", " be", "\n"]
MAPS = [torch.eye(4).repeat(3, 1, 1) * 0.5 + 0.125 * layer for layer in range(2)]


def test_a_slider_redraws():
    page = AttentionBrowser(MAPS, PIECES).widget()
    (layers, heads), picture = page.children[0].children, page.children[1]
    assert (layers.max, heads.max) == (1, 2)
    before = picture.value
    layers.value = 1
    assert "layer 1, head 0" in picture.value != before
    heads.value = 2
    assert picture.value == attention_svg(MAPS[1][2].tolist(), PIECES, "layer 1, head 2")


def test_without_a_kernel_there_is_a_note():
    data, _ = AttentionBrowser(MAPS, PIECES)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "2 layers of 3 heads" in data["text/plain"]
    assert "2 layers of 3 heads" in data["text/html"]


def test_the_svg_says_what_it_shows_and_escapes():
    svg = attention_svg([[1, 0], [0.25, 0.75]], ["<bos>", " & "], "layer 0, head 1")
    assert "&lt;bos&gt;" in svg
    assert "<bos>" not in svg
    assert "·&amp;·" in svg
    assert "reads most from ·&amp;· (75%)" in svg
    assert svg.count("<rect") == 3  # nothing is drawn above the diagonal
    assert 'fill-opacity="0.750"' in svg


def test_a_line_break_can_be_read():
    assert "↵" in attention_svg([[1.0]], ["\n"])


@pytest.mark.parametrize("weights", [[[1.0]], [[1.0], [0.5, 0.5]]])
def test_weights_must_fit_the_tokens(weights):
    with pytest.raises(ValueError, match="for 2 tokens; they must be square"):
        attention_svg(weights, ["a", "b"])


def test_the_figure_takes_several_heads():
    picture = attention_figure({"one": torch.eye(4), "two": torch.eye(4)}, PIECES, "Two diagonals.")
    assert picture.width > picture.height
