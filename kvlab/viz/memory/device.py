"""One device's memory as a stacked bar, and a model's layers as a strip: which keep how much, which grow."""

from kvlab.viz.memory.looks import KINDS, PARTS
from kvlab.viz.memory.svg import Drawing, width_of
from kvlab.viz.show import GREY, INK, VERMILION

WIDTH, BAR, MARGIN = 780, 40, 10
MOST_IN_A_ROW = 48  # layers; more go into several rows
TALL = 44  # pixels of the layer that keeps most


def device_bar_svg(parts, capacity, title):
    """What lies in a device's memory, to scale, also where it does not fit -> SVG string.

    parts: (name of PARTS, bytes, size in words) from left to right, none of them negative. capacity: the
    device's (bytes, size in words). What reaches beyond is drawn beyond the edge of the device.
    """
    room, room_words = capacity
    used = sum(nbytes for name, nbytes, _ in parts if name != "free")
    scale = (WIDTH - 2 * MARGIN) / max(used, room, 1)
    edge = MARGIN + room * scale
    drawing = Drawing(WIDTH, 128, f"{title}: {room_words}. {described(parts, used - room)}")
    drawing.text(MARGIN, 15, title, size=13, bold=True)
    x, top = MARGIN, 38
    for name, nbytes, words in parts:
        look, wide = PARTS[name], nbytes * scale
        if nbytes:
            tip = f"{name}: {words}"
            drawing.rect(x, top, wide, BAR, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
            if wide > width_of(name, 12, True) + 10 and not look.pattern:
                drawing.text(
                    x + wide / 2, top + BAR / 2 + 4.5, name, anchor="middle", fill=look.ink, bold=True
                )
        x += wide
    over = used > room
    if over:
        look = PARTS["too much"]
        drawing.rect(edge, top, x - edge, BAR, look.fill, opacity=0.35, tip="beyond the device's memory")
        drawing.path(f"M{edge:.1f} {top + 1}H{x:.1f}V{top + BAR - 1}H{edge:.1f}", VERMILION, 2, dash="5 3")
    drawing.path(f"M{MARGIN} {top}H{edge:.1f}V{top + BAR}H{MARGIN}Z", INK, 1.5)
    drawing.line(edge, top - 8, edge, top + BAR + 8, VERMILION if over else INK, 3)
    ends = f"the device ends: {room_words}"
    at = max(edge, MARGIN + width_of(ends))
    drawing.text(at, top - 11, ends, anchor="end", fill=VERMILION if over else GREY, bold=over)
    entries = [(PARTS[name], f"{name} {words}") for name, nbytes, words in parts if nbytes or name != "pool"]
    drawing.height = drawing.legend(MARGIN, top + BAR + 27, entries, WIDTH - MARGIN) - 8
    return str(drawing)


def described(parts, over):
    said = ", ".join(f"{name} {words}" for name, nbytes, words in parts if nbytes)
    return said + ("; more than the device holds." if over > 0 else ".")


def layer_strip_svg(layers, legend, title):
    """A column a layer, in the model's order: as tall as what it keeps, marked by its kind -> SVG string.

    layers: (kind of KINDS, bytes, size in words) a layer. legend: {kind: what a reader should know of it}.
    """
    count, most = len(layers), max((nbytes for _, nbytes, _ in layers), default=0) or 1
    rows = max(1, -(-count // MOST_IN_A_ROW))
    each = max(1, -(-count // rows))
    left = MARGIN + 30
    pitch = min(24, (WIDTH - MARGIN - left) / each)
    drawing = Drawing(WIDTH, 0, f"{title}. {'; '.join(legend.values())}.")
    drawing.text(MARGIN, 15, title, size=13, bold=True)
    y = 24
    for first in range(0, count, each):
        base = y + TALL
        drawing.text(left - 6, base + 13, str(first), size=11, anchor="end", fill=GREY)
        for place, (kind, nbytes, words) in enumerate(layers[first : first + each]):
            look, x, wide = KINDS[kind], left + place * pitch, pitch - 2
            tall = TALL * nbytes / most
            tip = f"layer {first + place}, {kind}: {words}"
            if nbytes:
                drawing.rect(
                    x, base - tall, wide, tall, look.fill, pattern=look.pattern, ink=look.ink, tip=tip
                )
            border = GREY if look.fill == "#FFFFFF" else None
            drawing.rect(x, base + 2, wide, 15, look.fill, stroke=border, tip=tip)
            drawing.text(
                x + wide / 2,
                base + 13.5,
                look.letter,
                size=min(11, wide),
                anchor="middle",
                fill=look.ink,
                bold=True,
            )
        drawing.line(left, base + 1, left + pitch * min(each, count - first) - 2, base + 1, GREY)
        y = base + 24
    entries = [(KINDS[kind], words) for kind, words in legend.items()]
    drawing.height = drawing.legend(MARGIN, y + 14, entries, WIDTH - MARGIN) - 8
    return str(drawing)
