"""The memory calculator: one model, one device, every question about its cache."""

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.viz import memory as viz
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.answers import Question, answer
from kvlab.widgets.memory.words import about, facts, kind_words, parameters_of

REFUSED = (ValueError, TypeError, OverflowError)


class MemoryCalculator(Shown):
    """What the cache of a model takes, exactly, and what that means on a device.

    model: a catalogue name, or a ModelSpec. The other arguments are where the fields begin. reserve: the
    share of the device that is kept back. units: "binary" (GiB) or "decimal" (GB).
    """

    def __init__(
        self,
        model="Llama-3.1-8B",
        tokens=8192,
        sequences=1,
        dtype=None,
        weights_dtype=None,
        device="NVIDIA H100 SXM",
        tp=1,
        page=None,
        reserve=0.1,
        units="binary",
    ):
        device = memory.device(device).name
        self.units = units
        self.question = Question(
            model, tokens, sequences, dtype, weights_dtype, device, tp, page, reserve
        )
        self.answer = answer(self.question)  # a call with a wrong name fails here, where it was written

    def rows(self):
        """The answer as rows of a table: what, how much, and what that means."""
        found, size = self.answer, self._size
        one = found.cost
        rows = [
            ("keys, values and states", f"{found.exact:,} bytes", size(found.exact)),
            ("each further token", f"{one.bytes_per_token:,} bytes", "of one sequence, on one rank"),
            ("whatever the length", f"{one.bytes_constant:,} bytes", "of one sequence, on one rank"),
        ]
        return rows + [(fact.name, fact.value, fact.more) for fact in facts(found, size)[2:]]

    def table(self):
        return Table(["", "", ""], self.rows(), about(self.answer))

    def text(self):
        return repr(self.table())

    def html(self):
        return self.table()._repr_html_()

    def static_figure(self):
        """The device and the layers at the first settings -> Picture."""
        parts, capacity, layers, legend = self._drawn(self.answer, self._size)
        return viz.calculator_figure(parts, capacity, layers, legend, about(self.answer))

    def _size(self, nbytes):
        return memory.size(nbytes, self.units)

    @staticmethod
    def _drawn(found, size):
        """What the pictures show: parts of the device, its capacity, layers, and their legend."""
        parts = [(name, nbytes, size(nbytes)) for name, nbytes in found.parts.items()]
        layers = [
            (layer.kind, held, size(held))
            for layer, held in zip(found.spec.layers, found.cost.by_layer, strict=True)
        ]
        return parts, (found.capacity, size(found.capacity)), layers, kind_words(found, size)

    def page(self, found, units, stale=""):
        """The answer as HTML."""

        def size(nbytes):
            return memory.size(nbytes, units)

        parts, capacity, layers, legend = self._drawn(found, size)
        tp = found.question.tp
        one = f", one of {tp} ranks" if tp > 1 else ""
        pictures = (
            viz.device_bar_svg(parts, capacity, f"Memory of {found.question.device}{one}"),
            viz.layer_strip_svg(layers, legend, "What each layer keeps of one sequence"),
        )
        cards = facts(found, size)
        return viz.answer_page(
            size(found.exact), about(found), found.exact, pictures, cards, found.warnings, found.spec.notes, stale
        )

    def widget(self):
        asked = self.question
        named = not isinstance(asked.model, memory.ModelSpec)
        model = controls.model(asked.model if named else "")
        source = controls.buttons(
            [("catalogue", "named"), ("a config.json", "pasted")], "named", "model from", "kv-source"
        )
        config = labelled(
            widgets.Textarea(
                placeholder="paste a whole Hugging Face config.json, then press Tab",
                continuous_update=False,
                layout={"width": "760px", "height": "110px"},
                description="config.json",
                style=controls.NAMED,
            ),
            "kv-config",
        )
        parameters = [
            labelled(
                widgets.Text(
                    description=name,
                    placeholder="such as 8.03B",
                    continuous_update=False,
                    layout=controls.WIDE,
                    style=controls.NAMED,
                ),
                key,
            )
            for name, key in (("parameters", "kv-parameters"), ("active (MoE)", "kv-active"))
        ]
        pasted = widgets.VBox([config, widgets.HBox(parameters)], layout={"display": "none"})
        tokens = controls.tokens(asked.tokens)
        sequences = controls.whole(asked.sequences, "sequences", "kv-sequences")
        dtype = controls.dtype(asked.dtype)
        weights = controls.dtype(asked.weights_dtype, "weights dtype", "kv-weights-dtype")
        device = controls.device(asked.device)
        tp = controls.whole(asked.tp, "ranks (tp)", "kv-tp", 1024)
        pages = [("off: the ideal", None), *((f"{size} tokens", size) for size in sorted({1, 16, 32, 64, 128}))]
        page = controls.choice(pages, asked.page, "pool's pages", "kv-page")
        shares = sorted({0.0, 0.05, 0.1, 0.15, 0.2, 0.3, asked.reserve})
        reserve = controls.choice([(f"{s:.0%}", s) for s in shares], asked.reserve, "kept back", "kv-reserve")
        unit = controls.unit(self.units)
        shown = labelled(widgets.HTML(), "kv-answer")
        good = [self.answer]  # the last answer, to be shown, marked, while there is no newer one

        def ask():
            pasted.layout.display = "" if source.value == "pasted" else "none"
            model.layout.display = "none" if source.value == "pasted" else ""
            stale = ""
            try:
                if source.value == "pasted":
                    numbers = [parameters_of(field.value) for field in parameters]
                    spec = memory.ModelSpec.from_json(
                        config.value, parameters=numbers[0], active_parameters=numbers[1]
                    )
                else:
                    spec = model.value if named or model.value else asked.model
                fields = (tokens, sequences, dtype, weights, device, tp, page, reserve)
                good[0] = answer(Question(spec, *(field.value for field in fields)))
            except REFUSED as error:
                stale = str(error)
            shown.value = self.page(good[0], unit.value, stale)

        fields = [source, model, config, *parameters, tokens, sequences, dtype, weights, device, tp, page]
        controls.watch([*fields, reserve, unit], ask)
        left, right = [model, tokens, sequences, dtype, weights], [device, tp, page, reserve, unit]
        return labelled(
            widgets.VBox([source, pasted, controls.columns(left, right), shown]), "kv-calculator"
        )
