"""Who reads whom, among few tokens; and the shapes of the three projections."""

import math

from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from kvlab.viz.show import BLUE, GREEN, INK, ORANGE, PALE, PURPLE, Picture

FAINTEST = 0.02  # a weight below this is not drawn


def reading_rings(rings, names, alt):
    """Tokens on a circle, an arrow from each to what it reads, as thick as its weight -> Picture.

    rings: {title: weights}; weights[i][j], from 0 to 1, is how much token i reads of another token j.
    """
    figure, panels = plt.subplots(1, len(rings), figsize=(3.8 * len(rings), 2.7), squeeze=False)
    angles = [math.pi / 2 - 2 * math.pi * i / len(names) for i in range(len(names))]
    places = [(1.25 * math.cos(angle), math.sin(angle)) for angle in angles]
    for axes, (title, weights) in zip(panels[0], rings.items(), strict=True):
        for i, start in enumerate(places):
            for j, end in enumerate(places):
                if i != j and weights[i][j] >= FAINTEST:
                    axes.add_patch(_arrow(start, end, float(weights[i][j])))
            box = {"boxstyle": "round,pad=0.45", "facecolor": PALE, "edgecolor": "none"}
            axes.text(*start, names[i], ha="center", va="center", color=INK, bbox=box, zorder=3)
        axes.set(title=title, xlim=(-1.9, 1.9), ylim=(-1.0, 1.3))
        axes.axis("off")
    return Picture(figure, alt)


def _arrow(start, end, weight):
    return FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=9 + 11 * weight,
        linewidth=0.5 + 4 * weight,
        color=BLUE,
        alpha=0.35 + 0.65 * weight,
        connectionstyle="arc3,rad=0.17",
        shrinkA=32,
        shrinkB=32,
    )


def projection_shapes(tokens, width, key_dim, value_dim):
    """The matrices of attention as boxes in proportion; equal sides have equal colors -> Picture."""
    size = {"T": tokens, "D": width, "Dk": key_dim, "Dv": value_dim}
    left = [
        [("X", "T", "D"), "·", ("W$_q$", "D", "Dk"), "=", ("Q", "T", "Dk")],
        [("X", "T", "D"), "·", ("W$_k$", "D", "Dk"), "=", ("K", "T", "Dk")],
        [("X", "T", "D"), "·", ("W$_v$", "D", "Dv"), "=", ("V", "T", "Dv")],
    ]
    right = [
        [("Q", "T", "Dk"), "·", ("Kᵀ", "Dk", "T"), "→", ("weights", "T", "T")],
        [("weights", "T", "T"), "·", ("V", "T", "Dv"), "=", ("context", "T", "Dv")],
    ]
    figure, axes = plt.subplots(figsize=(9.6, 4.6))
    for x, y, lines in ((0, 0, left), (5.2, -0.9, right)):
        for number, line in enumerate(lines):
            _equation(axes, x, y - 1.8 * number, line, size)
    axes.text(5.2, -4.2, "framed: the trained weights", color=PURPLE, fontsize=10.5)
    axes.set(xlim=(-0.4, 9.2), ylim=(-4.5, 0.9), aspect="equal")
    axes.axis("off")
    return Picture(
        figure,
        f"Shapes for T={tokens} tokens of width D={width}: queries and keys are T by Dk={key_dim}, values "
        f"T by Dv={value_dim}, weights T by T, context vectors T by Dv. The three trained matrices have D "
        "rows, and Dk, Dk and Dv columns.",
    )


def _equation(axes, x, y, line, size, unit=0.18):
    """Boxes and signs from x to the right; a box is (name, rows, columns)."""
    colors = {"T": INK, "D": ORANGE, "Dk": BLUE, "Dv": GREEN}
    for item in line:
        if isinstance(item, str):
            axes.text(x + 0.22, y, item, ha="center", va="center", fontsize=15, color=INK)
            x += 0.85
            continue
        name, rows, columns = item
        wide, high = unit * size[columns], unit * size[rows]
        look = {"facecolor": PALE, "edgecolor": PURPLE if name.startswith("W") else "none", "linewidth": 2}
        axes.add_patch(Rectangle((x, y - high / 2), wide, high, **look))
        side = {"fontsize": 10.5, "weight": "bold"}
        top, bottom = y + high / 2 + 0.05, y - high / 2 - 0.07
        axes.text(x + wide / 2, bottom, name, ha="center", va="top", fontsize=11.5, color=INK)
        axes.text(x + wide / 2, top, columns, ha="center", va="bottom", color=colors[columns], **side)
        axes.text(x - 0.06, y, rows, ha="right", va="center", color=colors[rows], **side)
        x += wide
