"""What is recorded of kernels in the interpreter, and that none leaves its tensors."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder

from kvlab.kernels import paged_attention, write_pages
from kvlab.kernels import watch as module
from kvlab.kernels.language import jit, tl
from kvlab.kernels.watch import Access, OutsideAccess, pages_read, watch
from kvlab.paths import ROOT
from tests.kernels.cases import build, in_dtype


@jit
def read(x, offsets, mask):
    return tl.load(x + offsets, mask=mask, other=0.0)


@jit
def copy(x, out, n, first, TILE: tl.constexpr, MASKED: tl.constexpr, NESTED: tl.constexpr):
    """A program copies TILE numbers, from ``first`` on; the first one stores a scalar again."""
    offsets = first + tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = offsets < (n if MASKED else 10**6)
    numbers = read(x, offsets, mask) if NESTED else tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, numbers, mask=mask)
    if tl.program_id(0) == 0:
        tl.store(out, tl.load(out))


def vectors(n=6, dtype=torch.float32):
    return torch.arange(1, n + 1).to(dtype), torch.zeros(n, dtype=dtype)


def run(x, out, programs=2, first=0, masked=True, nested=False):
    copy[programs,](x, out, len(x), first, TILE=4, MASKED=masked, NESTED=nested)


def plain(seen):
    return [(*each[:3], each.offsets.tolist()) for each in seen]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_every_load_and_store_is_recorded_in_order_without_what_is_masked(dtype):
    x, out = vectors(dtype=dtype)
    with watch(x=x, out=out) as seen:
        run(x, out)
    assert torch.equal(out, x)
    first, second = (0, 0, 0), (1, 0, 0)
    assert plain(seen) == [
        (first, "load", "x", [0, 1, 2, 3]),
        (first, "store", "out", [0, 1, 2, 3]),
        (first, "load", "out", [0]),
        (first, "store", "out", [0]),
        (second, "load", "x", [4, 5]),
        (second, "store", "out", [4, 5]),
    ]
    assert isinstance(seen[0], Access)


def test_a_mask_of_a_scalar_and_a_tile_is_a_mask():
    @jit
    def masked(x, out, n, TILE: tl.constexpr):
        offsets = tl.arange(0, TILE)
        wanted = (offsets < n) & (n > tl.program_id(0))
        tl.store(out + offsets, tl.load(x + offsets, mask=wanted), mask=wanted)

    x, out = vectors()
    with watch(x=x, out=out) as seen:
        masked[(9,)](x, out, 6, TILE=8)
    assert [each.offsets.tolist() for each in seen] == [list(range(6))] * 12


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("first", "program", "count", "offset"), [(0, 1, 2, "6"), (-3, 0, 3, "-3")])
def test_an_access_outside_is_stopped_before_it_happens(nested, first, program, count, offset):
    memory = torch.arange(20.0)
    x, out = memory[8:14], torch.full([6], -1.0)
    message = rf"program \({program}, 0, 0\) would load {count} numbers .*offset {offset} of x, which has 6"
    with pytest.raises(OutsideAccess, match=message), watch(x=x, out=out):
        run(x, out, first=first, masked=False, nested=nested)
    assert out.tolist() == ([8, 9, 10, 11, -1, -1] if program else [-1] * 6)


def test_a_store_outside_is_one_too():
    x, out = torch.arange(8.0), torch.zeros(8)
    with (
        pytest.raises(OutsideAccess, match="would store 1 numbers .*offset 7 of out"),
        watch(x=x, out=out[:7]),
    ):
        run(x, out)
    assert out[7] == 0


def test_what_is_not_named_is_outside():
    x, out = vectors()
    with pytest.raises(OutsideAccess, match="would store 4 numbers outside of x"), watch(x=x):
        run(x, out)


def test_parts_of_one_memory_are_told_apart():
    memory = torch.arange(12.0)
    x, out = memory[:6], memory[6:]
    with watch(first=x, second=out) as seen:
        run(x, out)
    assert [each.name for each in seen] == ["first", *["second"] * 3, "first", "second"]


def test_blocks_nest_and_end():
    x, out = vectors()
    with watch(x=x, out=out) as outer:
        with watch(y=x, out=out) as inner:
            run(x, out)
        run(x, out, programs=1)
    run(x, out)
    assert ([each.name for each in inner], len(outer)) == (["y", *["out"] * 3, "y", "out"], 10)
    assert plain(outer)[:6] == [(p, kind, name.replace("y", "x"), at) for p, kind, name, at in plain(inner)]


@pytest.mark.parametrize("error", [OutsideAccess, ZeroDivisionError, InterpreterError])
def test_the_interpreter_is_as_it_was_after_an_error(error):
    before = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    x, out = vectors()
    with pytest.raises(error), watch(x=x, out=out):
        assert InterpreterBuilder.create_masked_load is not before[0]
        if error is ZeroDivisionError:
            1 / 0  # noqa: B018
        run(x, out, masked=False) if error is OutsideAccess else run(x, "out")
    assert (InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store) == before
    assert module._open == []
    run(x, out)


def test_what_a_launch_makes_is_known():
    """Only what the caller has is named; queries, tables, parts and the result are added."""
    problem = {
        "contexts": [5, 3],
        "queries": [1, 2],
        "block_size": 2,
        "kv_heads": 2,
        "group": 2,
        "key_dim": 3,
    }
    problem |= {"value_dim": 2, "values_in_keys": False, "window": None, "sinks": True}
    given, options = in_dtype(*build(**problem), torch.float32, (torch.int8, "each"), (torch.int8, "head"))
    pages = {name: given[name] for name in ("k_pages", "v_pages")}
    with watch(**pages) as outer, watch(**pages) as seen:
        paged_attention(**given, **options, backend="interpreter")
    assert plain(outer) == plain(seen)
    touched = {(each.kind, each.name) for each in seen}
    assert {("load", "k_pages"), ("load", "v_pages"), ("load", "parts"), ("store", "out")} <= touched
    assert ("store", "k_pages") not in touched
    k, slots = torch.ones(2, 2, 3), torch.tensor([1, 0])
    with watch(k_pages=given["k_pages"]) as seen:
        write_pages(k, None, given["k_pages"], None, slots, k_scale=options["k_scale"], backend="interpreter")
    assert ("store", "k_pages") in {(each.kind, each.name) for each in seen}


def test_bytes_of_each_page_that_a_program_read():
    pages, first, second = torch.zeros(4, 2, 3, dtype=torch.float16), (0, 0, 0), (1, 0, 0)
    accesses = [
        Access(first, "load", "k_pages", np.array([0, 5, 6, 23])),
        Access(first, "load", "k_pages", np.array([5])),
        Access(first, "store", "k_pages", np.array([12])),
        Access(second, "load", "v_pages", np.array([17])),
        Access(second, "load", "tables", np.array([0])),
    ]
    assert pages_read(accesses, k_pages=pages, v_pages=pages) == {first: {0: 6, 1: 2, 3: 2}, second: {2: 2}}


def test_a_gpu_keeps_no_record():
    code = "import torch; from kvlab.kernels.watch import watch\nwith watch(x=torch.ones(1)): pass"
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert "RuntimeError" in done.stderr and "TRITON_INTERPRET=1" in done.stderr
