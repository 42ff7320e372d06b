"""A short quiz before the course: which lessons may be skipped."""

import html
from dataclasses import dataclass

from kvlab.exercises.questions import Recall, labelled
from kvlab.viz.show import Shown


@dataclass(frozen=True)
class Placed:
    """A question; whoever answers it rightly may skip ``lessons``."""

    lessons: tuple
    recall: Recall


class Placement(Shown):
    """The quiz, one question for some lessons each. ``Placement(questions).advise("bca")`` needs no widget."""

    def __init__(self, questions):
        self.questions = questions

    def advise(self, answers):
        """What to skip, for answers such as ``"bcad"``: a letter a question, ``-`` for "I don't know"."""
        if len(answers) != len(self.questions):
            raise ValueError(f"{len(answers)} answers to {len(self.questions)} questions: a letter each, or -")
        right = []
        for number, (letter, placed) in enumerate(zip(answers.lower(), self.questions, strict=True), 1):
            options = placed.recall.options
            place = "abcdefgh".find(letter)
            if letter != "-" and not 0 <= place < len(options):
                raise ValueError(f"answer {number} is {letter!r}; a to {'abcdefgh'[len(options) - 1]}, or -")
            right.append(letter != "-" and options[place].right)
        return self._advice(right)

    def _advice(self, right):
        skip = [lesson for placed, ok in zip(self.questions, right, strict=True) if ok for lesson in placed.lessons]
        read = [
            lesson for placed, ok in zip(self.questions, right, strict=True) if not ok for lesson in placed.lessons
        ]
        if not read:
            return f"You know all of this. You may skip lessons {', '.join(skip)} and go on after them."
        if not skip:
            return f"Begin with lesson {read[0]} and skip none: each builds on the one before."
        return f"You may skip lessons {', '.join(skip)}. Begin with lesson {read[0]}."

    def text(self):
        lines = []
        for number, placed in enumerate(self.questions, 1):
            lines.append(f"{number}. {placed.recall.question}")
            lines += [f"   {'abcdefgh'[i]}) {option.text}" for i, option in enumerate(placed.recall.options)]
        return "\n".join(lines)

    def html(self):
        parts = []
        for number, placed in enumerate(self.questions, 1):
            options = "".join(f"<li>{html.escape(option.text)}</li>" for option in placed.recall.options)
            question = html.escape(placed.recall.question)
            parts.append(f'<p><b>{number}.</b> {question}</p><ol style="list-style-type: lower-alpha">{options}</ol>')
        return "".join(parts)

    def widget(self):
        import ipywidgets as widgets

        fields, rows = [], []
        for number, placed in enumerate(self.questions, 1):
            texts = [option.text for option in placed.recall.options]
            fields.append(
                widgets.RadioButtons(options=[*texts, "I don't know"], value=None, layout={"width": "max-content"})
            )
            question = widgets.HTML(f"<b>{number}.</b> {html.escape(placed.recall.question)}")
            rows.append(widgets.VBox([question, fields[-1]], layout={"margin": "0 0 12px 0"}))
        button, said = widgets.Button(description="Where do I start?"), widgets.HTML()

        def judge(_):
            right = []
            for field, placed in zip(fields, self.questions, strict=True):
                right.append(any(option.right for option in placed.recall.options if option.text == field.value))
            said.value = html.escape(self._advice(right))

        button.on_click(judge)
        return labelled(widgets.VBox([*rows, widgets.HBox([button, said])]), "kv-placement")
