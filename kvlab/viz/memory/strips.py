"""The layers of several models, one cell a layer."""

from collections import Counter

from matplotlib import pyplot as plt
from matplotlib.patches import Patch, Rectangle

from kvlab.viz.memory.looks import KINDS
from kvlab.viz.show import GREY, INK, Picture

_HATCH = {"": "", "/": "///", "x": "xxx", "-": "---", "|": "|||", ".": "..."}
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


def layer_strips(models):
    """What each layer keeps: ``models`` is {name: kinds of its layers, the lowest first} -> Picture."""
    longest = max(len(kinds) for kinds in models.values())
    shown = [kind for kind in KINDS if any(kind in kinds for kinds in models.values())]
    figure, axes = plt.subplots(figsize=(9.6, 0.42 * len(models) + 0.3 * ((len(shown) + 1) // 2) + 0.3))
    for row, kinds in enumerate(models.values()):
        for number, kind in enumerate(kinds):
            look = KINDS[kind]
            axes.add_patch(Rectangle((number, -row), 1, -0.72, **_face(look), linewidth=0.6))
    axes.set_yticks([-row - 0.36 for row in range(len(models))], list(models))
    axes.tick_params(length=0)
    axes.set(xlim=(-0.3, longest + 0.3), ylim=(-len(models) + 0.1, 0.15), xticks=[])
    axes.spines[:].set_visible(False)
    keys = [Patch(**_face(KINDS[kind]), label=f"{kind}: {SAID[kind]}") for kind in shown]
    figure.legend(handles=keys, loc="outside lower center", ncols=2, fontsize=9.5, labelcolor=INK)
    counted = "; ".join(
        f"{name}: {', '.join(f'{count} {kind}' for kind, count in Counter(kinds).items())}"
        for name, kinds in models.items()
    )
    return Picture(figure, f"The layers of {len(models)} models as strips of cells, one a layer. {counted}.")


def _face(look):
    edge = look.ink if look.pattern else GREY if look.fill == "#FFFFFF" else "white"
    return {"facecolor": look.fill, "hatch": _HATCH[look.pattern], "edgecolor": edge}
