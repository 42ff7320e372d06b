"""How what a text does in a step looks, and where steps lie: in the same columns on every sheet."""

from dataclasses import dataclass

from kvlab.viz.memory.looks import Look
from kvlab.viz.sheet import Text, overlap
from kvlab.viz.show import BLUE, GREY, INK, ORANGE, PALE, SKY, WHITE

LOOKS = {
    "prefill": Look(ORANGE, "/", INK),
    "decode": Look(BLUE),
    "paused": Look(PALE, ".", GREY),
    "waiting": Look(WHITE, "/", "#BDBDBD"),
    "held": Look(SKY),
}
WIDTH, MARGIN, LEFT, RIGHT = 780, 10, 108, 16  # right of the last column there is room for a mark
SIZE, SMALL = 12, 10.5
AXIS = 22  # the height of the numbers above the columns
WIDEST = 34


@dataclass(frozen=True)
class Columns:
    """One for each step from ``first`` to ``last``. at: the steps that are marked."""

    first: int
    last: int
    at: tuple
    cell: float

    @classmethod
    def of(cls, trace, first=0, last=None, at=None):
        """at: None, a step or several. Raises ValueError for steps that the trace does not have."""
        if not len(trace):
            raise ValueError("the trace has no step to draw: call engine.step() or engine.run() first")
        last = len(trace) - 1 if last is None else last
        if not 0 <= first <= last < len(trace):
            raise ValueError(f"steps {first} to {last}: the trace has steps 0 to {len(trace) - 1}")
        at = () if at is None else (at,) if hasattr(at, "__index__") else tuple(at)
        for number in at:
            if not first <= number <= last:
                raise ValueError(f"there is no step {number} here: there are steps {first} to {last}")
        return cls(first, last, at, min(WIDEST, (WIDTH - LEFT - RIGHT) / (last - first + 1)))

    @property
    def steps(self):
        return range(self.first, self.last + 1)

    @property
    def right(self):
        return self.x(self.last + 1)

    def x(self, step):
        """The left edge of a step's column."""
        return LEFT + (step - self.first) * self.cell

    def edges(self, steps, top, bottom):
        """Lines between these columns, where they are wide enough to be told apart -> [line]."""
        inner = steps[1:] if self.cell >= 5 else ()
        return [[(self.x(step), top), (self.x(step), bottom)] for step in inner]

    def axis(self, sheet, bottom):
        """The steps' numbers in the sheet's first AXIS pixels, and lines below some of them."""
        sheet.text(LEFT - 18, 14, "step", size=SMALL, anchor="end", fill=GREY)
        every = next(n for n in self._strides() if n * self.cell >= 8 * len(f"{self.last}") + 8)
        taken = []
        for step in [*self.at, *(step for step in self.steps if step % every == 0)]:
            look = {"fill": BLUE, "bold": True} if step in self.at else {"fill": GREY}
            middle = self.x(step) + self.cell / 2
            text = Text(middle, 14, str(step), size=SMALL, anchor="middle", **look)
            if every > 1 and step not in self.at:
                sheet.line(middle, 18, middle, bottom)
            left, top, right, low = text.box
            box = left - 3, top, right + 3, low
            if not any(overlap(box, other) for other in taken):
                taken.append(box)
                sheet.things.append(text)

    def mark(self, sheet, bottom):
        """A frame around each marked column."""
        for step in self.at:
            left, right = self.x(step) - 1, self.x(step) + max(self.cell, 3) + 1
            corners = [(left, 18), (right, 18), (right, bottom), (left, bottom), (left, 18), (right, 18)]
            sheet.strokes([corners], INK, 1.8)

    @staticmethod
    def _strides():
        power = 1
        while True:
            yield from (power, 2 * power, 5 * power)
            power *= 10
