"""Step through what an engine did."""

import ipywidgets as widgets

from kvlab.exercises.questions import labelled
from kvlab.viz.memory import side_by_side, together
from kvlab.viz.serving import (
    Names,
    batches_sheet,
    events,
    filmstrip,
    happened,
    step_sheet,
    stops,
    timeline_sheet,
)
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many


class SchedulerTimeline(Shown):
    """A slider over the steps of an engine's trace, and buttons from one event to the next.

    An event is a step in which a text arrived, was admitted, preempted or forked, or ended. at: the step at
    which it begins. names: {name in the trace: str}. Raises ValueError for a step that the trace does not
    have.
    """

    def __init__(self, trace, at=0, names=None):
        self.trace, self.at, self.names = trace, at, names
        self.events, self.last = events(trace), len(trace) - 1
        self.tallest = step_sheet(trace, at).height  # a step that is none fails here

    def table(self):
        """The steps in which something happened."""
        columns = ["step", "tokens of decode", "of prefill", "texts waiting", "blocks held", "what happened"]
        rows = []
        for number in self.events:
            step = self.trace[number]
            what = [f"{kind}: {said}" for kind, said in happened(step, Names(self.names)).items() if said]
            numbers = [step.of("decode"), step.of("prefill"), step.waiting, step.held]
            rows.append([number, *numbers, "; ".join(what)])
        engine = f"{many(self.trace.num_blocks, 'block')} of {many(self.trace.block_size, 'slot')}"
        about = f"a budget of {many(self.trace.max_batch_tokens, 'token')} a step"
        caption = (
            f"{many(self.last + 1, 'step')} of an engine with {engine} and {about}: where something happened"
        )
        return Table(columns, rows, caption)

    def text(self):
        return repr(self.table())

    def html(self):
        return self.table()._repr_html_()

    def static_figure(self):
        """The timeline, the batches, and a few steps in detail -> Picture."""
        return filmstrip(self.trace, stops(self.trace) or [self.at], self.names)

    def page(self, number):
        """The drawing at a step, as HTML."""
        overview = [timeline_sheet(self.trace, number, names=self.names), batches_sheet(self.trace, number)]
        step = step_sheet(self.trace, number, self.names)
        self.tallest = step.height = max(self.tallest, step.height)  # what is below does not jump
        return side_by_side([together([*overview, step]).svg()])

    def widget(self):
        step = widgets.IntSlider(
            value=self.at, min=0, max=self.last, description="step", **controls.look(controls.WIDE)
        )
        ways = {
            "kv-previous": ("←", "one step back", lambda at: max(at - 1, 0)),
            "kv-next": ("→", "one step on", lambda at: min(at + 1, self.last)),
            "kv-previous-event": (
                "← event",
                "to the last step before in which something happened",
                self._before,
            ),
            "kv-next-event": ("event →", "to the next step in which something happens", self._after),
        }
        stepper = controls.stepper(labelled(step, "kv-step"), ways, self.page)
        return labelled(stepper, "kv-scheduler-timeline")

    def _before(self, at):
        return max((number for number in self.events if number < at), default=at)

    def _after(self, at):
        return min((number for number in self.events if number > at), default=at)
