"""What can be wrong with a drawing, found without looking at it."""

import re
from itertools import combinations
from xml.etree import ElementTree

from kvlab.viz.sheet import Box, overlap

SVG = "{http://www.w3.org/2000/svg}"


def faults(sheet):
    """What a reader would stumble over: text over text, things beyond the edge, an SVG without its title."""
    found = [f"off the sheet: {text.text}" for text in sheet.texts() if not sheet.holds(text.box)]
    found += [
        f"{one.text!r} over {other.text!r}"
        for one, other in combinations(sheet.texts(), 2)
        if overlap(one.box, other.box)
    ]
    for box in sheet.things:
        if isinstance(box, Box) and not sheet.holds((box.x, box.y, box.x + box.width, box.y + box.height)):
            found.append(f"off the sheet: a box at {box.x}, {box.y}, {box.width} by {box.height}")
    root = ElementTree.fromstring(sheet.svg())
    if root.tag != f"{SVG}svg" or root[0].tag != f"{SVG}title" or not root[0].text.strip():
        found.append("the SVG does not begin with its title")
    return found


def shown(sheet):
    """All that is written on it."""
    return " | ".join(thing.text for thing in sheet.things if hasattr(thing, "anchor"))


def tips(sheet, pattern):
    """The boxes that say such a thing when they are pointed at -> [(Box, match)]."""
    boxes = [thing for thing in sheet.things if isinstance(thing, Box)]
    return [(box, found) for box in boxes if (found := re.match(pattern, box.tip))]
