"""Which query heads read which KV heads, and where both lie when several ranks compute a layer."""

from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Sheet, together, width_of
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, SKY, WHITE

QUERY, KEY, VALUE = Look(BLUE), Look(ORANGE, "", INK), Look(ORANGE, "/", INK)
KEPT, COPY = Look(ORANGE, "", INK), Look(SKY, "/", INK)
WIDTH, MARGIN = 780, 10
PITCH, HIGH = 34, 24  # pixels from one head of a panel to the next, and of a box from top to bottom
SIZE = 11.5  # of what is written into a box
IN_A_ROW, APART = 8, 8  # ranks, and pixels between them
PAD, GAP = 6, 4  # pixels around the boxes of a rank, and between boxes


def head_sharing(query_heads, kinds):
    """Query heads, and below them the KV heads that they read: ``kinds`` is {title: KV heads} -> Picture."""
    return sharing(query_heads, kinds).picture()


def sharing(query_heads, kinds):
    """The same -> Sheet."""
    panels, gap = [_panel(query_heads, title, kv_heads) for title, kv_heads in kinds.items()], 26
    across = sum(panel.width + gap for panel in panels) - gap <= WIDTH
    sheet = together(panels, across=across, gap=gap)
    sheet.title = f"Query heads, and the KV heads that they read. {sheet.title}"
    entries = [(QUERY, "query head"), (KEY, "key of a KV head"), (VALUE, "value of a KV head")]
    sheet.height = sheet.legend(MARGIN, sheet.height + 22, entries, sheet.width - MARGIN) - 8
    return sheet


def _panel(query_heads, title, kv_heads):
    _check_divides(query_heads, kv_heads, "KV heads")
    kept = f"{_many(kv_heads, 'key')} + {_many(kv_heads, 'value')} a token"
    said = f"{title}: {_many(query_heads, 'query head')} over {_many(kv_heads, 'KV head')}, {kept}."
    wide, group = PITCH - GAP, query_heads // kv_heads
    whole = max(query_heads * PITCH - GAP, width_of(title, 13, True), width_of(kept))
    sheet = Sheet(whole + 2 * MARGIN, 168, said)
    sheet.text(MARGIN, 15, title, size=13, bold=True)
    queries, keys = 28, 98  # their upper edges
    above = [MARGIN + PITCH * head for head in range(query_heads)]
    below = [MARGIN + PITCH * (group * head + (group - 1) / 2) for head in range(kv_heads)]
    for head, x in enumerate(above):
        sheet.line(x + wide / 2, queries + HIGH, below[head // group] + wide / 2, keys, GREY, 1.3)
        _box(sheet, x, queries, wide, QUERY, f"q{head}")
    for head, x in enumerate(below):
        _box(sheet, x, keys, wide, KEY, f"k{head}")
        _box(sheet, x, keys + HIGH + 1, wide, VALUE, f"v{head}")
    sheet.text(MARGIN, 164, kept)
    return sheet


def heads_over_ranks(query_heads, kv_heads, ranks):
    """Tensor parallelism: the query heads that each rank computes and the KV heads that it holds -> Sheet.

    A KV head that an earlier rank holds too is drawn as a copy.
    """
    _check_divides(query_heads, kv_heads, "KV heads")
    _check_divides(query_heads, ranks, "ranks")
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(
            f"{kv_heads} KV heads can be neither shared out evenly over {ranks} ranks nor copied evenly: "
            f"choose a number of ranks that divides {kv_heads}, or a multiple of it"
        )
    share, held, times = query_heads // ranks, max(1, kv_heads // ranks), max(1, ranks // kv_heads)
    copied = f"each KV head is kept {times} times" if times > 1 else "no KV head is kept twice"
    sheet = Sheet(
        WIDTH,
        0,
        f"{_many(query_heads, 'query head')} and {_many(kv_heads, 'KV head')} over {_many(ranks, 'rank')}. "
        f"Each rank computes {_many(share, 'query head')} and holds {_many(held, 'KV head')}; {copied}.",
    )
    across = min(ranks, IN_A_ROW)
    room, least = ((WIDTH - 2 * MARGIN + APART) / n - APART - 2 * PAD for n in (across, IN_A_ROW))
    narrowest = max((least - GAP) / 2, width_of(f"kv {kv_heads - 1}", SIZE) + 3) + GAP  # box and gap
    rows = -(-held // int((room + GAP) // narrowest))
    columns = -(-held // rows)
    wide = max(least, columns * narrowest - GAP)
    pitch = (wide + GAP) / columns
    high = 20 + (rows + 1) * (HIGH + GAP) - GAP + PAD
    for rank in range(ranks):
        x = MARGIN + rank % across * (wide + 2 * PAD + APART)
        y = MARGIN + rank // across * (high + APART)
        sheet.rect(x, y, wide + 2 * PAD, high, WHITE, stroke=GREY)
        sheet.text(x + PAD, y + 14, f"rank {rank}", bold=True)
        queries = f"q {rank * share}–{(rank + 1) * share - 1}" if share > 1 else f"q {rank}"
        _box(sheet, x + PAD, y + 20, wide, QUERY, queries)
        for place in range(held):
            words, look = f"kv {rank // times * held + place}", KEPT
            if rank % times:
                words, look = f"copy: {words}", COPY
            row, column = divmod(place, columns)
            left, top = x + PAD + column * pitch, y + 20 + (row + 1) * (HIGH + GAP)
            _box(sheet, left, top, pitch - GAP, look, words, f"rank {rank}, {words}")
    entries = [(QUERY, "query heads that the rank computes"), (KEPT, "KV head that it holds")]
    entries += [(COPY, "copy of a KV head of an earlier rank")] * (times > 1)
    bottom = MARGIN + -(-ranks // across) * (high + APART)
    sheet.height = sheet.legend(MARGIN, bottom + 16, entries, WIDTH - MARGIN) - 8
    return sheet


def _box(sheet, x, y, wide, look, words, tip=""):
    sheet.rect(x, y, wide, HIGH, look.fill, pattern=look.pattern, ink=look.ink, tip=tip)
    middle = (x + wide / 2, y + HIGH / 2 + 0.36 * SIZE, "middle")
    sheet.place([middle], words, halo=bool(look.pattern), size=SIZE, fill=look.ink)


def _many(count, one):
    return f"{count} {one}{'' if count == 1 else 's'}"


def _check_divides(query_heads, number, what):
    fits = [n for n in range(1, query_heads + 1) if query_heads % n == 0]
    if number not in fits:
        raise ValueError(
            f"{number} {what} do not divide the {query_heads} query heads evenly: choose one of "
            f"{', '.join(map(str, fits))}"
        )
