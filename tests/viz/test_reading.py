"""Pictures of who reads whom: as many arrows, numbers and boxes as there is to show."""

import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from kvlab.viz import attention_map, reading

RING = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
NAMES = ["rock", "scissors", "paper"]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are made into pictures."""
    figures, picture = [], reading.Picture

    def keep(figure, alt):
        figures.append(figure)
        return picture(figure, alt)

    for module in (reading, attention_map):
        monkeypatch.setattr(module, "Picture", keep)
    return figures


def patches(axes, kind):
    return [patch for patch in axes.patches if isinstance(patch, kind)]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_one_arrow_for_each_reading_as_thick_as_its_weight(drawn):
    half = [[0.9, 0.5, 0.5], [0.5, 0, 0.5], [0.7, 0.3, 0]]
    picture = reading.reading_rings({"a": RING, "b": half}, NAMES, "Two rings.")
    assert picture.alt == "Two rings."
    a, b = drawn[0].axes
    assert [len(patches(axes, FancyArrowPatch)) for axes in (a, b)] == [3, 6]  # none to oneself
    assert texts(a) == NAMES
    widths = [arrow.get_linewidth() for arrow in patches(b, FancyArrowPatch)]
    assert widths[4] > widths[0] == widths[1] > widths[5]  # 0.7, 0.5 twice, 0.3
    assert not plt.get_fignums()


def test_numbers_stand_in_their_squares(drawn):
    attention_map.numbered_maps({"a": [[0.25, 0.75], [1, 0]], "b": [[1, 0], [0, 1]]}, ["x", "y"], "Maps.")
    a, b = drawn[0].axes
    assert texts(a) == ["0.25", "0.75", "1.00", "0.00"]
    assert [(text.get_position()) for text in a.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [label.get_text() for label in a.get_yticklabels()] == ["x", "y"]
    assert [label.get_text() for label in b.get_yticklabels()] == ["", ""]


def test_shapes_are_in_proportion_and_sides_that_meet_agree(drawn):
    picture = reading.projection_shapes(tokens=5, width=4, key_dim=3, value_dim=2)
    (axes,) = drawn[0].axes
    boxes = [(round(box.get_height() / 0.18), round(box.get_width() / 0.18)) for box in axes.patches]
    assert len(patches(axes, Rectangle)) == len(boxes) == 15
    for i in range(0, 15, 3):
        (rows, inner), (inner_too, columns), result = boxes[i : i + 3]
        assert inner == inner_too and result == (rows, columns)
    for part in ("T=5", "D=4", "Dk=3", "Dv=2"):
        assert part in picture.alt
