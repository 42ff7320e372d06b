"""Step through what happened to the blocks of a pool."""

import ipywidgets as widgets

from kvlab.exercises.questions import labelled
from kvlab.viz.blocks import blocks_sheet, filmstrip, stops
from kvlab.viz.memory import side_by_side
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many


class BlockStepper(Shown):
    """A slider over the events of a pool's log, and buttons from one of its marks to the next.

    at: after how many events it begins. texts: the tokens' texts of some tables, {name: list of str}.
    """

    def __init__(self, log, at=None, texts=None):
        self.log, self.texts, self.count = log, texts or {}, len(log.events)
        self.at = 0 if at is None else at
        self.stops = stops(log)
        log.at(self.at)  # a number that is none fails here, and so do too few texts
        names = {event[1] for event in log.events if event[0] == "born"}
        if unknown := self.texts.keys() - names:
            raise ValueError(f"no table is called {', '.join(sorted(unknown))}: there are {sorted(names)}")
        for kind, name, *numbers in log.events:
            if kind == "length" and len(self.texts.get(name, range(numbers[0]))) < numbers[0]:
                given = many(len(self.texts[name]), "text")
                raise ValueError(f"{name} comes to hold {many(numbers[0], 'token')}, and has {given}")

    def table(self):
        """Blocks and tokens at the last event under each mark."""
        moments = [(number, self.log.at(number)) for number in self.stops]
        columns = ["", "event", "free blocks", "held", "shared", "tokens stored", "held slots empty"]
        rows = []
        for number, moment in moments:
            owners = moment.counts()
            shared = sum(count > 1 for count in owners.values())
            blocks = [moment.num_blocks - len(owners), len(owners), shared]
            rows.append([moment.mark, number, *blocks, sum(moment.filled().values()), moment.waste()])
        about = f"{many(self.log.num_blocks, 'block')} of {many(self.log.block_size, 'slot')}"
        return Table(columns, rows, f"{many(self.count, 'event')} in a pool of {about}")

    def text(self):
        return repr(self.table())

    def html(self):
        return self.table()._repr_html_()

    def static_figure(self):
        """The last moment under each mark; without marks, some evenly spread -> Picture."""
        return filmstrip(self.log, self.stops, texts=self.texts)

    def page(self, number):
        """The drawing after so many events, as HTML."""
        return side_by_side([blocks_sheet(self.log.at(number), self.texts).svg()])

    def widget(self):
        event = widgets.IntSlider(
            value=self.at, min=0, max=self.count, description="event", **controls.look(controls.WIDE)
        )
        ways = {
            "kv-previous": ("←", "one event back", lambda at: max(at - 1, 0)),
            "kv-next": ("→", "one event on", lambda at: min(at + 1, self.count)),
        }
        if self.log.marks():
            ways |= {
                "kv-previous-mark": ("← mark", "to the end of the part before", self._before),
                "kv-next-mark": ("mark →", "to the end of this part, or of the next", self._after),
            }
        stepper = controls.stepper(labelled(event, "kv-event"), ways, self.page)
        return labelled(stepper, "kv-block-stepper")

    def _before(self, at):
        return max((stop for stop in self.stops if stop < at), default=0)

    def _after(self, at):
        return min((stop for stop in self.stops if stop > at), default=self.count)
