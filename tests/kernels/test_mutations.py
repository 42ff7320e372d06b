"""Break a line of the attention kernel: a few small problems under watch must notice."""

import importlib.util
from pathlib import Path

import pytest
import torch

from kvlab.kernels import triton_attention
from kvlab.kernels.triton_launch import Tiling
from kvlab.kernels.watch import OutsideAccess
from tests.kernels import cases
from tests.kernels.cases import assert_exact, attend_watched, build, far, in_dtype, untouched

SOURCE = Path(triton_attention.__file__).read_text(encoding="utf-8")
PLAIN = cases.PLAIN | {"contexts": [16, 33], "queries": [1, 1], "group": 2}
EACH, HEAD = (torch.float8_e4m3fn, "each"), (torch.int8, "head")
TALL = Tiling(32, 16, 4, 2)  # with windows, its last rows see nothing of the first tile of tokens
# (problem, what is stored, parts). In those of 18 tokens, the first row sees nothing of the second part.
SUITE = [
    (PLAIN, {}, 1),
    (PLAIN | {"contexts": [5, 40], "queries": [0, 6], "window": 20, "sinks": True}, {}, 3),
    (PLAIN | {"contexts": [18], "queries": [3]}, {"keys": HEAD, "values": EACH}, 2),
    (PLAIN | {"contexts": [18], "queries": [3]}, {"keys": EACH, "values": HEAD}, 2),
    (
        PLAIN | {"contexts": [3, 20], "key_dim": 18, "value_dim": 16, "values_in_keys": True},
        {"keys": EACH},
        2,
    ),
]
FEW_SEEN = PLAIN | {"contexts": [40], "queries": [19], "window": 3, "kv_heads": 1, "group": 1}
FAR = PLAIN | {"contexts": [3], "queries": [1], "kv_heads": 1, "key_dim": 16, "value_dim": 16}


def run_suite(kernels):
    for problem, stored, num_splits in SUITE:
        given, options = in_dtype(*build(**problem), torch.float32, **stored)
        assert_exact(attend_watched(given, options, kernels=kernels, num_splits=num_splits), given, options)
    given, options = in_dtype(*build(**FEW_SEEN), torch.float32)
    assert_exact(attend_watched(given, options, TALL, kernels, num_splits=1), given, options)
    given, options = in_dtype(*build(**FAR), torch.float32, HEAD, HEAD)
    with untouched():
        assert_exact(attend_watched(far(given), options, kernels=kernels), given, options)


def edited(edits, folder):
    """The module with pieces of its source exchanged, imported from a folder."""
    source = SOURCE
    for old, new in edits:
        assert source.count(old) == 1, f"{source.count(old)} times in the kernel: {old!r}"
        source = source.replace(old, new)
    file = folder / "edited_kernel.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("edited_kernel", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sound_kernel_passes(tmp_path):
    run_suite(edited([("Paged attention in Triton", "The same")], tmp_path))


MUTATIONS = {
    "the accumulator is not rescaled": ("out * shrink[:, None] + product", "out + product"),
    "the sum is not rescaled": ("total * shrink + tl.sum", "total + tl.sum"),
    "the last token is left out": ("begin + share, newest + 1)", "begin + share, newest)"),
    "a token too many": ("begin + share, newest + 1)", "begin + share, newest + 2)"),
    "a tile's last token is masked": ("there = tokens < end\n", "there = tokens < end - 1\n"),
    "the token behind the last is not masked": ("there = tokens < end\n", "there = tokens <= end\n"),
    "another map of heads": (
        "(token * num_kv_heads + kv_head) * GROUP + rows % GROUP",
        "token * num_kv_heads * GROUP + rows % GROUP * num_kv_heads + kv_head",
    ),
    "the first KV head for all": ("* num_kv_heads + kv_head  # [TILE]", "* num_kv_heads"),
    "rows that are tokens first": ("context - count + rows // GROUP  #", "context - count + rows % count  #"),
    "only the first part": ("mask=places < splits", "mask=places < 1"),
    "the plain mean of parts": ("tl.where(some, tl.exp2(log - highest), 0.0)", "tl.where(some, 1.0, 0.0)"),
    "offsets in 32 bits": ("slots = (pages.to(tl.int64)", "slots = (pages"),
    "another sequence's table": ("tables + sequence.to", "tables + (sequence * 0).to"),
    "tables one too wide": ("tl.int64) * table_width", "tl.int64) * (table_width + 1)"),
    "a window one too wide": ("> positions[:, None] - window)", ">= positions[:, None] - window)"),
    "a window one too narrow": ("> positions[:, None] - window)", "> positions[:, None] - window + 1)"),
    "the window's first token is not read": ("// GROUP - window + 1, 0)", "// GROUP - window + 2, 0)"),
    "more than the window is read": ("// GROUP - window + 1, 0)", "// GROUP - window, 0)"),
    "no token sees itself": ("<= positions[:, None]) &", "< positions[:, None]) &"),
    "the next token is seen": ("<= positions[:, None]) &", "<= positions[:, None] + 1) &"),
    "values are not masked": ("v_pages, slots, there, 0", "v_pages, slots, tokens >= 0, 0"),
    "keys are not masked": ("k_pages, slots, there, 0", "k_pages, slots, tokens >= 0, 0"),
    "scores are not masked": ("tl.where(seen, scores * scale, LOWEST)", "scores * scale"),
    "infinity in place of a finite number": ("tl.constexpr(-1.0e30)", 'tl.constexpr(float("-inf"))'),
    "a sink for each part": ("total += tl.exp2(sink", "total += splits * tl.exp2(sink"),
    "no sink": ("total += tl.exp2(sink - highest)", "total += 0"),
    "the first head's sink for all": ("sinks + row % num_heads", "sinks + row * 0"),
    "a head's scale of keys is forgotten": ("scale *= tl.load(k_scale + kv_head)", "scale *= 1"),
    "a token's scale of keys is forgotten": ("if K_EACH:", "if False:"),
    "a head's scale of values is forgotten": ("out *= tl.load(v_scale + kv_head)", "out *= 1"),
    "a token's scale of values is forgotten": ("if V_EACH:", "if False:"),
    "the second part of keys is forgotten": ("scores += product(more_queries", "product(more_queries"),
    "empty parts are merged": ("wanted = some[:, None] &", "wanted = (places < splits)[:, None] &"),
    "parts one after the other": ("part = head * splits + split", "part = split * tl.num_programs(0) + head"),
    "parts that overlap": ("split * share\n", "split * (share - 1)\n"),
    "a page of the turn before": ("(tokens + TILE) // BLOCK", "tokens // BLOCK"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of numbers that are none
@pytest.mark.parametrize("what", MUTATIONS)
def test_it_is_noticed_that(what, tmp_path):
    kernels = edited([MUTATIONS[what]], tmp_path)
    with pytest.raises((AssertionError, OutsideAccess)):
        run_suite(kernels)
