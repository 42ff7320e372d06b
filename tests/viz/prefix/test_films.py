"""A radix tree after several operations: a panel for each, in the order that was asked for."""

import pytest

from kvlab.paging import BlockPool, RadixTree, Story
from kvlab.viz.prefix import film, stops, tree_film
from kvlab.viz.prefix.looks import PANEL, WIDTH
from kvlab.viz.prefix.words import described
from tests.paging.stories import ten
from tests.viz.sheets import shown


def test_a_film_has_a_panel_a_moment():
    story = ten()
    picture, sheet = tree_film(story, [2, 3, 14]), film(story, [2, 3, 14])
    assert picture.alt == " ".join(sheet.title.split()) and picture.width == int(sheet.width)
    assert sheet.width <= 780 and film(story, [3], across=1).width == WIDTH
    assert film(story, [3]).width == PANEL
    for step in (2, 3, 14):
        assert f"{step}. {described(story.moments[step])}" in sheet.title
        assert str(step) in shown(sheet).split(" | ")


def test_stops_are_moments_in_which_the_tree_changed():
    story = ten()
    assert stops(story) == [2, 3, 4, 10, 14, 15] and stops(story, 2) == [2, 15] and stops(story, 1) == [2]
    assert stops(story, 99) == [2, 3, 4, 7, 10, 14, 15]
    assert stops(Story(RadixTree(BlockPool(3, 2)))) == [0]


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (lambda: tree_film(ten(), []), "0 moments, 2 across"),
        (lambda: tree_film(ten(), [1], across=0), "1 moments, 0 across"),
        (lambda: tree_film(ten(), [16]), "there is no moment 16: the story has moments 0 to 15"),
        (lambda: tree_film(ten(), [-1]), "there is no moment -1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, wrong):
    with pytest.raises(ValueError, match=wrong):
        draw()
