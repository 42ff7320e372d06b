"""Predictions before a measurement, and recall questions after a lesson.

Both are shown as widgets where there is a live kernel, and as plain HTML or text everywhere else: the stored
page reads without a kernel, and a call with ``answer=`` needs no widget.
"""

import html
from dataclasses import dataclass

from kvlab.exercises import record
from kvlab.viz.show import Shown


@dataclass(frozen=True)
class Option:
    """One answer. ``why`` tells who picks it what is right about it, or which misconception it rests on."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True)
class Recall:
    """A question with its options, exactly one of them right."""

    name: str
    question: str
    options: tuple

    def __post_init__(self):
        if sum(option.right for option in self.options) != 1:
            raise ValueError(f"{self.name}: exactly one option is right")


RECALL = {}  # lesson number -> list of Recall


def predict(name, question, options=None, answer=None):
    """Commit to an answer before measuring it.

    Shows the question with its ``options``, or with a field for a number where there are none. Without
    widgets, give the ``answer`` in the call. :func:`reveal` later sets it against what was measured.
    """
    if answer is None:
        return Prediction(name, question, options)
    answer = _plain(answer)
    if options is not None and answer not in options:
        raise ValueError(f"{answer!r} is none of the options: {', '.join(map(str, options))}")
    record.remember("predicted", name, answer)
    print(f"{question}\nYour prediction: {answer}")
    return None


def reveal(name, measured):
    """Say what came out, and what was predicted if anything was."""
    predicted, measured = record.read()["predicted"].get(name), _plain(measured)
    if predicted is None:
        print(f"answer: {measured}")
    elif predicted == measured:
        print(f"answer: {measured}, as you predicted")
    else:
        print(f"answer: {measured}; you predicted {predicted}")


def _plain(value):
    """A number or text as JSON keeps it: of numpy's and torch's numbers, Python's."""
    value = value.item() if getattr(value, "shape", None) == () else value
    if not isinstance(value, str | int | float | bool):
        raise TypeError(f"{value!r} is no number and no text")
    return value


def recall(lesson):
    """The recall questions of a lesson, such as ``recall("04")``."""
    if not isinstance(lesson, str) or lesson not in RECALL:
        raise ValueError(
            f"no recall questions for lesson {lesson!r}; there are some for: {', '.join(sorted(RECALL))}"
        )
    return RecallPage(RECALL[lesson])


class Prediction(Shown):
    def __init__(self, name, question, options):
        self.name, self.question, self.options = name, question, options

    def text(self):
        choices = " / ".join(map(str, self.options)) if self.options else "a number"
        return f"Predict: {self.question} ({choices})"

    def html(self):
        choices = "".join(f"<li>{html.escape(str(option))}</li>" for option in self.options or ())
        return f"<p><b>Predict.</b> {html.escape(self.question)}</p>" + (
            f"<ul>{choices}</ul>" if choices else ""
        )

    def widget(self):
        import ipywidgets as widgets

        question = widgets.HTML(f"<b>Predict.</b> {html.escape(self.question)}")
        known = record.read()["predicted"].get(self.name)
        if self.options:
            value = known if known in self.options else None
            field = widgets.RadioButtons(options=self.options, value=value, layout={"width": "max-content"})
        else:
            field = widgets.IntText(value=known if isinstance(known, int) else 0, layout={"width": "12em"})
        button = widgets.Button(description="Commit", tooltip="Remember this prediction")
        said = widgets.HTML("" if known is None else f"You predicted {html.escape(str(known))}.")

        def commit(_):
            if field.value is None:
                said.value = "Pick one first."
            else:
                record.remember("predicted", self.name, field.value)
                said.value = f"You predicted {html.escape(str(field.value))}. Now measure it."

        button.on_click(commit)
        return labelled(
            widgets.VBox([question, field, widgets.HBox([button, said])]), f"kv-predict-{self.name}"
        )


class RecallPage(Shown):
    def __init__(self, questions):
        self.questions = questions

    def text(self):
        lines = []
        for number, recall in enumerate(self.questions, 1):
            lines.append(f"{number}. {recall.question}")
            lines += [f"   - {option.text}" for option in recall.options]
        return "\n".join(lines)

    def html(self):
        parts = []
        for number, recall in enumerate(self.questions, 1):
            answers = "".join(
                f"<li><details><summary>{html.escape(option.text)}</summary>"
                f"{'Right. ' if option.right else 'No. '}{html.escape(option.why)}</details></li>"
                for option in recall.options
            )
            parts.append(f"<p><b>{number}.</b> {html.escape(recall.question)}</p><ul>{answers}</ul>")
        return "".join(parts)

    def widget(self):
        import ipywidgets as widgets

        return labelled(
            widgets.VBox([self.one(number, q, widgets) for number, q in enumerate(self.questions, 1)]),
            "kv-recall",
        )

    def one(self, number, recall, widgets):
        texts = [option.text for option in recall.options]
        chosen = record.read()["recalled"].get(recall.name)
        field = widgets.RadioButtons(
            options=texts, value=chosen if chosen in texts else None, layout={"width": "max-content"}
        )
        said = widgets.HTML()

        def answer(text):
            option = recall.options[texts.index(text)]
            verdict = "<b>Right.</b>" if option.right else "<b>No.</b>"
            said.value = f"{verdict} {html.escape(option.why)}"

        def picked(change):
            if change["new"] is not None:
                record.remember("recalled", recall.name, change["new"])
                answer(change["new"])

        if field.value is not None:
            answer(field.value)
        field.observe(picked, names="value")
        question = widgets.HTML(f"<b>{number}.</b> {html.escape(recall.question)}")
        return widgets.VBox([question, field, said], layout={"margin": "0 0 12px 0"})


def labelled(widget, name):
    """Give a widget a CSS class by which a page, or a test, finds it."""
    widget.add_class(name.replace(".", "-"))
    return widget
