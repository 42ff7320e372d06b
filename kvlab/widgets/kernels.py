"""How the programs of the attention kernel fill a GPU, and what that makes of the time that reading takes."""

import html
from dataclasses import dataclass

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.kernels import splits
from kvlab.memory.errors import whole
from kvlab.memory.roofline import step_on
from kvlab.viz.kernels import occupancy_sheet
from kvlab.viz.kernels.looks import percent
from kvlab.viz.memory import duration, side_by_side
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.words import many

# NVIDIA's papers on the A100 and the H100; for the B200 hmc-tech.com/gpus/nvidia-a100-sxm-vs-nvidia-b200
MULTIPROCESSORS = {"NVIDIA A100 80GB SXM": 108, "NVIDIA H100 SXM": 132, "NVIDIA B200 SXM": 148}
HEAD_DIM, TILE = 128, 64  # numbers of a key, in 16 bits; tokens of a tile of such keys in kvlab's kernel
KV_HEADS, GROUPS = (1, 2, 4, 8, 32), (1, 2, 4, 8, 16)
SEQUENCES, CONTEXTS = [2**power for power in range(9)], [2**power for power in range(7, 18)]
NOTE = (
    "A simple model. Programs are alike, a multiprocessor has one at a time, and draws its share of the "
    f"bandwidth and no more. Not counted: caches, and merging the parts. One layer, heads of {HEAD_DIM} "
    "numbers in bf16."
)


