"""KV heads over the ranks of tensor parallelism: where each lies, and what copies of them take."""

import html

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.viz.heads import heads_over_ranks
from kvlab.viz.memory import side_by_side
from kvlab.viz.sheet import heading, together
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many


class HeadsOverRanks(Shown):
    """Sliders for KV heads and ranks: which rank holds which head, and the bytes of one text.

    kv_heads and ranks are where the sliders begin, tokens is the length of the text.
    """

    def __init__(self, query_heads=32, kv_heads=8, ranks=4, layers=32, head_dim=128, tokens=4096):
        self.query_heads, self.layers, self.head_dim = query_heads, layers, head_dim
        self.kv_heads, self.ranks, self.tokens = kv_heads, ranks, tokens
        self.first = self.table(kv_heads, ranks)  # numbers that do not fit fail here

    def spec(self, kv_heads):
        sizes = {"layers": self.layers, "head_dim": self.head_dim, "query_heads": self.query_heads}
        return memory.ModelSpec.uniform(kv_heads=kv_heads, **sizes)

    def said(self, kv_heads, ranks):
        """How often each KV head is kept."""
        times = memory.replicated(self.spec(kv_heads), ranks)
        kept = f"each KV head is kept {times} times" if times > 1 else "no KV head is kept twice"
        return f"{many(ranks, 'rank')} for {many(kv_heads, 'KV head')}: {kept}"

    def rows(self, kv_heads, ranks):
        spec, lengths = self.spec(kv_heads), (1, self.tokens)
        costs = [memory.cost(spec, tokens, tp=ranks) for tokens in lengths]
        once = [memory.kv_bytes(spec, tokens) for tokens in lengths]
        amounts = {
            "on one rank": [cost.bytes_per_rank for cost in costs],
            "on all ranks together": [cost.bytes_total for cost in costs],
            "of these, copies": [cost.bytes_total - one for cost, one in zip(costs, once, strict=True)],
        }
        return [(name, token, text, memory.size(text)) for name, (token, text) in amounts.items()]

    def table(self, kv_heads, ranks):
        columns = ["", "bytes a token", f"bytes at {many(self.tokens, 'token')}", ""]
        model = f"{many(self.layers, 'layer')}, heads of {many(self.head_dim, 'number')}"
        caption = f"Keys and values of {model}, in {self.spec(kv_heads).dtype}"
        return Table(columns, self.rows(kv_heads, ranks), caption)

    def text(self):
        return f"{self.said(self.kv_heads, self.ranks)}.\n{self.first!r}"

    def html(self):
        return f"<p>{html.escape(self.said(self.kv_heads, self.ranks))}.</p>{self.first._repr_html_()}"

    def sheet(self, kv_heads, ranks):
        drawn = heads_over_ranks(self.query_heads, kv_heads, ranks)
        return together([heading(self.said(kv_heads, ranks)), drawn], gap=0)

    def static_figure(self):
        """The heads at the first settings -> Picture."""
        return self.sheet(self.kv_heads, self.ranks).picture()

    def page(self, kv_heads, ranks, stale=""):
        """The drawing and the table as HTML."""
        table = self.table(kv_heads, ranks)._repr_html_()
        return side_by_side([self.sheet(kv_heads, ranks).svg()], table, stale=stale)

    def widget(self):
        def slider(name, value, key):
            fits = [n for n in range(1, self.query_heads + 1) if self.query_heads % n == 0]
            return controls.over(fits, value, name, key)

        heads = slider("KV heads", self.kv_heads, "kv-kv-heads")
        ranks = slider("ranks", self.ranks, "kv-ranks")

        def ask():
            self.said(heads.value, ranks.value)
            return heads.value, ranks.value

        def page(asked, stale):
            return self.page(*asked, stale)

        shown = controls.answered([heads, ranks], ask, page, (self.kv_heads, self.ranks))
        return labelled(widgets.VBox([controls.columns([heads], [ranks]), shown]), "kv-heads-over-ranks")
