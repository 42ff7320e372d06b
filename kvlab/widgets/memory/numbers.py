"""Fields for whole numbers. What is typed there stands as it was typed, or is refused in words: a browser's
own number field drops the point of 1.5, and takes 0 to 1, without a word."""

import re

import ipywidgets as widgets
from traitlets import CUnicode

from kvlab.exercises.questions import labelled
from kvlab.memory.errors import whole as checked
from kvlab.widgets.memory.controls import look, over

MOST_TOKENS = 10 * 2**20  # the longest text that a model of the catalogue was made for


def stops(also=1, most=MOST_TOKENS):
    """Token counts for a slider: powers of two, three steps between each, and ``also`` -> sorted list."""
    quarters = {2**power * quarter // 4 for power in range(2, 24) for quarter in (4, 5, 6, 7)}
    return sorted({1, 2, 3, checked(also, "tokens"), *(each for each in quarters if each <= most)})


def options(also, most):
    """Those stops as a slider takes them: (words, count) pairs."""
    return [(f"{each:,}", each) for each in stops(also, most)]


def whole(value, name, key, of, most=1_000_000):
    """A field for 1 to ``most`` of something."""
    return labelled(Whole(value, of, most, description=name, **look({"width": "200px"})), key)


class Whole(widgets.Text):
    """A whole number from 1 to ``most`` of something. ``number`` is what stands in it."""

    value = CUnicode().tag(sync=True)  # so that Python may set a number

    def __init__(self, value, of, most, **look):
        super().__init__(value=f"{value:,}", continuous_update=False, **look)
        self.of, self.most = of, max(most, value)

    @property
    def number(self):
        """Raises ValueError, in words, for anything else."""
        return whole_number(self.value, self.of, self.most)


def whole_number(text, of, most):
    """'8192', '8,192' or '8_192' -> 8192. Raises ValueError for what is none, or not from 1 to ``most``."""
    plain = re.fullmatch(r"(-?)(\d+|\d{1,3}(?:[,_ ]\d{3})+)", text.strip())
    if not plain:
        raise ValueError(f"{text!r} is no whole number of {of}: write one such as 4, or 8,192")
    number = int(plain.group(1) + re.sub(r"\D", "", plain.group(2)))
    if not 1 <= number <= most:
        raise ValueError(f"{number:,} {of} are not possible here; write a number from 1 to {most:,}")
    return number


class Tokens:
    """A slider on a logarithmic scale, and a field beside it for any count: each follows the other.

    ``slider`` and ``exact`` are the widgets, ``box`` holds them. The field has the last word, so it is the
    one to watch: while it holds what is no count, ``number`` raises ValueError.
    """

    def __init__(self, value, most=MOST_TOKENS):
        wide = {"width": "528px", "max_width": "98%"}
        self.slider, self.most = over(options(value, most), value, "tokens", "kv-tokens", wide), most
        typed = Whole(value, "tokens", most, description="or type tokens", **look({"width": "234px"}))
        self.exact = labelled(typed, "kv-tokens-exact")
        self.box = widgets.HBox([self.slider, self.exact], layout={"flex_flow": "row wrap"})
        self.slider.observe(self.slid, names="value")
        self.exact.observe(self.typed, names="value")
        self.following = False

    @property
    def number(self):
        return self.exact.number

    def slid(self, change):
        if not self.following:
            self.exact.value = f"{change.new:,}"

    def typed(self, _):
        try:
            number = self.number
        except ValueError:
            return  # whoever asks for the number says it
        self.following = True
        try:
            # New options take a slider to its first one: the page is to see only where it ends.
            with self.slider.hold_sync():
                if number not in [value for _, value in self.slider.options]:
                    self.slider.options = options(number, self.most)
                self.slider.value = number
        finally:
            self.following = False
