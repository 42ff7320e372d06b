"""Each lesson's claim is an assertion in it: break what the claim is about, and the lesson fails there.

(That the unbroken lesson passes is nbval's part.)
"""

import os
import runpy
import tempfile
import traceback
from pathlib import Path

import pytest

from kvlab.commands.normalise import joined
from kvlab.paths import ROOT
from tests.notebooks.apart import apart
from tests.notebooks.make import COMMITTED, load

ATTENTION = "import kvlab.model.attention as attention\n"
LAYERS = "import kvlab.memory.layers as layers\n"
READ_ALIKE = "import kvlab.ledger as ledger\n_sound = ledger.read\nledger.read = lambda nbytes: _sound(1000)"
SCHEDULER = "import kvlab.engine.scheduler as scheduler\n"
LAUNCH = "import kvlab.kernels.triton_launch as launch\n"
REFERENCE = "import kvlab.kernels.torch_reference as reference\n"
NO_MASK = ATTENTION + "attention.visible = lambda q, k, window=None: (q[:, None] >= k) | True"
BREAK = {
    "01_attention_without_weights": {
        "weights that follow the scores": "import torch\n"
        "torch.Tensor.softmax = lambda self, dim: torch.full_like(self, 1 / self.shape[dim])",
        "kvlab's attention is the loops'": ATTENTION + "_sound = attention.attention_scores\n"
        "attention.attention_scores = lambda q, k, scale: _sound(q, k, 2 * scale)",
    },
    "02_queries_keys_values": {
        "training": "import torch\ntorch.optim.Adam.step = lambda self: None",
        "kvlab's attention is the loop": ATTENTION + "_sound = attention.attention_scores\n"
        "attention.attention_scores = lambda q, k, scale: _sound(k, q, scale)",
    },
    "03_a_decoder": {
        "the mask": NO_MASK,
        "positions": "import kvlab.model.decoder as d\nd.rotate = lambda x, cos, sin: x",
        "the norm": "import kvlab.model.decoder as d\nd.RMSNorm.forward = lambda self, x: x * self.weight",
    },
    "04_the_kv_cache": {
        "the mask": NO_MASK,
        "positions after a prefix": "import torch, kvlab.caches.base as b\n"
        "b.Cache.positions = lambda self, n: torch.arange(n)",
        "the ledger": "import kvlab.ledger as ledger\nledger.matmul = lambda rows, inner, columns: None",
    },
    "05_what_it_costs": {
        "bytes predicted": LAYERS + "_sound = layers.Attention.vector_bytes\n"
        "layers.Attention.vector_bytes = lambda self, form, ranks=1: 2 * _sound(self, form, ranks)",
        "windows forget": LAYERS + "layers.Attention.held = lambda self, tokens: tokens",
        "reading adds up": READ_ALIKE,
        "a latent is kept once": LAYERS + "_sound = layers.Latent.vector_bytes\n"
        "layers.Latent.vector_bytes = lambda self, form, ranks=1: 2 * _sound(self, form, ranks)",
        "no head is split": LAYERS + "layers.heads_on_rank = lambda heads, ranks: heads // ranks",
    },
    "06_reading_is_the_bottleneck": {
        "a step reads all tokens": READ_ALIKE,
        "weights are read": "import kvlab.memory.roofline as roofline\n"
        "roofline.weight_bytes = lambda *arguments: 1",
        "recomputing costs": "import kvlab.memory as memory\n"
        "memory.prefill = lambda *given, **more: memory.decode(*given, **more)",
        "a batch touches more experts": "import kvlab.memory as memory\nmemory.touched = lambda *given: 1",
        "caches outgrow the weights": "import kvlab.memory as memory\n"
        "memory.outgrows = lambda *given, **more: 7",
        "shared heads raise the intensity": "import kvlab.memory as memory\n"
        "memory.attention_intensity = lambda *given: 1.0",
    },
    "07_sharing_heads": {
        "neighbours share": ATTENTION + "_sound = attention.attention_scores\n"
        "def dealt(q, k, scale):\n"
        "    groups = q.unflatten(-2, (-1, k.shape[-2])).transpose(-3, -2).flatten(-3, -2)\n"
        "    return _sound(groups, k, scale)\n"
        "attention.attention_scores = dealt",
        "repeating copies": "import kvlab.ledger as ledger\nledger.copied = lambda nbytes: None",
        "pooling takes the mean": "import kvlab.training.compare as compare\n"
        "compare.pool_heads = lambda model, heads: model",
    },
    "08_latent_attention": {
        "trained models are compressible": "import kvlab.training.train as train\n"
        "import kvlab\n"
        "_weights = kvlab.load('tiny-mha')[0].state_dict()\n"
        "train.initialise = lambda model, seed: model.load_state_dict(_weights)",
        "rotations are in the way": "import kvlab.model.decoder, kvlab.model.rope as rope\n"
        "rope.rotate = lambda x, cos, sin: x",
        "naive is absorbed": "import kvlab.model.latent as latent\n_sound = latent.per_head\n"
        "latent.per_head = lambda x, weights: 1.001 * _sound(x, weights)",
        "expanding pays in prefill": "import kvlab.memory.layers as layers\n"
        "layers.Latent.row_flops = lambda self, heads, prefill=False: heads",
    },
    "10_paged_blocks": {
        "the table gives the order": REFERENCE + "_sound = reference._slots\n"
        "reference._slots = lambda tables, *more: _sound(tables.sort(dim=1).values, *more)",
        "blocks are taken on demand": "import kvlab.paging.table as table\n"
        "_sound = table.BlockTable.needed\n"
        "table.BlockTable.needed = lambda self, n: _sound(self, n) + (n == 3)",
        "pages hold more": "import kvlab.paging.reservation as reservation\n"
        "reservation.paged = lambda *given, **more: reservation.contiguous(*given[:3], 'maximum')",
    },
    "11_sharing_blocks": {
        "copy on write": "import kvlab.caches.paged as paged\npaged.Pages.copy = lambda self, copies: None",
        "forks are released": "import kvlab.caches.paged as paged\n"
        "paged.PagedCache.release = lambda self: None",
        "a guess is checked": "import kvlab.generation.sampling as sampling\n"
        "sampling.Sampler.pick_or_take = lambda self, logits, proposal: proposal",
    },
    "12_continuous_batching": {
        "seats are filled at once": SCHEDULER + "_sound = scheduler.Scheduler._admit\n"
        "scheduler.Scheduler._admit = lambda self, plan: None if self.running else _sound(self, plan)",
        "each text has its own table": REFERENCE + "_sound = reference._slots\n"
        "reference._slots = lambda tables, *more: _sound(tables.flip(0), *more)",
        "resumed with what it had written": SCHEDULER + "_sound = scheduler.Scheduler.plan\n"
        "def plan(self):\n    found = _sound(self)\n"
        "    for sequence, stored in found.preempted:\n        del sequence.tokens[stored:]\n"
        "    return found\nscheduler.Scheduler.plan = plan",
        "the budget is a knob": "import kvlab.engine.simulation as simulation\n"
        "simulation.Price.__call__ = lambda self, steps: 0.005",
    },
    "13_prefix_reuse": {
        "a suffix changes nothing before it": ATTENTION + "_sound = attention.visible\n"
        "attention.visible = lambda *given: _sound(*given) | True",
        "what is computed is found": "import kvlab.paging.prefix_table as prefix_table\n"
        "prefix_table.PrefixTable.store = lambda self, tokens, priority=0: None",
        "a block is known by what stands before it": "import kvlab.paging.hashes as hashes\n"
        "def _found(self, end, run):\n"
        "    known, step = {each.key[1]: each for each in self._stored.values()}, self._step\n"
        "    pieces = [run[at : at + step] for at in range(0, len(run), step)]\n"
        "    return [known[piece] for piece in pieces if piece in known]\n"
        "hashes.BlockHashes._found = _found",
        "adapters are kept apart": "import kvlab.engine.request as request\nrequest.Request.namespace = None",
    },
    "14_eviction": {
        "names and tree let go of the same": "import kvlab.paging.hashes as hashes\n"
        "_sound = hashes.BlockHashes.evict\n"
        "def evict(self, n):\n"
        "    self._idle = hashes.OrderedDict(reversed(self._idle.items()))\n"
        "    return _sound(self, n)\n"
        "hashes.BlockHashes.evict = evict",
        "a window forgets": "import dataclasses, kvlab.model.config as config\n"
        "_sound = config.Config.layer_kv\n"
        "config.Config.layer_kv = lambda *given: dataclasses.replace(_sound(*given), window=None)",
        "priorities": "import kvlab.paging.radix as radix\n_sound = radix.RadixTree.insert\n"
        "radix.RadixTree.insert = lambda self, *a, priority=0, **more: _sound(self, *a, **more)",
        "what is corrupt is not served": "import kvlab.caches.host as host\nhost.zlib.crc32 = lambda data: 0",
    },
    "17_a_first_kernel": {
        "arithmetic is not the limit": READ_ALIKE,
        "the table gives the order": REFERENCE + "_sound = reference._slots\n"
        "reference._slots = lambda tables, *more: _sound(tables.sort(dim=1).values, *more)",
        "each query head fetches for itself": "import kvlab.kernels.watch as watch\n_sound = watch.note\n"
        "def note(program, kind, addresses):\n"
        "    if program[1] % 3 == 0 or kind == 'store':\n        _sound(program, kind, addresses)\n"
        "watch.note = note",
    },
    "18_the_paged_kernel": {
        "a key is read once": READ_ALIKE,
        "parts are merged": LAUNCH + "class First:\n    def __getitem__(self, grid):\n        return self\n"
        "    def __call__(self, parts, logs, sinks, out, *more, **sizes):\n"
        "        out.copy_(parts[:, :, 0])\n"
        "launch.merge = First()",
        "scales count": LAUNCH + "launch._factors = lambda *given: (None, False)",
        "a window is a window": LAUNCH + "_sound = launch.Group.attend\n"
        "launch.Group.attend = lambda self, q, pages, scale, window, *more: "
        "_sound(self, q, pages, scale, None, *more)",
        "the look-up takes the stages": "import kvlab.kernels.compiled as compiled\n"
        "_sound = compiled.read_out\n"
        "compiled.read_out = lambda cases: _sound([case._replace(edit=None) for case in cases])",
    },
}


