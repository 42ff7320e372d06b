"""One device's memory as a stacked bar, and a model's layers as a strip: which keep how much, which grow."""

from kvlab.viz.memory.looks import KINDS, PARTS
from kvlab.viz.sheet import Sheet, hatching, width_of
from kvlab.viz.show import GREY, INK, VERMILION, WHITE

WIDTH, BAR, MARGIN = 780, 40, 10
MOST_IN_A_ROW = 48  # layers; more go into several rows
TALL = 44  # pixels of the layer that keeps most


def device_bar(parts, capacity, title):
    """What lies in a device's memory, to scale, also where it does not fit -> Sheet.

    parts: (name of PARTS, bytes, size in words) from left to right, none of them negative. capacity: the
    device's (bytes, size in words). What reaches beyond is drawn beyond the edge of the device; how much that
    is comes as the last part, "too much".
    """
    room, room_words = capacity
    used = sum(nbytes for name, nbytes, _ in parts if name not in ("free", "too much"))
    scale = (WIDTH - 2 * MARGIN) / max(used, room, 1)
    edge, over = MARGIN + room * scale, used > room
    sheet = Sheet(WIDTH, 0, f"{title}: {room_words}. {described(parts, over)}")
    sheet.text(MARGIN, 15, title, size=13, bold=True)
    x, top = MARGIN, 44
    for name, nbytes, words in parts:
        look, wide = PARTS[name], nbytes * scale
        if nbytes and name != "too much":
            tip = f"{name}: {words}"
            sheet.rect(x, top, wide, BAR, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
            # On the wider side of the device's edge, where that runs through.
            cut = min(max(edge, x), x + wide)
            left, right = max((x, cut), (cut, x + wide), key=lambda side: side[1] - side[0])
            if right - left > width_of(name, 12, True) + 8 and not look.pattern:
                middle = {"anchor": "middle", "fill": look.ink, "bold": True}
                sheet.text((left + right) / 2, top + BAR / 2 + 4.5, name, **middle)
            x += wide
    if over:
        sheet.strokes(hatching("/", edge, top + BAR + 3, x - edge, 7, gap=5), VERMILION, 1.5)
        sheet.strokes([[(edge, top), (x, top), (x, top + BAR), (edge, top + BAR)]], VERMILION, 2.5, (6, 3))
    sheet.strokes(
        [[(MARGIN, top), (edge, top), (edge, top + BAR), (MARGIN, top + BAR), (MARGIN, top)]], INK, 1.5
    )
    color = VERMILION if over else INK
    sheet.line(edge, top - 7, edge, top + BAR + 7, color, 3)
    ends = f"the device ends: {room_words}"
    room_left = edge - MARGIN > width_of(ends, bold=over)
    at, anchor = (edge + 1.5, "end") if room_left else (MARGIN, "start")
    sheet.text(at, top - 12, ends, anchor=anchor, fill=color, bold=over)
    entries = [(PARTS[name], f"{name} {words}") for name, nbytes, words in parts if nbytes]
    sheet.height = sheet.legend(MARGIN, top + BAR + 28, entries, WIDTH - MARGIN) - 10
    return sheet


def described(parts, over):
    said = ", ".join(f"{name} {words}" for name, nbytes, words in parts if nbytes)
    return said + ("; more than the device holds." if over else ".")


def layer_strip(layers, legend, title):
    """A column a layer, in the model's order: as tall as what it keeps, marked by its kind -> Sheet.

    layers: (kind of KINDS, bytes, size in words) a layer. legend: {kind: what a reader should know of it}.
    """
    count, most = len(layers), max((nbytes for _, nbytes, _ in layers), default=0) or 1
    each = -(-count // max(1, -(-count // MOST_IN_A_ROW)))
    left = MARGIN + 26
    pitch = min(24, (WIDTH - MARGIN - left) / max(each, 1))
    sheet = Sheet(WIDTH, 0, f"{title}. {'; '.join(legend.values())}.")
    tallest = next((words for _, nbytes, words in layers if nbytes == most), "nothing")
    sheet.text(MARGIN, 15, title, size=13, bold=True)
    sheet.text(WIDTH - MARGIN, 15, f"the tallest: {tallest}", anchor="end", fill=GREY)
    y = 26
    for first in range(0, count, max(each, 1)):
        base, row = y + TALL, layers[first : first + each]
        sheet.text(left - 6, base + 14, str(first), size=11, anchor="end", fill=GREY)
        for place, (kind, nbytes, words) in enumerate(row):
            tip = f"layer {first + place}, {kind}: {words}"
            _column(sheet, left + place * pitch, base, pitch - 2, TALL * nbytes / most, KINDS[kind], tip)
        sheet.line(left, base + 1, left + pitch * len(row) - 2, base + 1, GREY)
        y = base + 24
    entries = [(KINDS[kind], words) for kind, words in legend.items()]
    sheet.height = sheet.legend(MARGIN, y + 16, entries, WIDTH - MARGIN) - 10
    return sheet


def _column(sheet, x, base, wide, tall, look, tip):
    if tall:
        sheet.rect(x, base - tall, wide, tall, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
    sheet.rect(x, base + 2, wide, 15, look.fill, stroke=GREY if look.fill == WHITE else None, tip=tip)
    letter = {"size": min(11, wide), "anchor": "middle", "fill": look.ink, "bold": True}
    sheet.text(x + wide / 2, base + 13.5, look.letter, **letter)
