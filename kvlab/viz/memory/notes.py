"""What has to be said beside a picture, in words that are part of it."""

import textwrap

from kvlab.viz.sheet import Sheet


def notes(sentences, width=780, size=12):
    """Sentences below each other, each broken into rows as wide as the sheet -> Sheet."""
    most = int((width - 20) / (0.6 * size))
    rows = [row for each in sentences for row in textwrap.wrap(each, most)]
    sheet = Sheet(width, 6 + 17 * len(rows), " ".join(sentences))
    for number, row in enumerate(rows):
        sheet.text(10, 16 + 17 * number, row, size=size)
    return sheet
