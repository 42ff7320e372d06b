"""What each step of a generation computes."""

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY, Picture


def step_grid(prompt, new, cached):
    """One row a step, one column a token: what is computed, and what is computed again or kept.

    prompt, new: tokens in the prompt and tokens to write. cached: whether keys and values are kept.
    """
    figure, axes = plt.subplots(figsize=(7.6, 0.7 + 0.36 * new))
    _grid(axes, prompt, new, cached)
    figure.legend(handles=[*_keys(cached)], loc="outside lower center", ncols=2)
    return Picture(figure, f"Grid of {new} steps for a prompt of {prompt}. {_counted(prompt, new, cached)}")


def step_grids(prompt, new):
    """Both ways, side by side."""
    figure, panels = plt.subplots(1, 2, figsize=(10.4, 1.1 + 0.36 * new))
    for axes, cached, title in zip(
        panels, (False, True), ("without a cache", "with a KV cache"), strict=True
    ):
        _grid(axes, prompt, new, cached)
        axes.set_title(title, pad=16)
    fresh, again = _keys(cached=False)
    figure.legend(handles=[fresh, again, _keys(cached=True)[1]], loc="outside lower center", ncols=3)
    counted = " ".join(_counted(prompt, new, cached) for cached in (False, True))
    return Picture(figure, f"Two grids of {new} steps for a prompt of {prompt}. {counted}")


def _grid(axes, prompt, new, cached):
    old_color, old_hatch = (SKY, "") if cached else (ORANGE, "////")
    for step in range(new):
        fed = prompt + step
        for token in range(prompt + new - 1):
            fresh = token < fed if step == 0 else token == fed - 1
            color, hatch = (BLUE, "") if fresh else (old_color, old_hatch) if token < fed else (PALE, "")
            look = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
            axes.add_patch(plt.Rectangle((token, -step), 0.9, -0.82, **look))
    axes.axvline(prompt - 0.05, color=INK, linewidth=1, linestyle=":")
    axes.text(prompt / 2, 0.15, "prompt", ha="center", color=INK)
    axes.text(prompt + (new - 1) / 2, 0.15, "written so far", ha="center", color=INK)
    axes.set(xlim=(0, prompt + new - 1), ylim=(-new, 0.9), xticks=[])
    axes.set_yticks([-step - 0.41 for step in range(new)], [f"step {step + 1}" for step in range(new)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _keys(cached):
    kept = "kept: read from the cache" if cached else "K and V computed before, computed again"
    look = {"facecolor": SKY} if cached else {"facecolor": ORANGE, "hatch": "////", "edgecolor": "white"}
    return Patch(facecolor=BLUE, label="computed for the first time"), Patch(label=kept, **look)


def _counted(prompt, new, cached):
    computed = prompt + new - 1 if cached else sum(prompt + step for step in range(new))
    return f"{'With' if cached else 'Without'} a cache {computed} token computations are needed."


def timeline(lanes, unit):
    """Work of each step, end to end, one lane a method: {name: [work of step 1, of step 2, ...]}.

    The first step is prefill, the others decode. ``unit`` labels the axis.
    """
    figure, axes = plt.subplots(figsize=(7.6, 0.9 + 0.62 * len(lanes)))
    longest = max(map(sum, lanes.values()))
    for row, steps in enumerate(lanes.values()):
        start = 0
        for step, work in enumerate(steps):
            color = BLUE if step == 0 else (ORANGE, "#F2C14E")[step % 2]  # neighbours told apart
            axes.barh(-row, work, left=start, height=0.62, color=color, linewidth=0)
            start += work
        axes.text(
            start + longest * 0.01,
            -row,
            f"{start:,.0f}" if start >= 100 else f"{start:.3g}",
            va="center",
            color=GREY,
        )
    axes.set_yticks([-row for row in range(len(lanes))], list(lanes))
    axes.set(xlabel=unit, xlim=(0, longest * 1.1))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = [
        Patch(facecolor=BLUE, label="prefill"),
        Patch(facecolor=ORANGE, label="decode, one block a token"),
    ]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 1.32), ncols=2)
    totals = ", ".join(f"{name} {sum(steps):.3g}" for name, steps in lanes.items())
    return Picture(figure, f"Timeline of prefill and decode steps, in {unit}. In all: {totals}.")
