"""The lessons, and the map that says where the reader stands."""

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, GREY, INK, PALE, Picture

PARTS = {
    "Attention": ["start here", "attention\nwithout weights", "queries, keys,\nvalues", "a decoder"],
    "The cache": ["the KV cache", "what it costs", "reading is the\nbottleneck"],
    "Store less": ["sharing\nheads", "latent\nattention", "fewer bits"],
    "Manage it": ["paged blocks", "sharing blocks", "continuous\nbatching", "prefix reuse", "eviction"],
    "Stretch it": ["endless\nstreams", "many devices"],
    "Run it": ["a first kernel", "the paged\nkernel", "the engine", "using it well"],
}


def course_map(here):
    """All lessons in their parts, lesson number ``here`` marked -> Picture."""
    lessons = [lesson for part in PARTS.values() for lesson in part]
    if not 0 <= here < len(lessons):
        raise ValueError(f"lesson {here} of a course with lessons 0 to {len(lessons) - 1}")
    figure, axes = plt.subplots(figsize=(9.6, 2.5))
    number, deepest = 0, max(map(len, PARTS.values()))
    for column, (part, names) in enumerate(PARTS.items()):
        axes.text(column + 0.47, 0.3, part, ha="center", va="bottom", fontsize=10.5, weight="bold", color=INK)
        for row, name in enumerate(names):
            current = number == here
            box = plt.Rectangle(
                (column, -row - 0.72), 0.94, 0.84, facecolor=BLUE if current else PALE, edgecolor="none"
            )
            axes.add_patch(box)
            color = "white" if current else INK if number < here else GREY
            weight = "bold" if current else "normal"
            place = {"va": "center", "color": color, "weight": weight}
            axes.text(column + 0.05, -row - 0.3, f"{number:02d}", fontsize=9, **place)
            axes.text(column + 0.25, -row - 0.3, name, fontsize=8.2, linespacing=0.95, **place)
            number += 1
    axes.set(xlim=(-0.02, len(PARTS)), ylim=(-deepest + 0.2, 0.75))
    axes.axis("off")
    title = lessons[here].replace("\n", " ")
    done = f"{here} of {len(lessons)} lessons stand before it" if here else "it is the first"
    return Picture(
        figure, f"Map of the course in {len(PARTS)} parts. Here: lesson {here:02d}, {title}; {done}."
    )
