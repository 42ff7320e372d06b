"""The fields that the memory widgets share. Each has a class, kv-..., by which a page or a test finds it."""

import html

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.memory.errors import whole as whole_number

OWN = "the model's own"
WIDE = {"width": "370px", "max_width": "98%"}
NAMED = {"description_width": "110px"}
# A browser lets the readout of a slider over options be typed into, and nothing ever reads what was typed.
READ_ONLY = (
    "<style>.kv-options .widget-readout { pointer-events: none; -webkit-user-modify: read-only }</style>"
)


def batches(value):
    """Powers of two, and ``value``."""
    options = {2**power for power in range(9)} | {whole_number(value, "sequences", 1)}
    return slider(options, value, "sequences", "kv-sequences")


def slider(numbers, value, name, key):
    """A slider over a set of numbers, in their order."""
    return over([(f"{number:,}", number) for number in sorted(numbers)], value, name, key)


def over(options, value, name, key, layout=WIDE):
    """A slider over options, as a SelectionSlider takes them."""
    made = widgets.SelectionSlider(options=options, value=value, description=name, **look(layout))
    return labelled(labelled(made, "kv-options"), key)


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


def all_models():
    """That there are more names than its field shows: a browser lists only those that match its text."""
    names = list(memory.models())
    listed = ", ".join(f"<span style='white-space: nowrap'>{html.escape(name)}</span>" for name in names)
    made = small(
        f"<details><summary>{len(names)} models are known by name: empty the field and press ↓ to pick from "
        f"all, or open this list</summary>{listed}. A Hugging Face id, or the path of a config.json, does "
        "too.</details>"
    )
    return labelled(made, "kv-all-models")


def small(content, widest="644px"):
    """Words below a field, as HTML."""
    style = "font-size: 12px; line-height: 1.5"
    layout = {"margin": "0 2px 4px 118px", "max_width": widest}
    return widgets.HTML(f"<div style='{style}'>{content}</div>", layout=layout)


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


def choice(options, value, name, key):
    """One of a few: [(words, value)]."""
    made = widgets.Dropdown(options=options, value=value, description=name, **look(WIDE))
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
    narrow = {"min_width": "0", "max_width": "100%"}  # on a narrow page too
    boxes = [widgets.VBox(side, layout=narrow) for side in sides]
    return widgets.HBox(boxes, layout={"flex_flow": "row wrap", "grid_gap": "0 18px"})


def refused(error):
    """What to tell a reader of an exception.

    Widgets catch all of them: one that escapes ends in a log that nobody reads, while the page goes on
    showing the answer to older settings as if it were the answer to these.
    """
    if isinstance(error, ValueError):
        return str(error)
    return f"the widget failed ({type(error).__name__}: {error}), which is a fault of its own"


def stepper(slider, ways, page):
    """A slider, buttons that move it, and below them the page of its value.

    ways: {class: (sign, words, value -> where the button leads from it)}. page: value -> HTML.
    """
    shown, buttons = labelled(widgets.HTML(), "kv-answer"), {}
    for key, (sign, words, way) in ways.items():
        made = widgets.Button(description=sign, tooltip=words, layout={"width": "80px"})
        made.on_click(lambda _, way=way: setattr(slider, "value", way(slider.value)))
        buttons[key] = labelled(made, key)

    def draw():
        for key, (_, _, way) in ways.items():
            buttons[key].disabled = way(slider.value) == slider.value
        shown.value = page(slider.value)

    watch([slider], draw)
    row = widgets.HBox([slider, *buttons.values()], layout={"flex_flow": "row wrap"})
    return widgets.VBox([row, shown])


def answered(fields, ask, page, good):
    """The page of what ``ask()`` says, drawn anew after a change of any field -> widgets.HTML.

    Where it refuses, the page of its last answer stays, marked with the reason. ``good``: the answer to the
    first settings. page: an answer, and the reason or "" -> HTML.
    """
    shown = labelled(widgets.HTML(), "kv-answer")

    def draw():
        nonlocal good
        stale = ""
        try:
            good = ask()
        except Exception as error:
            stale = refused(error)
        shown.value = READ_ONLY + page(good, stale)

    watch(fields, draw)
    return shown


def watch(fields, draw):
    """Call ``draw`` after a change of any field, and once now."""
    for field in fields:
        field.observe(lambda _: draw(), names="value")
    draw()
