"""Models side by side: what their caches take, against the length of the text."""

import warnings
from dataclasses import replace

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.memory.errors import whole
from kvlab.viz import memory as viz
from kvlab.viz.memory.lines import MOST
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.numbers import Tokens, stops
from kvlab.widgets.memory.words import many

MODELS = ("Llama-2-7B", "Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3", "Qwen3-Next-80B-A3B")
FROM, TO = 2**7, 2**20  # tokens that are drawn, and fewer where a shorter text is chosen


class ArchitectureComparison(Shown):
    """Bytes of cache against tokens, one line a model, and the exact bytes at one length.

    models: catalogue names, paths or ModelSpecs. dtype: one for all, or None, each model's own.
    """

    def __init__(self, models=MODELS, tokens=32768, dtype=None, units="binary"):
        self.models = tuple(dict.fromkeys(map(controls.given, models)))
        tokens, dtype = whole(tokens, "tokens", 1), dtype and memory.format_named(dtype).name
        self.tokens, self.dtype, self.units = tokens, dtype, units
        self.curves = {}  # (model, dtype) -> its points; a slider's move computes none of them anew
        self.first = self.table(self.models, tokens, dtype, units)  # a wrong name fails here
        lines, refused = self.lines(self.models, tokens, dtype)
        if not lines:
            raise ValueError("; ".join(refused) or "no models to compare: give some names of the catalogue")

    def line(self, model, tokens, dtype):
        """A Line of the picture."""
        spec = memory.spec_of(model)
        endless = replace(spec, max_tokens=None)
        if (spec, dtype) not in self.curves:
            lengths = [each for each in stops() if each <= TO]
            amounts = [memory.kv_bytes(endless, each, dtype=dtype) for each in lengths]
            self.curves[spec, dtype] = tuple(zip(lengths, amounts, strict=True))
        chosen = memory.kv_bytes(endless, tokens, dtype=dtype)
        first = max(each for each in stops() if each <= min(FROM, tokens))
        points = [point for point in self.curves[spec, dtype] if point[0] >= first]
        return viz.Line(spec.name, tuple(points), chosen, spec.max_tokens)

    def lines(self, models, tokens, dtype):
        """-> (Lines, reasons): a model that the format does not fit is left out, with the reason."""
        lines, refused = [], []
        for model in models:
            try:
                lines.append(self.line(model, tokens, dtype))
            except ValueError as error:
                refused.append(f"{memory.spec_of(model).name}: {error}")
        return lines, refused

    def rows(self, models, tokens, dtype, units):
        rows = []
        for model in models:
            spec = memory.spec_of(model)
            kinds = ", ".join(f"{count} {kind}" for kind, count in spec.kinds().items())
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", memory.TokenLimitWarning)
                    cost = memory.cost(spec, tokens, dtype=dtype)
            except ValueError:
                rows.append((spec.name, kinds, dtype, None, None, None, "refused"))
                continue
            shown = memory.size(cost.bytes_total, units)
            numbers = (cost.bytes_per_token, cost.bytes_constant, cost.bytes_total)
            rows.append((spec.name, kinds, cost.dtype, *numbers, shown))
        return rows

    def table(self, models, tokens, dtype, units):
        columns = [
            "model",
            "layers",
            "dtype",
            "bytes a token",
            "fixed bytes",
            f"bytes at {many(tokens, 'token')}",
            "",
        ]
        return Table(columns, self.rows(models, tokens, dtype, units))

    def text(self):
        return repr(self.first)

    def html(self):
        return self.first._repr_html_()

    @staticmethod
    def unit(units):
        name = "GiB" if units == "binary" else "GB"
        return name, memory.UNITS[name]

    def sheet(self, lines, tokens, units):
        title = "Cache of one sequence; dotted beyond the length that the model was made for"
        return viz.lines_chart(lines, tokens, self.unit(units), title)

    def static_figure(self):
        """The lines at the first settings -> Picture."""
        lines, _ = self.lines(self.models[:MOST], self.tokens, self.dtype)
        return self.sheet(lines, self.tokens, self.units).picture()

    def page(self, models, tokens, dtype, units, stale=""):
        """The picture and the table as HTML."""
        lines, refused = self.lines(models[:MOST], tokens, dtype)
        if len(models) > MOST:
            refused.append(f"{MOST} lines can be told apart: the first {MOST} are drawn, the table has all")
        if not lines:
            refused.append("no line to draw: pick a model")
        pictures = [self.sheet(lines, tokens, units).svg()] if lines else []
        table = self.table(models, tokens, dtype, units)._repr_html_() if models else ""
        return viz.side_by_side(pictures, table, refused, stale=stale)

    def widget(self):
        own = {model.name: model for model in self.models if isinstance(model, memory.ModelSpec)}
        chosen = [getattr(model, "name", model) for model in self.models]
        options = list(dict.fromkeys([*chosen, *memory.models()]))  # what is picked is seen at once
        models = labelled(
            widgets.SelectMultiple(
                options=options,
                value=chosen,
                rows=8,
                description="models",
                **controls.look(controls.WIDE),
            ),
            "kv-models",
        )
        hint = controls.small(
            f"{len(options)} models; Ctrl or ⌘ and a click, or Ctrl, ↑ or ↓ and Space, adds or removes one",
            "252px",
        )
        tokens = Tokens(self.tokens, TO)
        dtype, unit = controls.dtype(self.dtype), controls.unit(self.units)

        def page(number, stale):
            picked = [own.get(name, name) for name in models.value]
            return self.page(picked, number, dtype.value or None, unit.value, stale)

        watched = [models, tokens.exact, dtype, unit]
        shown = controls.answered(watched, lambda: tokens.number, page, self.tokens)
        fields = controls.columns([models, hint], [dtype, controls.named("sizes in", unit)])
        return labelled(widgets.VBox([fields, tokens.box, shown]), "kv-comparison")
