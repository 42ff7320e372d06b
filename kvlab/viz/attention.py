"""Attention over a handful of words: who looks at whom, and vectors in the plane.

Everything that is drawn comes in as plain numbers or tensors; nothing is computed here.
"""

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY, VERMILION, Picture


def two_ways(words):
    """How the last word can know of the others: through a chain of states, or by looking -> Picture."""
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 2.7))
    last = len(words) - 1
    for axes, title in zip(
        panels, ["a chain: one state, handed on", "attention: look at every word"], strict=True
    ):
        axes.set_title(title)
        for i, word in enumerate(words):
            color = ORANGE if i == last else PALE
            axes.add_patch(plt.Rectangle((i - 0.42, 0), 0.84, 0.5, facecolor=color, edgecolor="none"))
            axes.text(i, 0.25, word, ha="center", va="center", color=INK, fontsize=10)
        axes.set(xlim=(-0.6, last + 0.6), ylim=(-0.1, 2.3))
        axes.axis("off")
    chain, look = panels
    arrow = {"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    for i in range(len(words)):
        chain.add_patch(plt.Rectangle((i - 0.2, 1.2), 0.4, 0.4, facecolor=BLUE, edgecolor="none"))
        chain.annotate("", (i, 1.18), (i, 0.53), arrowprops=arrow | {"color": GREY})
        if i < last:
            chain.annotate("", (i + 0.78, 1.4), (i + 0.2, 1.4), arrowprops=arrow)
            bend = f"arc3,rad={0.25 + 0.12 / (last - i):.3f}"
            look.annotate("", (i, 0.53), (last, 0.53), arrowprops=arrow | {"connectionstyle": bend})
    for axes, note in ((chain, "the state never grows"), (look, "every row is kept")):
        axes.text(last / 2, 1.85, note, ha="center", color=GREY, fontsize=10)
    return Picture(
        figure,
        f"Two ways for the word {words[-1]} to know of the {last} words before it. Left: each word changes a "
        "state of fixed size, which is handed on, so the first word arrives through all the others. "
        "Right: the last word has an arrow of its own to every earlier word.",
    )


def arrows(words, vectors, query=None, contexts=None, path=None):
    """Vectors in the plane, with the area their mixtures can reach -> Picture.

    words: a name each; vectors [T, 2]. query: the word that is drawn apart. contexts: {name: [2]}, as dots.
    path [n, 2]: a line of mixtures.
    """
    figure, axes = plt.subplots(figsize=(6.4, 4.2))
    _plane(axes, words, vectors, query, contexts or {}, path)
    dots = "".join(
        f" The mixture {name} lies at {_place(point)}." for name, point in (contexts or {}).items()
    )
    named = ", ".join(f"{word} to {_place(vector)}" for word, vector in zip(words, vectors, strict=True))
    return Picture(figure, f"Word vectors as arrows in the plane: {named}.{dots}")


def three_steps(words, vectors, query, scores, weights, context):
    """Look, weigh, mix, for one word, side by side -> Picture.

    query: index of the word that asks; scores, weights [T]; context [2].
    """
    figure, (look, weigh, mix) = plt.subplots(1, 3, figsize=(9.8, 3.3), width_ratios=[1, 1, 1.5])
    rows = range(len(words))
    for axes, title, numbers in ((look, "1  look: scores", scores), (weigh, "2  weigh: softmax", weights)):
        colors = [ORANGE if i == query else SKY for i in rows]
        numbers = [float(number) for number in numbers]
        axes.barh(rows, numbers, color=colors, height=0.62)
        low, high = min(0.0, *numbers), max(numbers)
        axes.set(title=title, xlim=(low - 0.32 * (high - low) * (low < 0), high + 0.32 * (high - low)))
        axes.set_yticks(rows, words if axes is look else [""] * len(words))
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xticks([])
        axes.spines[["bottom", "left"]].set_visible(False)
        axes.axvline(0, color=GREY, linewidth=0.8)
        for row, number in zip(rows, numbers, strict=True):
            side = "left" if number >= 0 else "right"
            text = f" {number:.2f} "
            axes.text(number, row, text, ha=side, va="center", fontsize=9, color=INK)
    mix.set_title("3  mix: the context vector")
    _plane(mix, words, vectors, query, {"context": context}, None)
    shares = ", ".join(f"{word} {float(weight):.2f}" for word, weight in zip(words, weights, strict=True))
    return Picture(
        figure,
        f"The word {words[query]} looks, weighs and mixes. Left: a bar for each score. Middle: the weights, "
        f"{shares}. Right: the word vectors as arrows; the context vector lies at {_place(context)}, inside "
        "the area that their tips enclose.",
    )


def _plane(axes, words, vectors, query, contexts, path):
    points = [(float(x), float(y)) for x, y in vectors]
    axes.fill(*zip(*_hull(points), strict=True), color=PALE, alpha=0.6, linewidth=0, zorder=0)
    for i, (word, (x, y)) in enumerate(zip(words, points, strict=True)):
        color = ORANGE if i == query else BLUE
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y), (0, 0), arrowprops=arrow)
        length = (x * x + y * y) ** 0.5 or 1
        place = (9 * x / length, 9 * y / length)
        sides = {
            "ha": "left" if x > 0.4 * length else "right" if x < -0.4 * length else "center",
            "va": "bottom" if y > 0.4 * length else "top" if y < -0.4 * length else "center",
        }
        axes.annotate(word, (x, y), place, textcoords="offset points", color=INK, fontsize=10, **sides)
    if path is not None:
        axes.plot(*zip(*[(float(x), float(y)) for x, y in path], strict=True), color=VERMILION, linewidth=1.5)
    for name, (x, y) in contexts.items():
        axes.plot([float(x)], [float(y)], "o", color=VERMILION, markersize=7, zorder=4)
        axes.annotate(
            name,
            (float(x), float(y)),
            (6, -7),
            textcoords="offset points",
            color=VERMILION,
            va="top",
            fontsize=10,
        )
    xs, ys = zip((0, 0), *points, strict=True)
    axes.set(xlim=(min(xs) - 0.6, max(xs) + 0.7), ylim=(min(ys) - 0.4, max(ys) + 0.45), aspect="equal")
    axes.axhline(0, color=GREY, linewidth=0.6, zorder=0)
    axes.axvline(0, color=GREY, linewidth=0.6, zorder=0)
    axes.tick_params(labelsize=9)


def _hull(points):
    """The corners of the smallest convex area around the points, in order (Andrew's monotone chain)."""

    def half(ordered):
        corners = []
        for x, y in ordered:
            while len(corners) > 1:
                (ax, ay), (bx, by) = corners[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                corners.pop()
            corners.append((x, y))
        return corners[:-1]

    ordered = sorted(set(points))
    return half(ordered) + half(ordered[::-1]) or ordered


def _place(vector):
    x, y = (float(entry) for entry in vector)
    return f"({x:.2f}, {y:.2f})"
