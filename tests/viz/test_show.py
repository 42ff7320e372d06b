"""Pictures say what they show, tables read the same in text and in HTML, and the map knows every lesson."""

import re

import pytest
from matplotlib import pyplot as plt

import kvlab
from kvlab import viz
from kvlab.paths import NOTEBOOKS
from kvlab.viz.course import PARTS


def test_a_picture_is_png_with_its_description_and_its_size():
    figure, _ = plt.subplots(figsize=(4, 2), dpi=100)
    picture = viz.Picture(figure, "An empty  pair\nof axes.")
    data, metadata = picture._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"] == metadata["image/png"]["alt"] == "An empty pair of axes."
    assert (metadata["image/png"]["width"], metadata["image/png"]["height"]) == (400, 200)
    assert not plt.fignum_exists(figure.number)


def test_a_picture_without_alt_text_is_refused():
    figure, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt text"):
        viz.Picture(figure, " ")
    plt.close(figure)


def test_the_same_figure_gives_the_same_bytes():
    def draw():
        figure, axes = plt.subplots()
        axes.plot([1, 2, 4])
        return viz.Picture(figure, "A line.").png

    assert draw() == draw()


def test_a_table_in_text():
    table = viz.Table(["what", "n"], [("one", 1234567), ("two", 8), ("none", None)], "Counts")
    assert repr(table) == "Counts\nwhat  n\none   1,234,567\ntwo           8\nnone"


def test_a_table_in_html_is_escaped_and_aligned():
    page = viz.Table(["<b>", "n"], [("a & b", 7)], "x < y")._repr_html_()
    assert "<caption>x &lt; y</caption>" in page
    assert "&lt;b&gt;" in page
    assert "a &amp; b" in page
    assert '<td style="text-align: right">7</td>' in page


def test_numbers_that_are_text_already_stand_to_the_right():
    table = viz.Table(["what", "share"], [("one", "7.5%"), ("two", "12,345.0"), ("three", "4 of 5")])
    assert repr(table) == "what   share\none        7.5%\ntwo    12,345.0\nthree  4 of 5"
    assert '<td style="text-align: right">7.5%</td>' in table._repr_html_()


def test_a_ragged_table_is_refused():
    with pytest.raises(ValueError, match="a row of 1 entries under 2 columns"):
        viz.Table(["a", "b"], [(1,)])


def test_the_bill_shows_exact_integers():
    with kvlab.Ledger() as empty:
        pass
    empty.flops = 12345
    assert "12,345" in repr(viz.bill({"nothing": empty}))


def test_the_map_and_the_notebooks_agree():
    lessons = [name.replace("\n", " ") for part in PARTS.values() for name in part]
    assert len(lessons) == 21
    for file in NOTEBOOKS.glob("*.ipynb"):
        number, name = re.fullmatch(r"(\d\d)_(\w+)", file.stem).groups()
        assert name == re.sub(r"\W+", "_", lessons[int(number)].lower())


@pytest.mark.parametrize("here", range(21))
def test_the_map_marks_the_lesson(here):
    assert f"lesson {here:02d}" in viz.course_map(here).alt


def test_the_map_has_no_other_lesson():
    with pytest.raises(ValueError, match="lesson 21 of a course with lessons 0 to 20"):
        viz.course_map(21)


def test_step_grids_count_the_computations():
    assert "Without a cache 35 token computations" in viz.step_grid(prompt=5, new=5, cached=False).alt
    assert "With a cache 9 token computations" in viz.step_grid(prompt=5, new=5, cached=True).alt


def test_a_timeline_totals_its_lanes():
    assert "slow 6, fast 3.5" in viz.timeline({"slow": [1, 2, 3], "fast": [3, 0.5]}, "GFLOP").alt


def test_numbered_maps_take_one_or_several_and_equal_numbers():
    maps = {"scores": [[1.0, -2.0], [-2.0, 0.5]], "zeros": [[0, 0], [0, 0]]}
    picture = viz.numbered_maps(maps, ["x", "y"], "Two tables.")
    assert picture.alt == "Two tables."
    assert picture.png != viz.numbered_maps(maps, ["x", "y"], "Two tables.", scale=(0, 1)).png
