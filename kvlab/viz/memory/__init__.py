"""Pictures of what a cache costs: a device's memory, a strip of layers, lines against tokens, a roofline.

SVG and HTML strings for the widgets, matplotlib pictures for the page. They take numbers and words that are
ready to be shown; what a cache costs is computed elsewhere.
"""

from kvlab.viz.memory.answer import Fact, answer_page, grouped, milliseconds, per_second, times
from kvlab.viz.memory.device import device_bar_svg, layer_strip_svg
from kvlab.viz.memory.figures import calculator_figure, lines_figure, roofline_figure
from kvlab.viz.memory.lines import Line, lines_svg
from kvlab.viz.memory.looks import KINDS, PARTS
from kvlab.viz.memory.roofline import Bar, Point, roofline_svg, step_bars_svg

__all__ = [
    "KINDS",
    "PARTS",
    "Bar",
    "Fact",
    "Line",
    "Point",
    "answer_page",
    "calculator_figure",
    "device_bar_svg",
    "grouped",
    "layer_strip_svg",
    "lines_figure",
    "lines_svg",
    "milliseconds",
    "per_second",
    "roofline_figure",
    "roofline_svg",
    "step_bars_svg",
    "times",
]
