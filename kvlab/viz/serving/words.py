"""What the steps of a trace say in words, and who stands where in them."""

from dataclasses import dataclass, field

from kvlab.viz.blocks.words import all_of, many


class Names:
    """What texts are called: names of the reader's own, {name in the trace: str}, or their numbers."""

    def __init__(self, own=None):
        self.own = own or {}

    def one(self, name):
        return self.own.get(name, f"request {name}")

    def short(self, name):
        return self.own.get(name, str(name))

    def all(self, names):
        """'requests 0, 1 and 3.1'."""
        names = list(names)
        if len(names) < 2 or any(name in self.own for name in names):
            return all_of(map(self.one, names)) if names else ""
        return f"requests {all_of(names)}"


@dataclass
class Life:
    """What happened to one text. ``cells``: {step: (what, new tokens)}, as ``Trace.lives`` gives it."""

    name: object
    cells: dict
    begun: int  # the step before which it arrived, or in which it was forked
    asked: tuple | None = None  # tokens of the prompt and new ones; None for a fork
    preempted: list = field(default_factory=list)  # (step, stored tokens given up)
    ended: tuple | None = None  # (step, why)

    @property
    def cancelled(self):
        return self.ended is not None and self.ended[1] == "cancelled"

    def runs(self, first, last):
        """(what, first step, last step, tokens) of equal cells beside each other; chunks stay apart."""
        found = []
        for step, (what, tokens) in sorted(self.cells.items()):
            if not first <= step <= last:
                continue
            if found and found[-1][0] == what != "prefill":
                found[-1] = (what, found[-1][1], step, found[-1][3] + tokens)
            else:
                found.append((what, step, step, tokens))
        return found


def lives_of(trace):
    """All texts, in the order in which their requests came -> [Life]."""
    cells, lives, places = trace.lives(), {}, {}
    for step in trace.steps:
        for name, prompt, new, _ in step.submitted:
            lives[name] = Life(name, cells.get(name, {}), step.number, (prompt, new))
        for name in step.forked:
            lives[name] = Life(name, cells.get(name, {}), step.number)
        for name, tokens in step.preempted:
            lives[name].preempted.append((step.number, tokens))
        for name, why in step.ended:
            lives[name].ended = (step.number, why)
    for name in lives:
        places.setdefault(root(name), len(places))
    return sorted(lives.values(), key=lambda life: places[root(life.name)])


def capital(words):
    """Only the first letter: a reader's own name may have others."""
    return words[:1].upper() + words[1:]


def root(name):
    """The number of a text's request, as a str."""
    return str(name).partition(".")[0]


def queue(trace, number):
    """Who waits after a step, first come first -> list of names."""
    waiting = []
    for step in trace.steps[: number + 1]:
        back = [name for name, _ in reversed(step.preempted)]
        gone = {*step.admitted, *(name for name, why in step.ended if why == "cancelled")}
        waiting += [name for name, *_ in step.submitted]
        waiting = [name for name in [*back, *waiting] if name not in gone]
    return waiting


EVENTS = ("preempted", "forked", "ended", "admitted", "submitted")


def events(trace):
    """The steps in which a text arrived, was admitted, preempted or forked, or ended -> numbers, rising."""
    return [step.number for step in trace.steps if any(getattr(step, kind) for kind in EVENTS)]


def stops(trace):
    """The first step with each kind of event -> numbers, rising."""
    firsts = (next((step.number for step in trace.steps if getattr(step, kind)), None) for kind in EVENTS)
    return sorted({number for number in firsts if number is not None})


def happened(step, names):
    """What happened before and in a step -> {what: words}, "" where nothing did."""
    ended = {}
    for name, why in step.ended:
        ended.setdefault(why, []).append(name)
    preempted = ", ".join(f"{names.one(name)} ({many(n, 'token')} given up)" for name, n in step.preempted)
    if preempted:
        preempted += f": {many(step.short, 'block')} {'was' if step.short == 1 else 'were'} missing"
    loaded = {name: f", {tokens:,} loaded" for name, tokens in step.loaded}
    found = ", ".join(
        f"{names.one(name)} ({have:,} of {of:,} found{loaded.get(name, '')})" for name, have, of in step.found
    )
    return {
        "arrived": ", ".join(
            f"{names.one(name)} ({many(prompt, 'token')}{f', {n} texts' if n > 1 else ''})"
            for name, prompt, _, n in step.submitted
        ),
        "admitted": found or names.all(step.admitted),
        "preempted": preempted,
        "forked": names.all(step.forked),
        "ended": ", ".join(f"{names.all(group)} ({why})" for why, group in ended.items()),
    }


def computed(trace, number, names):
    """What a step computed, and who stood by -> {what: words}, "" where there is nothing to say."""
    step, lives = trace[number], trace.lives()
    paused = [name for name, cells in lives.items() if cells.get(number, ("",))[0] == "paused"]
    waiting = queue(trace, number)
    said = names.all(waiting)
    if waiting and step.reason:
        first = f". {capital(names.one(waiting[0]))} is" if len(waiting) > 1 else ","
        said += f"{first} not admitted: {step.reason}"
    chunks = (f"{names.one(name)} ({many(n, 'token')})" for name, n, what in step.ran if what == "prefill")
    held = f"{step.held:,} of {trace.num_blocks:,} held in it"
    evicted = f"; {step.evicted:,} evicted" if step.evicted else ""
    return {
        "decode": names.all(name for name, _, what in step.ran if what == "decode"),
        "prefill": ", ".join(chunks),
        "paused": names.all(paused),
        "blocks": f"{held}; {step.taken:,} taken, {step.freed:,} freed{evicted}",
        "waiting": said,
    }
