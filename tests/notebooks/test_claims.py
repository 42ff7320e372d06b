"""Each lesson's claim is an assertion in it: break what the claim is about, and the lesson fails there.

(That the unbroken lesson passes is nbval's part.)
"""

import os
import subprocess
import sys

import pytest

from kvlab.commands.normalise import joined
from kvlab.paths import ROOT
from tests.notebooks.make import COMMITTED, load

ATTENTION = "import kvlab.model.attention as attention\n"
LAYERS = "import kvlab.memory.layers as layers\n"
READ_ALIKE = "import kvlab.ledger as ledger\n_sound = ledger.read\nledger.read = lambda nbytes: _sound(1000)"
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
    },
    "06_reading_is_the_bottleneck": {
        "a step reads all tokens": READ_ALIKE,
        "weights are read": "import kvlab.memory.roofline as roofline\n"
        "roofline.weight_bytes = lambda *arguments: 1",
    },
}


@pytest.mark.parametrize(("name", "what"), [(name, what) for name in BREAK for what in BREAK[name]])
def test_the_lesson_fails_where_its_claim_is_broken(name, what, tmp_path):
    cells = load(COMMITTED / f"{name}.ipynb")["cells"]
    code = [joined(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "lesson.py"
    show = "import builtins\nbuiltins.display = print"
    script.write_text("\n\n".join([show, BREAK[name][what], *code]), encoding="utf-8")
    # Without the real model, which is not what these claims are about.
    alone = {"MPLBACKEND": "agg", "KVLAB_CACHE": str(tmp_path), "KVLAB_STATE": str(tmp_path / "state")}
    environment = {**os.environ, **alone, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode != 0
    assert "AssertionError" in run.stderr, run.stderr[-1500:]
