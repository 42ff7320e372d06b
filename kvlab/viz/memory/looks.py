"""How each part of a memory and each kind of layer looks: a color, a pattern and, for layers, a letter.

No two differ by color alone. Patterns: ``/`` and ``x`` diagonals, ``-`` and ``|`` lines, ``.`` dots.
"""

from dataclasses import dataclass

from kvlab.viz.show import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, SKY, VERMILION, WHITE

SERIES = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, INK, GREY)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "h")  # matplotlib's markers, one for each of SERIES


@dataclass(frozen=True)
class Look:
    """``ink`` is the color of what is written, or hatched, on ``fill``."""

    fill: str
    pattern: str = ""
    ink: str = WHITE
    letter: str = ""


PARTS = {
    "weights": Look(GREY),
    "kept back": Look(PALE, ".", GREY),
    "states": Look(ORANGE, "|", INK),
    "keys and values": Look(BLUE),
    "page padding": Look(SKY, "/", INK),
    "free": Look(WHITE, "", INK),
    "too much": Look(WHITE, "/", VERMILION),
}

KINDS = {
    "full": Look(BLUE, "", WHITE, "F"),
    "sliding": Look(SKY, "/", INK, "W"),
    "chunked": Look(SKY, "x", INK, "C"),
    "latent": Look(GREEN, ".", WHITE, "L"),
    "compressed": Look(PURPLE, "-", INK, "Z"),
    "state": Look(ORANGE, "|", INK, "S"),
    "shared": Look(WHITE, "", INK, "↑"),
    "no attention": Look(PALE, "", GREY, "–"),
}
