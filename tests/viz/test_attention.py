"""Pictures of attention: the area of the mixtures is the hull, and the words are all named."""

import pytest
import torch

from kvlab.viz.attention import _hull, arrows, three_steps, two_ways

WORDS = ["one", "two", "three", "four"]
VECTORS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-1.0, -1.0], [0.2, 0.1]])


@pytest.mark.parametrize(
    ("points", "corners"),
    [
        ([(0, 0), (4, 0), (4, 4), (0, 4), (2, 2)], {(0, 0), (4, 0), (4, 4), (0, 4)}),
        ([(0, 0), (1, 1), (2, 2)], {(0, 0), (2, 2)}),  # on one line
        ([(0, 0), (2, 0), (1, 0), (1, 1)], {(0, 0), (2, 0), (1, 1)}),  # one on an edge
        ([(3, 5)], {(3, 5)}),
    ],
)
def test_the_hull_has_the_outermost_points_as_its_corners(points, corners):
    assert set(_hull(points)) == corners
    assert len(_hull(points)) == len(corners)


def test_the_chain_and_the_look_name_the_one_who_asks():
    assert "the word four to know of the 3 words before it" in two_ways(WORDS).alt


def test_arrows_say_where_each_word_and_each_mixture_lies():
    alt = arrows(WORDS, VECTORS, query=1, contexts={"mean": [0.3, 0.275]}, path=VECTORS).alt
    assert "three to (-1.00, -1.00)" in alt
    assert "The mixture mean lies at (0.30, 0.28)" in alt or "(0.30, 0.27)" in alt


def test_three_steps_give_the_weights():
    weights = [0.5, 0.25, 0.125, 0.125]
    picture = three_steps(WORDS, VECTORS, 0, [1.0, -1.0, 0.5, 0.5], weights, [0.9, 0.4])
    assert "The word one looks" in picture.alt
    assert "one 0.50, two 0.25, three 0.12, four 0.12" in picture.alt
    assert picture.png == three_steps(WORDS, VECTORS, 0, [1.0, -1.0, 0.5, 0.5], weights, [0.9, 0.4]).png
