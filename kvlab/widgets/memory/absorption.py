"""Latent attention (MLA): keep keys and values or latents, expand them or absorb the expansion?"""

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.viz import memory as viz
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many

NEW = {2**power for power in range(14)}
CACHED = {0} | {2**power for power in range(18)}
WHAT = {
    "expanded cache": "keeps every head's keys and values",
    "expanded each step": "keeps latents, expands all of them",
    "absorbed": "keeps latents, attends to them",
}
NOTE = "One layer, one sequence. Not counted: projections, reading weights (a batch shares that), writing."


class AbsorbOrExpand(Shown):
    """FLOPs, bytes and least time of the three forms of latent attention, for new tokens after cached ones.

    model: a catalogue name, a path or a ModelSpec with latent layers. new, cached and device are where the
    fields begin. dtype: of the cache, the model's own unless given.
    """

    def __init__(self, model="DeepSeek-V3", new=1, cached=4096, device="NVIDIA H100 SXM", dtype=None):
        self.spec, self.dtype = memory.spec_of(model), dtype
        self.first = (new, cached, memory.device(device).name)
        self.bars(*self.first)  # a call with a wrong name fails here, where it was written

    def bars(self, new, cached, device):
        """-> list of FormBars. Raises ValueError, in words, for what has no answer."""
        known = memory.device(device).flops.get("bf16") is not None
        steps = memory.latent_step(self.spec, new, cached, self.dtype)
        least = {name: step.on(device) for name, step in steps.items()}
        best = min(floor.floor_s for floor in least.values())
        return [
            viz.FormBars(
                name,
                WHAT[name],
                step.flops,
                step.held,
                memory.size(step.held),
                least[name].floor_s if known else None,
                "arithmetic" if least[name].compute_s > least[name].read_s else "reading",
                known and least[name].floor_s == best,
            )
            for name, step in steps.items()
        ]

    def about(self, new, cached, device):
        after = f"after {cached:,} cached" if cached else "and none cached"
        return f"{self.spec.name}, one layer: {many(new, 'new token')} {after}, on {device}"

    def sheet(self, new, cached, device):
        forms = self.bars(new, cached, device)
        said = [*quickest(forms, device), turn(memory.expand_from(self.spec, cached), cached)]
        return viz.form_bars(forms, self.about(new, cached, device), said, NOTE)

    def table(self):
        rows = []
        for form in self.bars(*self.first):
            time = (None, None) if form.seconds is None else (viz.duration(form.seconds), form.limit)
            rows.append((form.name, form.flops, form.held, *time, "quickest" if form.quickest else ""))
        columns = ["form", "FLOPs", "bytes held, and read", "time, at least", "limited by", ""]
        return Table(columns, rows, self.about(*self.first))

    def text(self):
        return repr(self.table())

    def html(self):
        return self.table()._repr_html_()

    def static_figure(self):
        """The bars at the first settings -> Picture."""
        return self.sheet(*self.first).picture()

    def widget(self):
        first_new, first_cached, first_device = self.first
        new = controls.slider(NEW | {first_new}, first_new, "new tokens", "kv-new")
        cached = controls.slider(CACHED | {first_cached}, first_cached, "cached tokens", "kv-cached")
        device = controls.device(first_device)

        def ask():
            return self.sheet(new.value, cached.value, device.value)

        def page(sheet, stale):
            return viz.side_by_side([sheet.svg()], stale=stale)

        shown = controls.answered([new, cached, device], ask, page, self.sheet(*self.first))
        fields = controls.columns([new, cached], [device])
        return labelled(widgets.VBox([fields, shown]), "kv-absorption")


def quickest(forms, device):
    """Which forms take least and what that time is spent on; why the others take more -> sentences."""
    best = [form for form in forms if form.quickest]
    if not best:
        return [f"Which is quickest is not known, because the arithmetic rate of {device} is not."]
    names = " and ".join(form.name for form in best)
    alike = "is quickest" if len(best) == 1 else "are equally quick"
    first = best[0]
    what = f"reading {first.held_words}"
    if first.limit == "arithmetic":
        what = f"arithmetic, {viz.flop_words(first.flops)}"
    said = [f"{names} {alike}, limited by {what}."]
    if others := ", ".join(f"{form.name} {more(form, first)}" for form in forms if not form.quickest):
        said.append(f"{others}.")
    return [each[0].upper() + each[1:] for each in said]


def more(form, best):
    """Why a form takes longer than the best."""
    if form.limit == "reading":
        return f"reads {viz.plain(form.held / best.held)} times as much"
    return f"computes {viz.plain(form.flops / best.flops)} times as much"


def turn(first, cached):
    """From how many new tokens on expanding is the lesser work; ``first`` is None for never."""
    after = f"After {many(cached, 'cached token')}" if cached else "Without cached tokens"
    if first is None:
        return f"{after}, expanding in each step never takes fewer FLOPs than absorbing."
    number = "the first new token" if first == 1 else f"{first:,} new tokens"
    return f"{after}, expanding in each step takes fewer FLOPs than absorbing from {number} on."
