"""What lies in a cache, and which layers keep what: pictures that say what they count."""

from itertools import combinations

import pytest
from matplotlib import pyplot as plt

from kvlab import viz
from kvlab.memory import ModelSpec, models
from kvlab.viz import anatomy
from kvlab.viz.memory.looks import KINDS
from kvlab.viz.memory.strips import SAID, strips
from tests.viz.sheets import faults


@pytest.mark.parametrize(("sizes", "numbers"), [((3, 2, 5, 7), 420), ((1, 1, 1, 1), 2), ((2, 3, 4, 1), 48)])
def test_an_anatomy_counts_its_numbers(sizes, numbers):
    alt = viz.cache_anatomy(*sizes).alt
    assert f"{numbers} numbers in all" in alt and f"{sizes[0]} layers" in alt


@pytest.mark.parametrize("sizes", [(3, 4, 5, 7), (2, 2, 3, 5), (1, 3, 4, 9)])
def test_words_of_an_anatomy_do_not_meet(sizes, monkeypatch):
    met = []

    def picture(figure, alt):
        figure.canvas.draw()
        boxes = [text.get_window_extent() for text in figure.axes[0].texts]
        assert len(boxes) == 2 + 2 * sizes[1] + sizes[0]
        met.extend(pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1]))
        inside = figure.bbox
        assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 and box.y1 <= inside.y1 for box in boxes)
        plt.close(figure)

    monkeypatch.setattr(anatomy, "Picture", picture)
    viz.cache_anatomy(*sizes)
    assert not met


def test_strips_name_every_kind_that_a_layer_can_be():
    assert SAID.keys() == KINDS.keys()


def test_strips_of_the_whole_catalogue_are_drawn_without_fault():
    kinds = {name: [layer.kind for layer in ModelSpec.named(name).layers] for name in models()}
    names = list(kinds)
    for first in range(0, len(names), 7):
        some = {name: kinds[name] for name in names[first : first + 7]}
        assert faults(strips(some)) == []
    picture = viz.layer_strips({"Gemma-3-27B": kinds["Gemma-3-27B"]})
    assert "Gemma-3-27B: 52 sliding, 10 full" in picture.alt
