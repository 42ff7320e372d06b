"""The layers of several models, one cell a layer."""

from collections import Counter
from dataclasses import replace

from kvlab.viz.memory.looks import KINDS
from kvlab.viz.sheet import Sheet, width_of
from kvlab.viz.show import GREY, WHITE

SAID = {
    "full": "every token, its keys and values",
    "sliding": "the last tokens only",
    "chunked": "the tokens of its chunk",
    "latent": "every token, one latent for all heads",
    "compressed": "some tokens, and a summary of the others",
    "state": "a state of constant size",
    "shared": "nothing of its own, it reads another layer's",
    "no attention": "nothing, it has none",
}
WIDTH, ROW, CELL, MARGIN = 760, 34, 24, 10


def layer_strips(models):
    """What each layer keeps: ``models`` is {name: kinds of its layers, the lowest first} -> Picture."""
    return strips(models).picture()


def strips(models):
    """The same -> Sheet."""
    counted = "; ".join(
        f"{name}: {', '.join(f'{count} {kind}' for kind, count in Counter(kinds).items())}"
        for name, kinds in models.items()
    )
    title = f"The layers of {len(models)} models as strips of cells, one a layer. {counted}."
    sheet, left = Sheet(WIDTH, 0, title), MARGIN + max(map(width_of, models)) + 12
    pitch = min(24, (WIDTH - MARGIN - left) / max(map(len, models.values())))
    for row, (name, kinds) in enumerate(models.items()):
        y = MARGIN + row * ROW
        sheet.text(left - 8, y + CELL - 8, name, anchor="end")
        for number, kind in enumerate(kinds):
            look = KINDS[kind]
            edge = GREY if look.fill == WHITE else None
            place = (left + number * pitch, y, pitch - 1.5, CELL)
            sheet.rect(*place, look.fill, pattern=look.pattern, ink=look.ink, stroke=edge)
    shown = [kind for kind in KINDS if any(kind in kinds for kinds in models.values())]
    entries = [(replace(KINDS[kind], letter=""), f"{kind}: {SAID[kind]}") for kind in shown]
    y = MARGIN + len(models) * ROW + 10
    sheet.height = sheet.legend(MARGIN, y, entries, WIDTH - MARGIN) - 10
    return sheet
