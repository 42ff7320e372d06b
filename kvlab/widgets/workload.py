"""A server of one's own: how many come, what they ask for, and what the scheduler may use."""

import html

import ipywidgets as widgets

from kvlab import memory
from kvlab.engine import Price, Simulation, arrivals, serve
from kvlab.exercises.questions import labelled
from kvlab.paging.reservation import lognormal
from kvlab.viz.memory import side_by_side
from kvlab.viz.serving import load_sheet
from kvlab.viz.sheet import heading, together
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many

RATES = (0.5, 1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 200, 400)  # requests a second
PROMPTS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
ANSWERS = (8, 16, 32, 64, 128, 256, 512)  # longer ones would keep a reader waiting
BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
BLOCKS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SPARE = (0, 1, 2, 4, 8)
PAGE = 16  # slots of a block


class ServingWorkload(Shown):
    """Sliders over a simulated server: a model on a device, each step as long as the roofline says.

    So many ``requests`` are served. The others are where the sliders begin: requests a second, mean tokens of
    a prompt and of an answer, the token budget, blocks of 16 in the pool, and spare blocks for each text.
    """

    def __init__(
        self,
        model="Llama-3.1-8B",
        device="NVIDIA H100 SXM",
        per_second=20,
        prompt=512,
        answer=128,
        budget=512,
        num_blocks=1024,
        spare_blocks=1,
        requests=60,
    ):
        self.price, self.requests = Price(model, device), requests
        self.asked = (per_second, prompt, answer, budget, num_blocks, spare_blocks)
        self.first = self.compute(*self.asked)

    def compute(self, per_second, prompt, answer, budget, num_blocks, spare_blocks):
        """-> the Simulation when all are served. Raises ValueError, in words, where one cannot be."""
        lengths = lognormal(prompt, answer, self.requests, seed=1)
        longest, slots = max(p + a - 1 for p, a in lengths), num_blocks * PAGE
        if longest > slots:
            raise ValueError(
                f"the longest of these {self.requests} texts comes to hold {longest:,} tokens, and the pool "
                f"has {slots:,} slots: take more blocks, or shorter prompts and answers"
            )
        simulation = Simulation(num_blocks, PAGE, budget, spare_blocks, self.price)
        serve(simulation, [(at, [0] * p, a) for at, p, a in arrivals(lengths, per_second, seed=1)])
        return simulation

    def about(self):
        spec, device = self.price.spec.name, self.price.device.name
        return f"{self.requests} requests to {spec} on {device}, steps by the roofline"

    def table(self, simulation):
        m = simulation.metrics()
        spreads = {
            "waiting to be let in": m.queueing,
            "time to first token": m.ttft,
            "time per further token": m.tpot,
            "from beginning to end": m.latency,
        }
        rows = [
            (name, *(f"{1000 * value:,.1f}" for value in (s.median, s.p90, s.longest)))
            for name, s in spreads.items()
            if s is not None
        ]
        return Table(["ms", "median", "9 in 10", "longest"], rows)

    def said(self, simulation):
        """The other figures, as two sentences."""
        m = simulation.metrics()
        preempted = sum(request.preempted for request in simulation.requests)
        held = memory.size(simulation.pool.num_blocks * memory.kv_bytes(self.price.spec, PAGE))
        return (
            f"{m.throughput:,.0f} tokens a second, {m.running:.1f} texts in a step. {m.budget_used:.1%} of "
            f"the budget and {m.pool_used:.0%} of a pool of {held} used; {many(preempted, 'preemption')}, "
            f"{m.given_up:,} stored tokens given up"
        )

    def text(self):
        return f"{self.about()}\n{self.table(self.first)!r}\n{self.said(self.first)}."

    def html(self):
        return f"<p>{html.escape(self.about())}</p>{self.below(self.first)}"

    def below(self, simulation):
        """Table and sentences, as HTML."""
        said = html.escape(self.said(simulation)).replace(". ", ".<br>", 1)
        return f"{self.table(simulation)._repr_html_()}<p>{said}.</p>"

    def sheet(self, simulation):
        return together([heading(self.about()), load_sheet(simulation.trace)], gap=0)

    def static_figure(self):
        """The first settings against the clock -> Picture."""
        return self.sheet(self.first).picture()

    def page(self, simulation, stale=""):
        """Drawing, table and sentences as HTML."""
        return side_by_side([self.sheet(simulation).svg()], self.below(simulation), stale=stale)

    def widget(self):
        names = (
            "requests / s",
            "prompt, mean",
            "answer, mean",
            "token budget",
            "blocks",
            "spare blocks",
        )
        keys = ("kv-rate", "kv-prompt", "kv-answer-tokens", "kv-budget", "kv-blocks", "kv-spare")
        ranges = (RATES, PROMPTS, ANSWERS, BUDGETS, BLOCKS, SPARE)
        sliders = [
            controls.slider({*numbers, value}, value, name, key)
            for numbers, value, name, key in zip(ranges, self.asked, names, keys, strict=True)
        ]
        for each in sliders:
            each.continuous_update = False
        busy = widgets.HTML(layout={"height": "22px"})

        def ask():
            busy.value = "computing …"
            try:
                return self.compute(*(each.value for each in sliders))
            finally:
                busy.value = ""

        shown = controls.answered(sliders, ask, self.page, self.first)
        box = widgets.VBox([controls.columns(sliders[:3], sliders[3:]), busy, shown])
        return labelled(box, "kv-serving-workload")
