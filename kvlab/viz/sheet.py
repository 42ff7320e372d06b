"""A sheet to draw on, in pixels from its upper left corner, that becomes an SVG string or a PNG picture.

Widgets show the first and the pages beside them the second, so both say the same.
"""

import html
import math
from dataclasses import dataclass, replace

from matplotlib import pyplot as plt
from matplotlib.patches import Polygon, Rectangle

from kvlab.viz.show import BLUE, GREY, INK, PALE, WHITE, Picture

# Of a character's size, as DejaVu Sans has it: among the usual fonts it is the widest.
_WIDTHS = {
    c: w
    for chars, w in (
        ("ijlI|'", 0.3),
        (" .,:;", 0.33),
        ("frt()[]/-", 0.4),
        ("0123456789", 0.64),
        ("mwMW%—…", 0.99),
    )
    for c in chars
}
_DOTS = 72 / 96  # points in a pixel
LEAST = (
    0.75  # of its width, to which a narrow page shrinks a sheet; below it scrolls, since text stays legible
)


def width_of(text, size=12, bold=False):
    """Pixels that a text takes, at most."""
    units = sum(_WIDTHS.get(c, 0.71 if c.isupper() else 0.62) for c in text)
    return units * size * (1.12 if bold else 1)


def number(value):
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None = None
    opacity: float = 1
    tip: str = ""

    def svg(self):
        outline = f' stroke="{self.stroke}"' if self.stroke else ""
        faded = f' fill-opacity="{self.opacity:g}"' if self.opacity != 1 else ""
        return (
            f'<rect x="{number(self.x)}" y="{number(self.y)}" width="{number(self.width)}" '
            f'height="{number(self.height)}" fill="{self.fill}"{faded}{outline}>{_tip(self.tip)}</rect>'
        )

    def draw(self, axes, order):
        look = {"facecolor": self.fill, "edgecolor": self.stroke or "none", "linewidth": _DOTS}
        look |= {"alpha": self.opacity, "zorder": order}
        axes.add_patch(Rectangle((self.x, self.y), self.width, self.height, **look))

    def moved(self, x, y):
        return replace(self, x=self.x + x, y=self.y + y)


@dataclass(frozen=True)
class Strokes:
    """``lines``: each a list of points. dash: lengths in pixels, on and off."""

    lines: tuple
    color: str = INK
    width: float = 1
    dash: tuple = ()

    def svg(self):
        d = "".join("M" + "L".join(f"{number(x)} {number(y)}" for x, y in line) for line in self.lines)
        dashed = f' stroke-dasharray="{" ".join(map(str, self.dash))}"' if self.dash else ""
        return (
            f'<path d="{d}" fill="none" stroke="{self.color}" stroke-width="{self.width:g}"{dashed} '
            'stroke-linejoin="round" pointer-events="none"/>'
        )

    def draw(self, axes, order):
        style = (0, tuple(length / self.width for length in self.dash)) if self.dash else "-"
        joined = [point for line in self.lines for point in (*line, (math.nan, math.nan))]
        look = {"color": self.color, "linewidth": self.width * _DOTS, "linestyle": style}
        look |= {"solid_capstyle": "butt", "dash_capstyle": "butt", "zorder": order}
        axes.plot(*zip(*joined, strict=True), **look)

    def moved(self, x, y):
        return replace(self, lines=tuple(tuple((a + x, b + y) for a, b in line) for line in self.lines))


@dataclass(frozen=True)
class Shape:
    """A filled polygon."""

    points: tuple
    fill: str
    stroke: str
    width: float = 1
    tip: str = ""

    def svg(self):
        points = " ".join(f"{number(x)},{number(y)}" for x, y in self.points)
        return (
            f'<polygon points="{points}" fill="{self.fill}" stroke="{self.stroke}" '
            f'stroke-width="{self.width:g}">{_tip(self.tip)}</polygon>'
        )

    def draw(self, axes, order):
        look = {"facecolor": self.fill, "edgecolor": self.stroke, "linewidth": self.width * _DOTS}
        axes.add_patch(Polygon(self.points, zorder=order, **look))

    def moved(self, x, y):
        return replace(self, points=tuple((a + x, b + y) for a, b in self.points))


