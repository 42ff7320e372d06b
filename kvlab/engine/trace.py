"""What happened at each step of an engine: compact, serialisable, enough to draw and to replay."""

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Step:
    """One step. Sequences are named by their request's number, and "number.index" where it has several."""

    number: int
    ran: list = field(default_factory=list)  # [name, new tokens, "decode" or "prefill"]
    admitted: list = field(default_factory=list)
    preempted: list = field(default_factory=list)
    forked: list = field(default_factory=list)
    ended: list = field(default_factory=list)  # [name, why]
    waiting: list = field(default_factory=list)  # after the step
    free: int = 0  # blocks, after the step
    seconds: float = 0.0

    @property
    def tokens(self):
        return sum(n for _, n, _ in self.ran)


class Trace:
    """Steps in their order. ``text()`` and ``from_text`` store them as JSON."""

    def __init__(self, steps=()):
        self.steps = list(steps)

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, number):
        return self.steps[number]

    def text(self):
        return json.dumps([asdict(step) for step in self.steps], separators=(",", ":"))

    @classmethod
    def from_text(cls, text):
        return cls(Step(**step) for step in json.loads(text))
