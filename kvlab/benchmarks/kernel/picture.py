"""The picture of a measurement: bytes a second against the length of the context. Needs matplotlib."""

from matplotlib import pyplot as plt

from kvlab.viz.show import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, Picture, style

LOOKS = (BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (VERMILION, "D"), (PURPLE, "v")
DASHES = "-", "--", ":"


def bandwidths(device, yardsticks, by_batch):
    """-> Picture.

    yardsticks: {name: bytes a second}, drawn as level lines. by_batch: {batch: [(tokens of a context, bytes a
    second)]}.
    """
    with plt.rc_context():
        style()
        figure, axes = plt.subplots(figsize=(7.5, 4.2))
        for (name, rate), dash in zip(yardsticks.items(), DASHES, strict=False):
            axes.axhline(rate / 1e9, color=GREY, linestyle=dash, linewidth=1.5, label=name)
        for (batch, points), (color, marker) in zip(by_batch.items(), LOOKS, strict=False):
            contexts, rates = zip(*points, strict=True)
            look = {"color": color, "marker": marker, "label": f"batch {batch}"}
            axes.plot(contexts, [rate / 1e9 for rate in rates], **look)
        ticks = sorted({context for points in by_batch.values() for context, _ in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set(title=device, xlabel="tokens of each context", ylabel="GB/s")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=10, labelcolor=INK)
        return Picture(figure, _alt(device, yardsticks, by_batch))


def _alt(device, yardsticks, by_batch):
    lines = [f"{name} is {rate / 1e9:.0f}" for name, rate in yardsticks.items()]
    curves = [
        f"batch {batch} reaches {max(rate for _, rate in points) / 1e9:.0f}"
        for batch, points in by_batch.items()
    ]
    return f"Paged decode attention on {device}, in GB/s: {'; '.join([*curves, *lines])}."
