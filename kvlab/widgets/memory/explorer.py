"""Where prefill and decode lie on a device's roofline, and what the time of a token is spent on."""

import html
from dataclasses import dataclass, replace

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.viz import memory as viz
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.numbers import Tokens, whole
from kvlab.widgets.memory.words import cautions, many, too_heavy

BATCHES = tuple(2**power for power in range(9))
KEPT_BACK = 0.1  # of the device


@dataclass(frozen=True)
class Steps:
    """What is drawn: the model's steps on a device. ``decode`` is {batch: Step}."""

    spec: object
    device: object
    tokens: int
    batch: int
    tp: int
    cautions: list
    prefill: object
    decode: dict
    weights: int
    fits: int | None
    share_read: float

    @property
    def possible(self):
        """Whether the device holds the weights. Without them no step has a time."""
        return self.weights < self.device.memory_bytes

    def holds(self, batch):
        """Whether the device holds the caches of a batch beside the weights."""
        return self.possible and (self.fits is None or batch <= self.fits)

    def bars(self):
        return [
            viz.Bar(
                batch,
                step.weights_read,
                step.kv_read,
                step.read_s,
                step.compute_s,
                self.holds(batch),
            )
            for batch, step in self.decode.items()
        ]

    def points(self):
        """Decode and, where the device's arithmetic rate is known, prefill."""
        if not self.possible:
            return []
        decode = self.decode[self.batch]
        words = f"decode, batch {self.batch:,}" + ("" if self.holds(self.batch) else ", too much")
        points = [viz.Point.of("decode", words, decode.flops, decode.floor_s, decode.intensity)]
        if self.device.flops.get("bf16"):
            step = self.prefill
            points.append(
                viz.Point.of("prefill", "prefill, one text", step.flops, step.floor_s, step.intensity)
            )
        return points

    def trail(self):
        decodes = [step for batch, step in self.decode.items() if self.holds(batch)]
        points = [viz.Point.of("decode", "", step.flops, step.floor_s, step.intensity) for step in decodes]
        return [(point.intensity, point.rate) for point in points]


