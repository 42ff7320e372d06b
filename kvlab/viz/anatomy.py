"""What lies in a cache, number by number."""

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, INK, ORANGE, Picture


def cache_anatomy(layers, kv_heads, head_dim, tokens):
    """Every number of a small cache as a cell; what the newest token added is outlined -> Picture.

    A row of blocks a layer, a block for the keys and one for the values of each KV head, a column a token.
    """
    wide, high = tokens + 1, head_dim + 1.2  # of a block, its gap included
    columns, rows = 2 * kv_heads * wide, layers * high
    across, up = (-3.6, columns + 1.2), (-rows + 0.8, 3.2)
    figure, axes = plt.subplots(figsize=(9.0, 9.0 * (up[1] - up[0]) / (across[1] - across[0])))
    words = {"ha": "center", "color": INK}
    for layer in range(layers):
        for block in range(2 * kv_heads):
            x, y = block * wide + (block >= kv_heads), -layer * high
            kind, head = ("keys", block) if block < kv_heads else ("values", block - kv_heads)
            look = {"facecolor": BLUE if kind == "keys" else ORANGE, "edgecolor": "white", "linewidth": 1}
            look["hatch"] = "" if kind == "keys" else "////"
            for cell in range(tokens * head_dim):
                axes.add_patch(plt.Rectangle((x + cell // head_dim, y - cell % head_dim), 1, -1, **look))
            newest = plt.Rectangle(
                (x + tokens - 1, y), 1, -head_dim, fill=False, edgecolor=INK, linewidth=2.2
            )
            axes.add_patch(newest)
            if layer == 0:
                axes.text(x + tokens / 2, 0.4, f"KV head {head}", fontsize=9, **words)
        axes.text(-0.5, y - head_dim / 2, f"layer {layer}", ha="right", va="center", fontsize=10, color=INK)
    for name, start in (("keys", 0), ("values", kv_heads * wide + 1)):
        axes.text(start + (kv_heads * wide - 1) / 2, 2, name, fontsize=11, **words)
    axes.set(xlim=across, ylim=up, aspect="equal")
    axes.axis("off")
    return Picture(
        figure,
        f"A cache of {layers} layers drawn number by number: in each layer {kv_heads} blocks of keys and "
        f"{kv_heads} of values, {tokens} tokens wide and {head_dim} numbers high, "
        f"{2 * layers * kv_heads * head_dim * tokens} numbers in all. The newest token's column is outlined "
        f"in every block.",
    )