@dataclass(frozen=True)
class Launch:
    """Programs of the kernel on a device, and the bytes of keys and values that they read together."""

    programs: int
    parts: int  # of each context
    share: int  # tokens of a part, at most
    nbytes: int
    device: str

    @property
    def multiprocessors(self):
        return MULTIPROCESSORS[self.device]

    @property
    def busy(self):
        """Share of the multiprocessors that have work, over all turns."""
        return splits.occupancy(self.programs, self.multiprocessors)

    @property
    def turns(self):
        return -(-self.programs // self.multiprocessors)

    @property
    def full_s(self):
        """Seconds to read the bytes with all of the bandwidth."""
        return step_on(self.device, 0, self.nbytes).read_s

    @property
    def modelled_s(self):
        """The same with the bandwidth that the busy ones draw."""
        return self.full_s / self.busy


def launch(sequences, kv_heads, group, context, parts, device, packed=True):
    """-> Launch. parts: None or 0 for as many as the kernel takes. packed: has a program all query heads of a
    KV head, or one of them?"""
    heads = kv_heads if packed else kv_heads * group
    programs = sequences * heads
    if not parts:
        parts = splits.choose(programs, context, TILE, MULTIPROCESSORS[device])
    share = splits.share(context, parts, TILE)
    parts = -(-context // share)
    layer = memory.ModelSpec.uniform(layers=1, kv_heads=heads, head_dim=HEAD_DIM)
    return Launch(programs * parts, parts, share, sequences * memory.kv_bytes(layer, context), device)


class OccupancyExplorer(Shown):
    """Fields for a decode step's attention: which multiprocessors have work, and what becomes of its time.

    group: query heads of each KV head. context: tokens of each sequence. parts: of a context, None for as
    many as kvlab's kernel takes. device: one of MULTIPROCESSORS. Raises ValueError for one that is not.
    """

    def __init__(self, sequences=1, kv_heads=8, group=4, context=8192, parts=None, device="NVIDIA H100 SXM"):
        device = memory.device(device).name
        if device not in MULTIPROCESSORS:
            raise ValueError(f"{device} is not among the devices here: {', '.join(MULTIPROCESSORS)}")
        numbers = {"sequences": sequences, "kv_heads": kv_heads, "group": group, "context": context}
        for name, value in numbers.items():
            whole(value, name, least=1)
        if parts is not None and whole(parts, "parts", least=1) > splits.MOST:
            raise ValueError(f"parts is {parts}; the kernel takes {splits.MOST} at most")
        self.asked, self.tallest = (*numbers.values(), parts or 0, device), 0  # a slider has no None

    def about(self, sequences, kv_heads, group, context, parts, device):
        cut = many(launch(sequences, kv_heads, group, context, parts, device).parts, "part")
        texts = f"{many(sequences, 'sequence')} of {many(context, 'token')}"
        return f"{texts}, {many(kv_heads, 'KV head')}, {cut} each"

    def said(self, *asked):
        """-> sentences."""
        now, kernel = launch(*asked), launch(*asked[:4], None, asked[-1])
        chosen = f"The kernel takes {many(kernel.parts, 'part')}"
        chosen += (
            f" of up to {kernel.share:,} tokens." if kernel.parts > 1 else ": it does not cut the contexts."
        )
        return [
            f"{many(now.programs, 'program')} in {many(now.turns, 'turn')} on {now.multiprocessors} "
            f"multiprocessors: {percent(now.busy)} busy.",
            f"{memory.size(now.nbytes, 'decimal')} are read in {duration(now.modelled_s)} by this model; "
            f"with all of the bandwidth in {duration(now.full_s)}.",
            chosen,
        ]

    def table(self, *asked):
        """The ways to start it beside each other."""
        sequences, kv_heads, group, context, parts, device = asked
        setting = sequences, kv_heads, group, context
        ways = {
            "a program for each query head": launch(*setting, 1, device, packed=False),
            "a program for each KV head": launch(*setting, 1, device),
        }
        if parts:
            ways["... and part, as chosen here"] = launch(*asked)
        ways["... and part, as the kernel does"] = launch(*setting, None, device)
        rows = []
        for words, each in ways.items():
            read, taken = memory.size(each.nbytes, "decimal"), duration(each.modelled_s)
            rows.append([words, each.parts, each.programs, each.turns, percent(each.busy), read, taken])
        columns = ["", "parts", "programs", "turns", "busy", "KV read", "time, by this model"]
        heads = f"{many(kv_heads, 'KV head')}, {many(group, 'query head')} each"
        return Table(columns, rows, f"{many(sequences, 'sequence')}, {heads}; {device}")

    def text(self):
        return "\n".join(
            [self.about(*self.asked), *self.said(*self.asked), repr(self.table(*self.asked)), NOTE]
        )

    def html(self):
        about, note = (f"<p>{html.escape(each)}</p>" for each in (self.about(*self.asked), NOTE))
        return f"{about}{self.below(*self.asked)}{note}"

    def below(self, *asked):
        """Sentences and the table, as HTML."""
        first, *others = map(html.escape, self.said(*asked))
        said = f'<b class="kv-occupancy" style="font-size: 16px">{first}</b><br>{" ".join(others)}'
        return f"<p>{said}</p>{self.table(*asked)._repr_html_()}"

    def sheet(self, *asked):
        now = launch(*asked)
        return occupancy_sheet([(self.about(*asked), now.programs)], now.multiprocessors)

    def static_figure(self):
        """The multiprocessors at the first settings -> Picture."""
        return self.sheet(*self.asked).picture()

    def page(self, *asked, stale=""):
        """Drawing, sentences and table as HTML."""
        sheet = self.sheet(*asked)
        self.tallest = sheet.height = max(self.tallest, sheet.height)  # what is below does not jump
        return side_by_side([sheet.svg()], self.below(*asked), notes=[NOTE], stale=stale)

    def widget(self):
        sequences, kv_heads, group, context, parts, device = self.asked
        cuts = [("automatic", 0), *((str(number), number) for number in range(1, splits.MOST + 1))]
        devices = [(f"{name}: {count}", name) for name, count in MULTIPROCESSORS.items()]
        fields = [
            controls.slider({*SEQUENCES, sequences}, sequences, "sequences", "kv-sequences"),
            controls.slider({*KV_HEADS, kv_heads}, kv_heads, "KV heads", "kv-kv-heads"),
            controls.slider({*GROUPS, group}, group, "queries each", "kv-group"),
            controls.slider({*CONTEXTS, context}, context, "context", "kv-context"),
            controls.over(cuts, parts, "parts", "kv-parts"),
            controls.choice(devices, device, "GPU", "kv-device"),
        ]

        def ask():
            asked = tuple(field.value for field in fields)
            launch(*asked)
            return asked

        def page(asked, stale):
            return self.page(*asked, stale=stale)

        shown = controls.answered(fields, ask, page, self.asked)
        box = widgets.VBox([controls.columns(fields[:3], fields[3:]), shown])
        return labelled(box, "kv-occupancy-explorer")
