"""Attention weights over a text: as SVG for widgets, as a figure for the page."""

import html

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, GREY, INK, Picture

CELL = 26  # pixels


def label(piece):
    """A token as an axis label: line breaks and leading spaces made visible."""
    return piece.replace("\n", "↵").replace(" ", "·") or "∅"


def attention_svg(weights, pieces, title=""):
    """One head's weights as an SVG string: a row a query, a column a key, dark where the weight is large.

    weights [T, T] with rows that sum to one (a tensor or nested lists), pieces: T strings.
    """
    rows = [[float(weight) for weight in row] for row in weights]
    if len(rows) != len(pieces) or any(len(row) != len(pieces) for row in rows):
        shape = f"{len(rows)} by {len(rows[0]) if rows else 0}"
        raise ValueError(f"weights are {shape} for {len(pieces)} tokens; they must be square and as many")
    labels = [html.escape(label(piece)) for piece in pieces]
    margin = 14 + 8 * max(len(label(piece)) for piece in pieces)
    top, size = margin + 22, CELL * len(pieces)
    width, height = margin + size + 10, top + size + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="12" style="max-width: 100%">',
        f"<title>{html.escape(_described(rows, pieces, title))}</title>",
        f'<text x="4" y="15" font-weight="bold" fill="{INK}">{html.escape(title)}</text>',
    ]
    for i, text in enumerate(labels):
        middle = CELL * i + CELL // 2
        parts.append(
            f'<text x="{margin - 6}" y="{top + middle + 4}" text-anchor="end" fill="{INK}">{text}</text>'
            f'<text transform="translate({margin + middle + 4} {top - 6}) rotate(-90)" '
            f'fill="{INK}">{text}</text>'
        )
    for i, row in enumerate(rows):
        for j, weight in enumerate(row[: i + 1]):
            parts.append(
                f'<rect x="{margin + CELL * j}" y="{top + CELL * i}" width="{CELL - 2}" height="{CELL - 2}" '
                f'fill="{BLUE}" fill-opacity="{max(weight, 0.04):.3f}">'
                f"<title>{labels[i]} reads {labels[j]}: {weight:.0%}</title></rect>"
            )
    return "".join([*parts, "</svg>"])


def _described(rows, pieces, title):
    last = max(range(len(pieces)), key=lambda j: rows[-1][j])
    return (
        f"{title}. Attention over {len(pieces)} tokens. The last token, {label(pieces[-1])}, reads most from "
        f"{label(pieces[last])} ({rows[-1][last]:.0%})."
    )


def attention_figure(heads, pieces, alt):
    """Several heads side by side: {title: weights [T, T]} -> Picture."""
    figure, panels = plt.subplots(1, len(heads), figsize=(4.6 * len(heads), 4.4), squeeze=False)
    labels, places = [label(piece) for piece in pieces], range(len(pieces))
    for axes, (title, weights) in zip(panels[0], heads.items(), strict=True):
        axes.imshow([[float(weight) for weight in row] for row in weights], cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(places, labels, rotation=90, fontsize=8)
        axes.set_yticks(places, labels, fontsize=8)
        axes.set_title(title)
        axes.set_xlabel("key", color=GREY)
        axes.tick_params(length=0)
    panels[0][0].set_ylabel("query", color=GREY)
    return Picture(figure, alt)


def numbered_maps(maps, names, alt, scale=None):
    """Scores or weights of few tokens, written into their squares: {title: numbers [T, T]} -> Picture.

    A row is the token that looks, a column the one it looks at. scale: (palest, darkest), or each map's own.
    """
    width = min(4.6 * len(maps), 9.4)
    figure, panels = plt.subplots(1, len(maps), figsize=(width, 3.2), squeeze=False)
    for axes, (title, numbers) in zip(panels[0], maps.items(), strict=True):
        rows = [[float(number) for number in row] for row in numbers]
        low, high = scale or (min(map(min, rows)), max(map(max, rows)))
        axes.imshow(rows, cmap="Blues", vmin=low, vmax=high, aspect="auto")
        for i, row in enumerate(rows):
            for j, number in enumerate(row):
                color = "white" if number > low + 0.6 * (high - low) else INK
                axes.text(j, i, f"{number:.2f}", ha="center", va="center", color=color, fontsize=9.5)
        axes.set_title(title)
        axes.set_xlabel("... at this one")
        axes.set_xticks(range(len(names)), names, fontsize=9)
        axes.set_yticks(range(len(names)), names if axes is panels[0][0] else [], fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0][0].set_ylabel("this token looks ...")
    return Picture(figure, alt)