PRELUDE = """
import builtins, matplotlib, torch
from matplotlib.figure import Figure
builtins.display = print
matplotlib.use("agg")
Figure.savefig = lambda *_, **__: None  # no claim is about pixels, and they take long
torch.set_num_threads(1)
"""


def broken(name, what):
    """Run the lesson as a script in which something is broken -> the traceback it ends with, or ""."""
    cells = load(COMMITTED / f"{name}.ipynb")["cells"]
    code = [joined(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return end([BREAK[name][what], *code])


def end(pieces):
    """Run them as one script, in this process, which is of no use afterwards -> as ``broken``."""
    with tempfile.TemporaryDirectory() as folder:
        # Without the real model, which is not what these claims are about.
        os.environ.update(KVLAB_CACHE=folder, KVLAB_STATE=folder)
        script = Path(folder) / "lesson.py"
        script.write_text("\n\n".join([PRELUDE, *pieces]), encoding="utf-8")
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except BaseException:
            return traceback.format_exc()
        finally:
            os.chdir(ROOT)
    return ""


@pytest.mark.ahead(work=broken)
@pytest.mark.parametrize(("name", "what"), [(name, what) for name in BREAK for what in BREAK[name]])
def test_the_lesson_fails_where_its_claim_is_broken(name, what, ahead):
    assert "AssertionError" in ahead, ahead[-1500:]


@pytest.mark.parametrize(
    ("second", "error"), [("assert x == 2", ""), ("assert x == 3", "AssertionError"), ("y", "NameError")]
)
def test_only_a_failed_assertion_counts(second, error):
    found = apart(end, pieces=["x = 1", "x += 1\ndisplay(x)", second])
    assert ("AssertionError" in found) == (error == "AssertionError")
    assert error in found and bool(found) == bool(error)
