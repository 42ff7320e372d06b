"""The fields that the memory widgets share. Each has a class, kv-..., by which a page or a test finds it."""

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.memory.errors import whole as whole_number

MOST_TOKENS = 10 * 2**20  # the longest text that a model of the catalogue was made for
OWN = "the model's own"
WIDE = {"width": "370px"}
NAMED = {"description_width": "110px"}


def stops(also=1, most=MOST_TOKENS):
    """Token counts for a slider: powers of two, three steps between each, and ``also`` -> sorted list."""
    quarters = {2**power * quarter // 4 for power in range(2, 24) for quarter in (4, 5, 6, 7)}
    return sorted({1, 2, 3, whole_number(also, "tokens"), *(each for each in quarters if each <= most)})


def tokens(value, most=MOST_TOKENS, layout=WIDE):
    """A slider on a logarithmic scale, which shows the exact count."""
    options = [(f"{each:,}", each) for each in stops(value, most)]
    made = widgets.SelectionSlider(options=options, value=value, description="tokens", **look(layout))
    return labelled(made, "kv-tokens")


def batches(value):
    """Powers of two, and ``value``."""
    options = sorted({2**power for power in range(9)} | {whole_number(value, "sequences", 1)})
    made = widgets.SelectionSlider(options=options, value=value, description="sequences", **look(WIDE))
    return labelled(made, "kv-sequences")


def model(value):
    """A field that completes the names of the catalogue, in which anything can be typed."""
    made = widgets.Combobox(
        value=value,
        options=list(memory.models()),
        placeholder="clear, and type a part of a name",
        continuous_update=False,
        description="model",
        **look(WIDE),
    )
    return labelled(made, "kv-model")


def given(model):
    """A name as it is, since a field can show it, and anything else as a ModelSpec."""
    return model if isinstance(model, str) else memory.spec_of(model)


def chosen(text):
    """The ModelSpec of what stands in a model's field. Raises ValueError."""
    if not text.strip():
        raise ValueError("no model is chosen: type a part of a name, and pick one")
    return memory.spec_of(text.strip())


def dtype(value, name="KV dtype", key="kv-dtype"):
    """A format, or "" for the model's own."""
    options = [(OWN, ""), *((form, form) for form in memory.FORMATS)]
    chosen = memory.format_named(value).name if value else ""
    return labelled(widgets.Dropdown(options=options, value=chosen, description=name, **look(WIDE)), key)


def device(value):
    name = memory.device(value).name
    made = widgets.Dropdown(options=list(memory.devices()), value=name, description="device", **look(WIDE))
    return labelled(made, "kv-device")


def whole(value, name, key, most=1_000_000):
    """A whole number, 1 or more."""
    made = widgets.BoundedIntText(value=value, min=1, max=most, description=name, **look({"width": "200px"}))
    return labelled(made, key)


def choice(options, value, name, key, width="370px"):
    """One of a few: [(words, value)]."""
    made = widgets.Dropdown(options=options, value=value, description=name, **look({"width": width}))
    return labelled(made, key)


def buttons(options, value, key):
    """A row of buttons, one of them pressed."""
    made = widgets.ToggleButtons(options=options, value=value, style={"button_width": "auto"})
    return labelled(made, key)


def unit(value="binary"):
    return buttons([("GiB", "binary"), ("GB", "decimal")], value, "kv-unit")


def named(name, field):
    """A name in front of buttons, where other fields have theirs."""
    words = widgets.HTML(
        f'<div style="text-align: right">{name}</div>',
        layout={"width": NAMED["description_width"], "margin": "2px 8px 2px 2px"},
    )
    return widgets.HBox([words, field])


def look(layout):
    return {"layout": layout, "style": NAMED}


def columns(*sides):
    """Fields in columns, side by side where the page is wide enough."""
    boxes = [widgets.VBox(side) for side in sides]
    return widgets.HBox(boxes, layout={"flex_flow": "row wrap", "grid_gap": "0 18px"})


def refused(error):
    """What to tell a reader of an exception.

    Widgets catch all of them: one that escapes ends in a log that nobody reads, while the page goes on
    showing the answer to older settings as if it were the answer to these.
    """
    if isinstance(error, ValueError):
        return str(error)
    return f"the calculator failed ({type(error).__name__}: {error}), which is a fault of its own"


def watch(fields, draw):
    """Call ``draw`` after a change of any field, and once now."""
    for field in fields:
        field.observe(lambda _: draw(), names="value")
    draw()