class RooflineExplorer(Shown):
    """A model's prefill and decode on a device's roofline; decode's time by it for batches of 1 to 256.

    sequences and tokens are where the sliders begin: the batch, and the length of each of its texts. A tenth
    of the device is kept back, as in the calculator.
    """

    def __init__(
        self,
        model="Llama-3.1-8B",
        device="NVIDIA H100 SXM",
        tokens=8192,
        sequences=16,
        dtype=None,
        weights_dtype=None,
        tp=1,
    ):
        model, device = controls.given(model), memory.device(device).name
        self.asked = (model, device, tokens, sequences, dtype, weights_dtype, tp)
        self.steps = self.compute(*self.asked)

    @staticmethod
    def compute(model, device, tokens, sequences, dtype, weights_dtype, tp):
        """-> Steps. Raises ValueError, in words, for what has no answer."""
        spec, device = memory.spec_of(model), memory.device(device)
        if spec.parameters == 0:
            raise ValueError(f"{spec.name} has no weights to read: say how many, with_parameters(7 * 10**9)")
        steps = {
            batch: memory.decode(spec, tokens, device, batch, dtype, weights_dtype, tp)
            for batch in sorted({*BATCHES, sequences})
        }
        prompt = memory.prefill(spec, tokens, device, 1, weights_dtype, tp)
        weights = memory.weight_bytes(spec, weights_dtype, tp)
        free = memory.free_bytes(spec, device, weights_dtype, tp, KEPT_BACK)
        fits = memory.fits_sequences(replace(spec, max_tokens=None), tokens, free, dtype, tp)
        share = memory.weights_read(spec, sequences, weights_dtype, tp) / weights
        said = cautions(spec, tokens, dtype, tp)
        return Steps(spec, device, tokens, sequences, tp, said, prompt, steps, weights, fits, share)

    def rows(self):
        """Prefill of one text, then decode of each batch."""
        steps = self.steps
        named = {"prefill of one": (1, steps.prefill)}
        named |= {f"decode, batch {batch}": (batch, step) for batch, step in steps.decode.items()}
        return [
            (
                name,
                step.weights_read,
                step.kv_read,
                step.flops,
                viz.plain(step.intensity),
                viz.duration(step.floor_s) if steps.holds(batch) else "does not fit",
            )
            for name, (batch, step) in named.items()
        ]

    def table(self):
        columns = ["step", "weight bytes read", "KV bytes read", "FLOPs", "FLOPs a byte", "time, about"]
        return Table(columns, self.rows(), self.about())

    def said(self):
        """What a reader should know of these numbers -> list of sentences."""
        return [*self.warnings(self.steps), *self.notes(self.steps)]

    def text(self):
        return "\n".join([repr(self.table()), *self.said()])

    def html(self):
        said = (f"<p>{html.escape(each)}</p>" for each in self.said())
        return self.table()._repr_html_() + "".join(said)

    @staticmethod
    def sheets(steps, per):
        """The roofline, and the bars where the device holds the weights."""
        device, rate = steps.device, steps.device.flops.get("bf16")
        roof = f"Roofline of {device.name}"
        title = {"step": "About what a decode step takes", "token": "About what a token costs the device"}[
            per
        ]
        pictures = [viz.roofline(device.bandwidth, rate, steps.points(), steps.trail(), roof)]
        if steps.possible:
            pictures.append(viz.step_bars(steps.bars(), steps.batch, per, title))
        return pictures

    def static_figure(self, per="token"):
        """Both pictures at the first settings -> Picture."""
        both = viz.together(self.sheets(self.steps, per), across=True, gap=20)
        head, below = viz.heading(self.about(), width=both.width), viz.notes(self.said(), both.width)
        return viz.together([head, both, below], gap=2).picture()

    def about(self):
        steps = self.steps
        rank = f", one of {steps.tp} ranks" if steps.tp > 1 else ""
        heavy = "" if steps.possible else ": the weights alone do not fit"
        return (
            f"{steps.spec.name} on {steps.device.name}{rank}, texts of {many(steps.tokens, 'token')}{heavy}"
        )

    @staticmethod
    def warnings(steps):
        if not steps.possible:
            yield too_heavy(steps.spec, steps.weights, steps.device.memory_bytes, steps.tp, memory.size)
        yield from steps.cautions

    @staticmethod
    def notes(steps):
        if not steps.possible:
            return
        if steps.device.flops.get("bf16") is None:
            yield (
                f"The arithmetic rate of {steps.device.name} is not known: only reading is counted, and "
                "prefill is left out."
            )
        if steps.fits is not None and steps.fits < max(steps.decode):
            fit = "fits" if steps.fits == 1 else "fit"
            yield (
                f"{many(steps.fits, 'sequence')} of this length {fit} beside the weights, with "
                f"{KEPT_BACK:.0%} of the device kept back."
            )
        if steps.share_read < 1:
            yield (
                f"Mixture of experts: the tokens of a batch pick different experts, so a batch of "
                f"{steps.batch:,} reads {steps.share_read:.0%} of the weights, if they pick at random."
            )
        yield (
            "By the roofline alone. A real step takes longer: it also starts kernels and talks to other "
            "ranks, and reaches neither limit quite."
        )

    def page(self, steps, per, stale=""):
        """Both pictures as HTML."""
        pictures = [sheet.svg() for sheet in self.sheets(steps, per)]
        return viz.side_by_side(pictures, warnings=self.warnings(steps), notes=self.notes(steps), stale=stale)

    def widget(self):
        first, device, tokens, sequences, dtype, weights_dtype, tp = self.asked
        own = isinstance(first, memory.ModelSpec)
        model, device = controls.model("" if own else first), controls.device(device)
        tokens, batch = Tokens(tokens, 2**20), controls.batches(sequences)
        dtype, weights = (
            controls.dtype(dtype),
            controls.dtype(weights_dtype, "weights dtype", "kv-weights-dtype"),
        )
        tp = whole(tp, "ranks (tp)", "kv-tp", "ranks", 1024)
        per = controls.buttons([("a token", "token"), ("a step", "step")], "token", "kv-per")

        def ask():
            return self.compute(
                first if own and not model.value else controls.chosen(model.value),
                device.value,
                tokens.number,
                batch.value,
                dtype.value or None,
                weights.value or None,
                tp.number,
            )

        def page(steps, stale):
            return self.page(steps, per.value, stale)

        watched = [model, device, tokens.exact, batch, dtype, weights, tp, per]
        shown = controls.answered(watched, ask, page, self.steps)
        fields = controls.columns([device, batch, tp], [dtype, weights, controls.named("time of", per)])
        box = widgets.VBox([model, controls.all_models(), tokens.box, fields, shown])
        return labelled(box, "kv-roofline")