@dataclass(frozen=True)
class Text:
    """``y`` is the baseline. turn: degrees, clockwise."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: str = "start"
    fill: str = INK
    bold: bool = False
    turn: float = 0

    def svg(self):
        place = f'x="{number(self.x)}" y="{number(self.y)}"'
        if self.turn:
            place = f'transform="translate({number(self.x)} {number(self.y)}) rotate({number(self.turn)})"'
        weight = ' font-weight="bold"' if self.bold else ""
        return (
            f'<text {place} font-size="{number(self.size)}" text-anchor="{self.anchor}" '
            f'fill="{self.fill}"{weight}>{html.escape(self.text)}</text>'
        )

    def draw(self, axes, order):
        side = {"start": "left", "middle": "center", "end": "right"}[self.anchor]
        look = {"color": self.fill, "weight": "bold" if self.bold else "normal", "zorder": order}
        look |= {"rotation": -self.turn, "rotation_mode": "anchor", "parse_math": False}
        axes.text(self.x, self.y, self.text, fontsize=self.size * _DOTS, ha=side, va="baseline", **look)

    def moved(self, x, y):
        return replace(self, x=self.x + x, y=self.y + y)

    @property
    def box(self):
        """Where it stands, about: (x0, y0, x1, y1)."""
        wide = width_of(self.text, self.size, self.bold)
        left = self.x - wide * {"start": 0, "middle": 0.5, "end": 1}[self.anchor]
        return left, self.y - 0.8 * self.size, left + wide, self.y + 0.22 * self.size


def _tip(words):
    return f"<title>{html.escape(words)}</title>" if words else ""


class Sheet:
    """Things in the order in which they were drawn. ``title`` is what a screen reader says."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.things = width, height, title, []

    def svg(self):
        wide, high = number(self.width), number(self.height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
            f'height="{high}" role="img" font-family="sans-serif" '
            f'style="max-width: 100%; min-width: {number(LEAST * self.width)}px; height: auto; '
            f'background: white">'
            f"<title>{html.escape(self.title)}</title>{''.join(thing.svg() for thing in self.things)}</svg>"
        )

    def picture(self):
        """-> Picture, with the title as its description."""
        figure = plt.figure(figsize=(self.width / 96, self.height / 96), dpi=96, layout="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        with plt.rc_context({"path.simplify": False}):
            for order, thing in enumerate(self.things):
                thing.draw(axes, order)
            return Picture(figure, self.title)

    def texts(self):
        """Those that stand upright."""
        return [thing for thing in self.things if isinstance(thing, Text) and not thing.turn]

    def rect(self, x, y, width, height, fill, *, pattern="", ink=INK, stroke=None, tip="", opacity=1):
        self.things.append(Box(x, y, max(width, 0), max(height, 0), fill, stroke, opacity, tip))
        if pattern and width > 1 and height > 1:
            self.strokes(hatching(pattern, x, y, width, height), ink)

    def strokes(self, lines, color=INK, width=1, dash=()):
        lines = tuple(tuple(line) for line in lines if len(line) > 1)
        if lines:
            self.things.append(Strokes(lines, color, width, dash))

    def line(self, x0, y0, x1, y1, color=PALE, width=1, dash=()):
        self.strokes([[(x0, y0), (x1, y1)]], color, width, dash)

    def mark(self, x, y, color, mark="o", *, radius=5, hollow=False, tip=""):
        """One of ``memory.looks.MARKS``."""
        points = tuple((x + radius * a, y + radius * b) for a, b in outline(mark))
        if hollow:
            self.things.append(Shape(points, WHITE, color, 1.6, tip))
        else:
            self.things.append(Shape(points, color, WHITE, 1, tip))

    def text(self, x, y, text, **look):
        self.things.append(Text(x, y, text, **look))

    def place(self, places, text, halo=False, **look):
        """Write at the first of (x, y, anchor)s where it meets no other text and stays on the sheet.

        halo: make what lies below it pale.
        """
        taken = [other.box for other in self.texts()]
        for x, y, anchor in places:
            wanted = Text(x, y, text, anchor=anchor, **look)
            if self.holds(wanted.box) and not any(overlap(wanted.box, other) for other in taken):
                break
        if halo:
            left, top, right, bottom = wanted.box
            self.rect(left, top, right - left, bottom - top, WHITE, opacity=0.8)
        self.things.append(wanted)

    def holds(self, box):
        return box[0] >= 0 and box[1] >= 0 and box[2] <= self.width and box[3] <= self.height

    def legend(self, x, y, entries, right, size=12, row=20):
        """Swatches with words after them, in as many rows as they need -> the y below the last.

        entries: (Look, words) pairs; a look's letter is written into its swatch.
        """
        at = x
        for look, words in entries:
            wide = 20 + width_of(words, size)
            if at > x and at + wide > right:
                at, y = x, y + row
            border = look.ink if look.fill == WHITE else GREY if look.fill == PALE else None
            pattern = "" if look.letter else look.pattern
            self.rect(at, y - 11, 14, 14, look.fill, pattern=pattern, ink=look.ink, stroke=border)
            if look.letter:
                self.text(at + 7, y, look.letter, size=10.5, anchor="middle", fill=look.ink, bold=True)
            self.text(at + 20, y, words, size=size)
            at += wide + 16
        return y + row

    def put(self, other, x, y):
        """Another sheet, with its corner at (x, y)."""
        self.things += [thing.moved(x, y) for thing in other.things]


def heading(*lines, large="", width=780):
    """What the sheets below it are about: lines of words, and something large before them -> Sheet."""
    sheet = Sheet(width, 16 + 18 * len(lines), " ".join([large, *(f"{line}." for line in lines)]).strip())
    left = 10 + (width_of(large, 26, True) + 14 if large else 0)
    sheet.text(10, 28, large, size=26, fill=BLUE, bold=True)
    for row, line in enumerate(lines):
        fits = (width - 10 - left) / width_of(line, 1, not large)
        sheet.text(left, 18 * (row + 1), line, size=min(13, fits), bold=not large)
    return sheet


def together(sheets, *, across=False, gap=12):
    """Sheets below, or beside, each other on one."""
    wide, high = [sheet.width for sheet in sheets], [sheet.height for sheet in sheets]
    gaps = gap * (len(sheets) - 1)
    size = (sum(wide) + gaps, max(high)) if across else (max(wide), sum(high) + gaps)
    whole = Sheet(*size, " ".join(sheet.title for sheet in sheets))
    at = 0
    for sheet in sheets:
        whole.put(sheet, at if across else 0, 0 if across else at)
        at += gap + (sheet.width if across else sheet.height)
    return whole


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def outline(mark):
    """The corners of a mark of about radius 1."""
    if mark in "PX":  # a cross, upright or not
        arm, half = 1.15, 0.42
        corners = [(half, -arm), (half, -half), (arm, -half), (arm, half), (half, half), (half, arm)]
        return [spin(a, b, 45 * (mark == "X")) for a, b in corners + [(-a, -b) for a, b in corners]]
    sides, turn, reach = {"s": (4, 45, 1.25), "D": (4, 0, 1.2), "^": (3, -90, 1.3), "v": (3, 90, 1.3)}.get(
        mark, (24, 0, 1)
    )
    return [spin(reach, 0, turn + 360 * side / sides) for side in range(sides)]


def spin(x, y, degrees):
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cos - y * sin, x * sin + y * cos


def hatching(pattern, x, y, width, height, gap=6):
    """A pattern's lines in a box. Drawn, not an SVG pattern: those need names that are unique in a page."""
    lines = []
    if pattern in "/x":
        lines += diagonals(x, y, width, height, gap)
    if pattern == "x":
        lines += [[(2 * x + width - a, b) for a, b in line] for line in diagonals(x, y, width, height, gap)]
    if pattern == "-":
        lines += [[(x, y + d), (x + width, y + d)] for d in steps(height, 4)]
    if pattern == "|":
        lines += [[(x + d, y), (x + d, y + height)] for d in steps(width, 4)]
    if pattern == ".":
        for row, down in enumerate(steps(height, 5)):
            shift = x + 2.5 * (row % 2)
            dots = steps(width - 3.7, 5)
            lines += [[(d + shift, y + down), (d + shift + 1.2, y + down)] for d in dots]
    return lines


def steps(length, gap):
    return [gap / 2 + gap * i for i in range(max(0, math.floor(length / gap + 0.5)))]


def diagonals(x, y, width, height, gap):
    """Rising lines, cut at the edges of the box."""
    lines, offset = [], gap / 2
    while offset < width + height:
        left, right = max(0, offset - height), min(width, offset)
        lines.append([(x + left, y + offset - left), (x + right, y + offset - right)])
        offset += gap
    return lines
