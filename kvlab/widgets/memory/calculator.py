"""The memory calculator: one model, one device, every question about its cache."""

import html

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.memory.errors import whole
from kvlab.viz import memory as viz
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.answers import Question, answer
from kvlab.widgets.memory.form import Form
from kvlab.widgets.memory.words import about, facts, kind_words, remarks


class MemoryCalculator(Shown):
    """What the cache of a model takes, exactly, and what that means on a device.

    model: a catalogue name, a path, or a ModelSpec. The other arguments are where the fields begin.
    page_size: tokens a block of the pool, None for no pool. reserve: the share of the device that is kept
    back. units: "binary" (GiB) or "decimal" (GB).
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
        page_size=None,
        reserve=0.1,
        units="binary",
    ):
        device, model = memory.device(device).name, controls.given(model)
        tokens, sequences = whole(tokens, "tokens", 1), whole(sequences, "sequences", 1)
        if not 0 <= reserve < 1:
            raise ValueError(f"reserve is {reserve}; it must be a share of the device, such as 0.1")
        memory.size(0, units)  # says so where there are no such units
        self.units = units
        self.question = Question(
            model, tokens, sequences, dtype, weights_dtype, device, tp, page_size, float(reserve)
        )
        self.answer = answer(self.question)  # a call with a wrong name fails here, where it was written

    def rows(self):
        """The answer as rows of a table: what, how much, and what that means."""
        found, size = self.answer, self._size
        one = found.cost
        rows = [
            ("keys, values and states", f"{found.exact:,} bytes", size(found.exact)),
            ("each further token", f"{one.bytes_per_token:,} bytes", "of one sequence, on one rank"),
            ("fixed part, at this length", f"{one.bytes_constant:,} bytes", "of one sequence, on one rank"),
        ]
        more = [fact for fact in facts(found, size) if fact.key not in ("slope", "constant")]
        return rows + [(fact.name, fact.value, fact.more) for fact in more]

    def table(self):
        on = f"{about(self.answer)}; on {self.question.device}, {100 * self.question.reserve:g}% kept back"
        return Table(["", "", ""], self.rows(), f"The cache {on}")

    def said(self):
        """What a reader should know of these numbers -> list of sentences."""
        return [*remarks(self.answer, self._size), *self.answer.spec.notes]

    def text(self):
        return "\n".join([repr(self.table()), *self.said()])

    def html(self):
        said = (f"<p>{html.escape(each)}</p>" for each in self.said())
        return self.table()._repr_html_() + "".join(said)

    def static_figure(self):
        """The device and the layers at the first settings -> Picture."""
        found = self.answer
        words = (f"of cache {about(found)}", f"exactly {found.exact:,} bytes")
        head = viz.heading(*words, large=self._size(found.exact))
        below = [viz.notes(self.said())] if self.said() else []
        return viz.together([head, *self.sheets(found, self._size), *below]).picture()

    def _size(self, nbytes):
        return memory.size(nbytes, self.units)

    @staticmethod
    def sheets(found, size):
        """The device's memory, and the layers."""
        tp, room = found.question.tp, found.budget.capacity
        parts = [(name, nbytes, size(nbytes)) for name, nbytes in found.parts.items()]
        one, each = (f", one of {tp} ranks", ", on one rank") if tp > 1 else ("", "")
        title = f"Memory of {found.question.device}{one}"
        layers = [
            (layer.kind, held, size(held))
            for layer, held in zip(found.spec.layers, found.cost.by_layer, strict=True)
        ]
        return [
            viz.device_bar(parts, (room, size(room)), title),
            viz.layer_strip(layers, kind_words(found, size), f"What each layer keeps of one sequence{each}"),
        ]

    def page(self, found, units, stale=""):
        """The answer as HTML."""

        def size(nbytes):
            return memory.size(nbytes, units)

        pictures = [sheet.svg() for sheet in self.sheets(found, size)]
        words = (about(found), found.exact, pictures, facts(found, size))
        return viz.answer_page(size(found.exact), *words, remarks(found, size), found.spec.notes, stale)

    def widget(self):
        form = Form(self.question, self.units)

        def page(found, stale):
            return self.page(found, form.unit.value, stale)

        shown = controls.answered(form.fields(), lambda: answer(form.question()), page, self.answer)
        return labelled(widgets.VBox([form.box, shown]), "kv-calculator")
