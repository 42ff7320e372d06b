"""The decoder as a drawing: a stream that two kinds of blocks read from and add to."""

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, GREEN, GREY, INK, PALE, VERMILION, Picture

ARROW = {"arrowstyle": "-|>", "color": INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}


def decoder_diagram(num_layers):
    """From token ids to logits, left to right -> Picture."""
    figure, axes = plt.subplots(figsize=(9.4, 2.5))
    axes.annotate("", (9.95, 0), (0.9, 0), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 3})
    for x, name in ((0.55, "token ids"), (1.75, "embedding"), (8.3, "norm"), (9.4, "logits")):
        _box(axes, x, 0, name, PALE, INK)
    _branch(axes, 3.3, "attention", BLUE, "tokens read from each other")
    _branch(axes, 5.9, "MLP", VERMILION, "each token by itself")
    axes.text(5.18, -0.4, "the residual stream: one vector a token", ha="center", color=GREY, fontsize=9)
    axes.add_patch(plt.Rectangle((2.65, -0.6), 5.05, 2.3, fill=False, edgecolor=GREY, linestyle=":"))
    axes.text(2.65, 1.78, f"a layer ({num_layers} of them, one after the other)", fontsize=9.5, color=INK)
    axes.set(xlim=(0, 10.1), ylim=(-0.7, 2.0))
    axes.axis("off")
    return Picture(
        figure,
        f"A decoder: token ids become vectors; in each of {num_layers} layers attention and then an MLP read "
        "a normalised copy of the residual stream and add to it; a last norm and a matrix give logits.",
    )


def _branch(axes, x, name, color, note):
    """Leave the stream at x, go through a norm and a block, and come back a little later."""
    back = x + 1.3
    _box(axes, x, 0.85, "norm", PALE, INK)
    _box(axes, back, 0.85, name, color, "white")
    axes.annotate("", (x, 0.66), (x, 0.03), arrowprops=ARROW)
    axes.annotate("", (back - 0.48, 0.85), (x + 0.3, 0.85), arrowprops=ARROW)
    axes.annotate("", (back, 0.17), (back, 0.66), arrowprops=ARROW)
    plus = {"boxstyle": "circle,pad=0.12", "facecolor": GREEN, "edgecolor": "none"}
    axes.text(back, 0, "+", ha="center", va="center", color="white", fontsize=12, weight="bold", bbox=plus)
    axes.text(x + 0.65, 1.3, note, ha="center", color=GREY, fontsize=9)


def _box(axes, x, y, name, color, ink):
    shape = {"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "none"}
    axes.text(x, y, name, ha="center", va="center", color=ink, fontsize=9.5, bbox=shape)
