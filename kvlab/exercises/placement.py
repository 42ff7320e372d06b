"""A short quiz before the course: which lessons may be skipped."""

import html
from dataclasses import dataclass

from kvlab.exercises.questions import Recall, labelled
from kvlab.viz.show import Shown

LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Placed:
    """A question; whoever answers it rightly may skip ``lessons``."""

    lessons: tuple
    recall: Recall


class Placement(Shown):
    """The quiz, a question for some lessons each. ``advise`` gives the same answer without a widget."""

    def __init__(self, questions):
        self.questions = questions

    def advise(self, answers):
        """What to skip, for answers such as ``"bca-b"``: a letter a question, ``-`` for "I don't know"."""
        if len(answers) != len(self.questions):
            raise ValueError(
                f"{len(answers)} answers to {len(self.questions)} questions: a letter each, or -"
            )
        return self._advice([self._right(i, letter) for i, letter in enumerate(answers.lower())])

    def _right(self, number, letter):
        options = self.questions[number].recall.options
        if letter == "-":
            return False
        if letter not in LETTERS[: len(options)]:
            last = LETTERS[len(options) - 1]
            raise ValueError(f"answer {number + 1} is {letter!r}; it is a letter from a to {last}, or -")
        return options[LETTERS.index(letter)].right

    def _advice(self, right):
        skip, read = [], []
        for placed, known in zip(self.questions, right, strict=True):
            (skip if known else read).extend(placed.lessons)
        if not read:
            return f"You know all of this: you may skip lessons {', '.join(skip)}."
        if not skip:
            return f"Begin with lesson {read[0]} and skip none: each builds on the one before."
        lessons = "lesson" if len(skip) == 1 else "lessons"
        return f"You may skip {lessons} {', '.join(skip)}. Begin with lesson {read[0]}."

    def text(self):
        lines = []
        for number, placed in enumerate(self.questions, 1):
            lines.append(f"{number}. {placed.recall.question}")
            options = zip(LETTERS, placed.recall.options, strict=False)
            lines += [f"   {letter}) {option.text}" for letter, option in options]
        return "\n".join(lines)

    def html(self):
        parts = []
        for number, placed in enumerate(self.questions, 1):
            options = "".join(f"<li>{html.escape(option.text)}</li>" for option in placed.recall.options)
            parts.append(f"<p><b>{number}.</b> {html.escape(placed.recall.question)}</p>")
            parts.append(f'<ol style="list-style-type: lower-alpha">{options}</ol>')
        return "".join(parts)

    def widget(self):
        import ipywidgets as widgets

        fields, rows = [], []
        for number, placed in enumerate(self.questions, 1):
            texts = [option.text for option in placed.recall.options]
            wide = {"width": "max-content"}
            fields.append(widgets.RadioButtons(options=[*texts, "I don't know"], value=None, layout=wide))
            question = widgets.HTML(f"<b>{number}.</b> {html.escape(placed.recall.question)}")
            rows.append(widgets.VBox([question, fields[-1]], layout={"margin": "0 0 12px 0"}))
        button, said = widgets.Button(description="Where do I start?"), widgets.HTML()

        def judge(_):
            answers = [
                next((option.right for option in placed.recall.options if option.text == field.value), False)
                for field, placed in zip(fields, self.questions, strict=True)
            ]
            said.value = html.escape(self._advice(answers))

        button.on_click(judge)
        return labelled(widgets.VBox([*rows, widgets.HBox([button, said])]), "kv-placement")
