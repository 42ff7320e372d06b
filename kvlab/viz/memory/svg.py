"""A sheet to draw on: shapes and text in, an SVG string out. It knows where its text stands."""

import html
import math

from kvlab.viz.show import GREY, INK, PALE

_NARROW, _WIDE = "ijlt.,:;'|()[]/ f", "mwMW@%—"


def width_of(text, size=12, bold=False):
    """Pixels that a text takes, at most, in the usual sans-serif fonts."""
    units = sum(0.4 if c in _NARROW else 0.97 if c in _WIDE else 0.7 if c.isupper() else 0.63 for c in text)
    return units * size * (1.08 if bold else 1)


def number(value):
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Drawing:
    """Shapes in order. ``title`` is what a screen reader says; ``boxes`` are the texts' (x0, y0, x1, y1)."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts, self.boxes = [], []

    def __str__(self):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} '
            f'{number(self.height)}" width="{number(self.width)}" height="{number(self.height)}" role="img" '
            f'font-family="sans-serif" style="max-width: 100%; height: auto; background: white">'
            f"<title>{html.escape(self.title)}</title>{''.join(self.parts)}</svg>"
        )

    def rect(self, x, y, width, height, fill, *, pattern="", ink=INK, stroke=None, tip="", opacity=1):
        outline = f' stroke="{stroke}"' if stroke else ""
        faded = f' fill-opacity="{opacity:g}"' if opacity != 1 else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0))}" '
            f'height="{number(max(height, 0))}" fill="{fill}"{faded}{outline}>'
            f"{f'<title>{html.escape(tip)}</title>' if tip else ''}</rect>"
        )
        if pattern and width > 1 and height > 1:
            self.path(hatching(pattern, x, y, width, height), ink, 1)

    def path(self, d, stroke=INK, width=1, *, dash="", fill="none", cap="butt"):
        if d:
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            self.parts.append(
                f'<path d="{d}" fill="{fill}" stroke="{stroke}" stroke-width="{width:g}" '
                f'stroke-linecap="{cap}"{dashed} pointer-events="none"/>'
            )

    def line(self, x0, y0, x1, y1, stroke=PALE, width=1, dash=""):
        self.path(f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}", stroke, width, dash=dash)

    def mark(self, x, y, color, mark="o", *, radius=5, hollow=False, tip=""):
        """One of matplotlib's markers, as in its figures."""
        fill = "white" if hollow else color
        sides, turn = {"s": (4, 45), "^": (3, -90), "D": (4, 0), "v": (3, 90), "h": (6, 0)}.get(mark, (0, 0))
        title = f"<title>{html.escape(tip)}</title>" if tip else ""
        look = f'fill="{fill}" stroke="{color if hollow else "white"}" stroke-width="{1.6 if hollow else 1}"'
        if mark in "PX":  # a cross, upright or not
            arm, half = radius * 1.1, radius * 0.42
            corners = [(half, -arm), (half, -half), (arm, -half), (arm, half), (half, half), (half, arm)]
            corners += [(-a, -b) for a, b in corners]
            angle = 45 if mark == "X" else 0
            spun = [spin(a, b, angle) for a, b in corners]
        elif sides:
            reach = radius * (1.25 if sides < 5 else 1.1)
            spun = [spin(reach, 0, turn + 360 * i / sides) for i in range(sides)]
        else:
            circle = f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" {look}>{title}</circle>'
            self.parts.append(circle)
            return
        points = " ".join(f"{number(x + a)},{number(y + b)}" for a, b in spun)
        self.parts.append(f'<polygon points="{points}" {look}>{title}</polygon>')

    def text(self, x, y, text, *, size=12, anchor="start", fill=INK, bold=False, turn=0):
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{number(x)}" y="{number(y)}"'
        if turn:
            place = f'transform="translate({number(x)} {number(y)}) rotate({number(turn)})"'
        else:
            self.boxes.append(box(x, y, text, size, anchor, bold))
        self.parts.append(
            f'<text {place} font-size="{number(size)}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{html.escape(text)}</text>"
        )

    def place(self, places, text, **look):
        """Write where it first collides with no other text and stays on the sheet, of (x, y, anchor)s."""
        size, bold = look.get("size", 12), look.get("bold", False)
        for x, y, anchor in places:
            wanted = box(x, y, text, size, anchor, bold)
            if self.holds(wanted) and not any(overlap(wanted, other) for other in self.boxes):
                break
        self.text(x, y, text, anchor=anchor, **look)

    def holds(self, wanted):
        x0, y0, x1, y1 = wanted
        return x0 >= 0 and y0 >= 0 and x1 <= self.width and y1 <= self.height

    def legend(self, x, y, entries, right, size=12, row=19):
        """Swatches with words after them, in as many rows as they need -> the y below the last.

        entries: (Look, words) pairs; a look's letter is written into its swatch.
        """
        at = x
        for look, words in entries:
            wide = 22 + width_of(words, size)
            if at > x and at + wide > right:
                at, y = x, y + row
            border = GREY if look.fill.upper() in ("#FFFFFF", PALE) else None
            pattern = "" if look.letter else look.pattern
            self.rect(at, y - 11, 14, 14, look.fill, pattern=pattern, ink=look.ink, stroke=border)
            if look.letter:
                self.text(at + 7, y, look.letter, size=10.5, anchor="middle", fill=look.ink, bold=True)
            self.text(at + 19, y, words, size=size)
            at += wide + 14
        return y + row


def box(x, y, text, size, anchor, bold=False):
    """Where a text stands, about: x from its anchor, y its baseline."""
    wide = width_of(text, size, bold)
    left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    return left, y - 0.8 * size, left + wide, y + 0.22 * size


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def spin(x, y, degrees):
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cos - y * sin, x * sin + y * cos


def hatching(pattern, x, y, width, height, gap=6):
    """A path of a pattern's lines in a box. Drawn, not an SVG pattern: those need names unique to a page."""
    lines = []
    if pattern in "/x":
        lines += diagonals(x, y, width, height, gap)
    if pattern == "x":
        mirrored = diagonals(x, y, width, height, gap)
        lines += [(2 * x + width - a, b, 2 * x + width - c, d) for a, b, c, d in mirrored]
    if pattern == "-":
        lines += [(x, y + d, x + width, y + d) for d in steps(height, 4)]
    if pattern == "|":
        lines += [(x + d, y, x + d, y + height) for d in steps(width, 4)]
    if pattern == ".":
        for row, down in enumerate(steps(height, 5)):
            shift = 2.5 * (row % 2)
            lines += [
                (x + d + shift, y + down, x + d + shift + 1.2, y + down)
                for d in steps(width - shift - 1.2, 5)
            ]
    return "".join(f"M{number(a)} {number(b)}L{number(c)} {number(d)}" for a, b, c, d in lines)


def steps(length, gap):
    return [gap / 2 + gap * i for i in range(int(max(length - gap / 2, 0) // gap) + (length > gap / 2))]


def diagonals(x, y, width, height, gap):
    """Rising lines, cut at the edges of the box."""
    lines, offset = [], gap / 2
    while offset < width + height:
        left, right = max(0, offset - height), min(width, offset)
        lines.append((x + left, y + offset - left, x + right, y + offset - right))
        offset += gap
    return lines
