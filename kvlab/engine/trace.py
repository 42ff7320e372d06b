"""What happened at each step of an engine: compact, serialisable, enough to draw and to replay."""

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Step:
    """One step, and what was asked of the engine since the one before.

    A text's name is its request's number, or "number.index" where the request has several texts.
    """

    number: int
    submitted: list = field(default_factory=list)  # [name, tokens of the prompt, max_new_tokens, n]
    ran: list = field(default_factory=list)  # [name, new tokens, "decode" or "prefill"]; none if it failed
    admitted: list = field(default_factory=list)
    found: list = field(default_factory=list)  # [name, tokens that the prefix cache had, tokens of the text]
    loaded: list = field(default_factory=list)  # [name, tokens that came from the host's memory]
    preempted: list = field(default_factory=list)  # [name, stored tokens given up]
    short: int = 0  # blocks that were missing, which is why somebody was preempted
    forked: list = field(default_factory=list)
    ended: list = field(default_factory=list)  # [name, "length", "stop" or "cancelled"]
    waiting: int = 0  # how many wait, after the step
    because: str = ""  # why the next of them was not admitted: one of REASONS
    evicted: int = 0  # blocks of the prefix cache
    taken: int = 0  # blocks
    freed: int = 0  # evicted ones among them
    held: int = 0  # while it was computed
    began: float = 0.0  # seconds since the engine was made
    seconds: float = 0.0

    @property
    def reason(self):
        """``because``, in words."""
        return REASONS.get(self.because, "")

    @property
    def tokens(self):
        return sum(n for _, n, _ in self.ran)

    def of(self, kind):
        """New tokens of those that decode, or prefill."""
        return sum(n for _, n, what in self.ran if what == kind)


REASONS = {
    "blocks": "too few blocks are free for its tokens, and a few to spare",
    "loading": "a part of its text is on its way from the host's memory",
    "budget": "the step has no tokens left",
    "texts": "as many texts run as a step can serve",
    "preemption": "somebody has just been preempted",
}


class Trace:
    """Steps in their order, and the sizes of their engine. ``text`` and ``from_text`` store it as JSON."""

    def __init__(self, num_blocks, block_size, max_batch_tokens, steps=()):
        self.num_blocks, self.block_size, self.max_batch_tokens = num_blocks, block_size, max_batch_tokens
        self.steps = list(steps)

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, number):
        return self.steps[number]

    def __eq__(self, other):
        return isinstance(other, Trace) and vars(self) == vars(other)

    def text(self):
        fields = {"steps": [asdict(step) for step in self.steps]}
        return json.dumps(vars(self) | fields, separators=(",", ":"))

    @classmethod
    def from_text(cls, text):
        """Raises ValueError for what ``text`` did not write."""
        try:
            fields = json.loads(text)
            trace = cls(**fields | {"steps": [Step(**step) for step in fields["steps"]]})
            trace._check()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"this is not the text of a trace ({error}): store trace.text()") from error
        return trace

    def lives(self):
        """What each text did at each step -> {name: {step number: (what, new tokens)}}.

        what: "decode", "prefill", "waiting", or "paused", where it runs and the budget did not reach it (or
        the step failed).
        """
        lives, waiting, running = {}, [], []
        for step in self.steps:
            waiting += [name for name, *_ in step.submitted]
            gone = [name for name, why in step.ended if why == "cancelled"]
            preempted = [name for name, _ in step.preempted]
            running = [name for name in [*running, *step.admitted] if name not in [*gone, *preempted]]
            waiting = [name for name in [*preempted, *waiting] if name not in [*gone, *step.admitted]]
            ran = {name: (what, n) for name, n, what in step.ran}
            for name in running:
                lives.setdefault(name, {})[step.number] = ran.get(name, ("paused", 0))
            for name in waiting:
                lives.setdefault(name, {})[step.number] = ("waiting", 0)
            ended = [name for name, _ in step.ended]
            running = [name for name in [*running, *step.forked] if name not in ended]
        return lives

    def _check(self):
        """Is every field of the kind that an engine writes? ValueError names the first that is not."""
        for number, step in enumerate(self.steps):
            for name, blank in vars(Step(number)).items():
                value, kind = getattr(step, name), (int, float) if isinstance(blank, float) else type(blank)
                if not isinstance(value, kind) or (name == "number" and value != number):
                    raise ValueError(f"{name} of step {number} is {value!r}")
        for name, size in vars(self).items():
            if name != "steps" and (type(size) is not int or size < 1):
                raise ValueError(f"{name} is {size!r}")
