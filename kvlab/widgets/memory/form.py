"""The calculator's fields, and the question that they ask."""

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.answers import Question
from kvlab.widgets.memory.numbers import Tokens, whole
from kvlab.widgets.memory.words import parameters_of

FULL = {"width": "766px", "max_width": "98%"}  # two fields and what is between them
EXAMPLE = "such as 8.03B"
PAGES = (1, 16, 32, 64, 128)
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)


class Form:
    """Fields that begin at a Question. ``box`` is the widget that holds them."""

    def __init__(self, first, units):
        self.first, self.own = first, isinstance(first.model, memory.ModelSpec)
        sources = [("the catalogue", "named"), ("a config.json", "pasted")]
        self.source = controls.buttons(sources, "named", "kv-source")
        self.model, self.names = controls.model("" if self.own else first.model), controls.all_models()
        self.config = config_field()
        self.parameters = amount("parameters", "kv-parameters")
        self.active = amount("active (MoE)", "kv-active")
        self.config.observe(self.another_config, names="value")
        self.tokens = Tokens(first.tokens)
        self.sequences = whole(first.sequences, "sequences", "kv-sequences", "sequences")
        self.dtype = controls.dtype(first.dtype)
        self.weights = controls.dtype(first.weights_dtype, "weights dtype", "kv-weights-dtype")
        self.device = controls.device(first.device)
        self.tp = whole(first.tp, "ranks (tp)", "kv-tp", "ranks", 1024)
        sizes = sorted({*PAGES, first.page_size or 1})
        pages = [("none: the ideal", 0), *((f"of {size}", size) for size in sizes)]
        self.page = controls.choice(pages, first.page_size or 0, "pages", "kv-page")
        shares = [(f"{share:.0%}", share) for share in sorted({*SHARES, first.reserve})]
        self.reserve = controls.choice(shares, first.reserve, "kept back", "kv-reserve")
        self.unit = controls.unit(units)
        self.box = self.arranged()

    def arranged(self):
        left = [self.sequences, self.dtype, self.weights, controls.named("sizes in", self.unit)]
        right = [self.device, self.tp, self.page, self.reserve]
        known = widgets.VBox([self.model, self.names])
        pasted = widgets.VBox([self.config, controls.columns([self.parameters], [self.active])])

        def choose(_=None):
            pasted.layout.display = "" if self.source.value == "pasted" else "none"
            known.layout.display = "none" if self.source.value == "pasted" else ""

        self.source.observe(choose, names="value")
        choose()
        source = controls.named("model from", self.source)
        return widgets.VBox([source, known, pasted, self.tokens.box, controls.columns(left, right)])

    def another_config(self, change):
        """Numbers of weights belong to the config that they were typed for: they go when it does."""
        if not change.old.strip():
            return  # they were typed before the first one was pasted
        for field in (self.parameters, self.active):
            before = field.value.strip()
            field.placeholder = f"emptied: {before} was of the config before" if before else EXAMPLE
            field.value = ""

    def fields(self):
        texts = [self.model, self.config, self.parameters, self.active]
        numbers = [self.tokens.exact, self.sequences, self.tp, self.page, self.reserve]
        return [self.source, *texts, *numbers, self.dtype, self.weights, self.device, self.unit]

    def question(self):
        """-> Question. Raises ValueError for what was pasted, or typed, and cannot be read."""
        return Question(
            self.spec(),
            self.tokens.number,
            self.sequences.number,
            self.dtype.value or None,
            self.weights.value or None,
            self.device.value,
            self.tp.number,
            self.page.value or None,
            self.reserve.value,
        )

    def spec(self):
        if self.source.value == "named":
            if self.own and not self.model.value:
                return self.first.model
            return controls.chosen(self.model.value)
        if not self.config.value.strip():
            raise ValueError("paste a config.json, then press Tab")
        spec = memory.ModelSpec.from_json(self.config.value)
        number, active = parameters_of(self.parameters.value), parameters_of(self.active.value)
        if number is None and active is not None:
            raise ValueError("parameters that are active are some of all parameters: say both numbers")
        return spec if number is None else spec.with_parameters(number, active)


def config_field():
    made = widgets.Textarea(
        description="config.json",
        placeholder="paste a whole Hugging Face config.json, then press Tab",
        continuous_update=False,
        **controls.look(FULL | {"height": "120px"}),
    )
    return labelled(made, "kv-config")


def amount(name, key):
    made = widgets.Text(
        description=name,
        placeholder=EXAMPLE,
        continuous_update=False,
        **controls.look(controls.WIDE),
    )
    return labelled(made, key)
