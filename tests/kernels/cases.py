"""Paged problems, and what comes out of them by the plainest means: one query, one head at a time."""

import inspect
from collections import defaultdict
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from kvlab.kernels import paged_attention, triton_launch
from kvlab.kernels.watch import watch

PLAIN = {
    "contexts": [5, 9, 2],
    "queries": [1, 3, 2],
    "block_size": 4,
    "kv_heads": 2,
    "group": 3,
    "key_dim": 6,
    "value_dim": 5,
    "values_in_keys": False,
    "window": None,
}


@st.composite
def problems(draw):
    """Sizes of one call of ``paged_attention``; every dimension can differ from every other."""
    lengths = st.integers(0, 23)
    contexts = draw(st.lists(lengths, min_size=1, max_size=5))
    return {
        "contexts": contexts,
        "queries": [draw(st.integers(min(context, 1), min(context, 7))) for context in contexts],
        "block_size": draw(st.sampled_from([1, 2, 3, 4, 16])),
        "kv_heads": draw(st.integers(1, 3)),
        "group": draw(st.integers(1, 4)),
        "key_dim": draw(st.integers(1, 6)),
        "value_dim": draw(st.integers(1, 5)),
        "values_in_keys": draw(st.booleans()),
        "window": draw(st.none() | st.integers(1, 9)),
        "sinks": draw(st.booleans()),
        "in_order": draw(st.booleans()),
        "seed": draw(st.integers(0, 9999)),
    }


def build(contexts, queries, block_size, kv_heads, group, key_dim, value_dim, values_in_keys, window, **more):
    """Arguments of ``paged_attention``: pages in a random order, and NaN wherever no token lies."""
    random = torch.Generator().manual_seed(more.get("seed", 0))

    def numbers(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    needed = [-(-context // block_size) for context in contexts]
    num_blocks, width = sum(needed) + 3, max(needed) + 2
    order = list(range(num_blocks)) if more.get("in_order") else torch.randperm(num_blocks, generator=random)
    free = iter([int(block) for block in order])
    k_pages = torch.full((num_blocks, block_size, kv_heads, key_dim), torch.nan, dtype=torch.float64)
    v_pages = torch.full((num_blocks, block_size, kv_heads, value_dim), torch.nan, dtype=torch.float64)
    tables = torch.full((len(contexts), width), 10**6)  # no such page: nobody may look there
    for b, context in enumerate(contexts):
        blocks = [next(free) for _ in range(needed[b])]
        tables[b, : needed[b]] = torch.tensor(blocks, dtype=torch.int64)
        for pages, size in ((k_pages, key_dim), (v_pages, value_dim)):
            for t in range(context):
                pages[blocks[t // block_size], t % block_size] = numbers(kv_heads, size)
    given = {
        "q": numbers(sum(queries), kv_heads * group, key_dim),
        "k_pages": k_pages,
        "v_pages": None if values_in_keys else v_pages,
        "block_tables": tables,
        "context_lens": torch.tensor(contexts),
        "query_lens": torch.tensor(queries),
    }
    options = {"scale": more.get("scale", 0.37), "window": window}
    if values_in_keys:
        options["v_dim"] = min(value_dim, key_dim)
    if more.get("sinks"):
        options["sink_logits"] = numbers(kv_heads * group)
    return given, options


def expected(given, options):
    """The same by loops -> [N, Hq, Dv]."""
    q, k_pages, v_pages = given["q"], given["k_pages"], given["v_pages"]
    size, kv_heads = k_pages.shape[1:3]
    value_dim = options["v_dim"] if v_pages is None else v_pages.shape[3]
    out, row = torch.zeros(len(q), q.shape[1], value_dim, dtype=torch.float64), 0
    for table, context, n in zip(
        given["block_tables"].tolist(),
        given["context_lens"].tolist(),
        given["query_lens"].tolist(),
        strict=True,
    ):
        for position in range(context - n, context):
            first = 0 if options["window"] is None else max(0, position + 1 - options["window"])
            for head in range(q.shape[1]):
                shared = head // (q.shape[1] // kv_heads)
                seen = [(table[t // size], t % size, shared) for t in range(first, position + 1)]
                keys = torch.stack([k_pages[place].double() for place in seen])
                values = keys[:, :value_dim]
                if v_pages is not None:
                    values = torch.stack([v_pages[place].double() for place in seen])
                weights = (keys @ q[row, head] * options["scale"]).exp()
                sink = options["sink_logits"][head].exp() if "sink_logits" in options else 0
                out[row, head] = (weights / (weights.sum() + sink)) @ values
            row += 1
    return out


EIGHT_BITS = torch.int8, torch.float8_e4m3fn, torch.float8_e5m2
UNITS = {"number": 0.02, "head": (0.011, 0.03), "each": (0.01, 0.03)}  # kinds of scales, and their sizes


def in_dtype(given, options, dtype, keys=None, values=None):
    """A problem in ``dtype``; what is stored in another one is (dtype, kind of scale), as in UNITS.

    Places without a token stay NaN, or become the least integer, and their scales NaN.
    """
    given, options = given | {"q": given["q"].to(dtype)}, dict(options)
    for name, stored in (("k", keys), ("v", values)):
        pages = given[f"{name}_pages"]
        if pages is None:
            continue
        if stored is None:
            given[f"{name}_pages"] = pages.to(dtype)
        else:
            given[f"{name}_pages"], options[f"{name}_scale"] = packed(pages, *stored)
    if "sink_logits" in options:
        options["sink_logits"] = options["sink_logits"].to(dtype)
    return given, options


def packed(pages, dtype, kind):
    """Pages [num_blocks, block_size, Hkv, D] in another dtype -> (pages, their scale)."""
    unused, size = pages.isnan().any(dim=-1), UNITS[kind]
    if kind == "number":
        scale = size
    elif kind == "head":
        scale = torch.linspace(*size, pages.shape[2])
    else:
        low, high = size
        scale = low + (high - low) * torch.rand(unused.shape, generator=torch.Generator().manual_seed(1))
    numbers = pages / unit(scale)
    if not dtype.is_floating_point:
        numbers = numbers.round().clamp(-127, 127).nan_to_num(-128)
    return numbers.to(dtype), scale.masked_fill(unused, torch.nan) if kind == "each" else scale


def unit(scale):
    """A scale of any kind, to multiply pages by."""
    return scale[..., None] if isinstance(scale, torch.Tensor) else scale


def exact(given, options):
    """What the reference makes of the same numbers in float64."""
    doubles = {"q": given["q"].double()}
    for name in ("k", "v"):
        if given[f"{name}_pages"] is not None and f"{name}_scale" not in options:
            doubles[f"{name}_pages"] = given[f"{name}_pages"].double()
    return paged_attention(**given | doubles, **options, backend="reference")


# What the kernel rounds to the queries' dtype: weights, by at most ROUNDED each; the result; and values that
# have a scale each. float16 is rounded to the nearest; the interpreter cuts float32 to bfloat16 off.
ROUNDED = {torch.float32: 0.0, torch.float16: 2**-11, torch.bfloat16: 2**-7}
# What float32 adds, in which scores are summed and weighed, by the largest value: half of it is reached.
FLOAT32 = 4 * 2**-23


def tolerance(given, options, right):
    """How far the kernel may be from ``right`` -> [N, Hq, Dv].

    A weight p that is off by a share r moves the result by r * p * |v|: all of them by r times the attention
    over |v|. Of this bound for 16 bits up to 0.75 was reached in 1,200 random problems.
    """
    values, scale = given["v_pages"], options.get("v_scale")
    if values is None:
        values, scale = given["k_pages"][..., : options["v_dim"]], options.get("k_scale")
    sizes = values.double().abs() * (1 if scale is None else unit(scale))
    plain = {name: x for name, x in options.items() if name not in ("v_dim", "v_scale")}
    weighed = exact(given | {"v_pages": sizes}, plain)
    rounded_values = isinstance(scale, torch.Tensor) and scale.dim() == 3
    roundings = weighed * (1 + rounded_values) + right.abs()
    return ROUNDED[given["q"].dtype] * roundings + FLOAT32 * sizes.nan_to_num(0).amax()


def assert_exact(got, given, options):
    right = exact(given, options)
    assert (got.dtype, got.shape) == (given["q"].dtype, right.shape)
    excess = (got.double() - right).abs() - tolerance(given, options, right)
    assert got.numel() == 0 or excess.max() <= 0, f"{excess.max():.2g} too far off"  # NaN is, too


SMALL_TILES = triton_launch.Tiling(16, 16, 4, 2)  # the least: short contexts take several turns


def attend(given, options, tiles=SMALL_TILES, **more):
    """The kernel's result in the interpreter; ``tiles``: None for the usual ones."""
    with pytest.MonkeyPatch.context() as patch:
        if tiles is not None:
            patch.setattr(triton_launch, "tiling", lambda *sizes, **more: tiles)
        return paged_attention(**given, **options, backend="interpreter", **more)


def attend_watched(given, options, tiles=SMALL_TILES, kernels=triton_launch, **more):
    """The same under watch, with the kernels of a module; AssertionError for a wrong read or write."""
    parts, whole = Watched(kernels.attend_part, "parts", "logs"), Watched(kernels.merge, "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_launch, "attend_part", parts)
        patch.setattr(triton_launch, "merge", whole)
        got = attend(given, options, tiles, **more)
    for launches in zip(parts.launches, whole.launches, strict=True):
        assert_sparing(*launches)
    return got


class Launch(NamedTuple):
    grid: tuple
    given: dict  # the arguments by name
    seen: list  # of Access

    def offsets(self, kind, name):
        """Of all programs, sorted."""
        return joined(x.offsets for x in self.seen if (x.kind, x.name) == (kind, name))


class Watched:
    """A kernel that is watched. What it is to write holds NaN before."""

    def __init__(self, kernel, *writes):
        self.kernel, self.writes, self.launches = kernel, writes, []

    def __getitem__(self, grid):
        def launch(*given, **options):
            given = dict(zip(inspect.signature(self.kernel.fn).parameters, given, strict=False)) | options
            for name in self.writes:
                given[name].fill_(torch.nan)
            tensors = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
            with watch(**tensors) as seen:
                self.kernel[grid](**given)
            self.launches.append(Launch(grid, given, seen))

        return launch


def joined(offsets):
    return np.sort(np.concatenate([np.empty(0, np.int64), *offsets]))


def assert_sparing(parts, whole):
    """Launches of ``attend_part`` and ``merge``: what is seen is read once and nothing else, in the right
    pages and of the right head; all of the result is written once, and no part read that was not written.
    """
    given, read, most = parts.given, defaultdict(list), 1
    for program, kind, name, offsets in parts.seen:
        if kind == "load":
            read[program[:2], name].append(offsets)
    lengths = [given[name].tolist() for name in ("tables", "contexts", "counts")]
    kv_heads, block_size, group = parts.grid[1], given["BLOCK"], given["GROUP"]
    for program in product(range(parts.grid[0]), range(kv_heads)):
        sequence, tile = divmod(program[0], given["row_tiles"])
        table, context, count = (numbers[sequence] for numbers in lengths)
        first = tile * given["ROWS"]
        last = min(first + given["ROWS"], group * count) - 1
        visible = range(0)
        if first <= last:
            oldest, newest = (context - count + row // group for row in (first, last))
            visible = range(max(0, oldest - given["window"] + 1), newest + 1)
        slots = np.array([table[t // block_size] * block_size + t % block_size for t in visible], np.int64)
        rows = slots * kv_heads + program[1]
        for name, width in (("k_pages", given["KEY_DIM"]), ("v_pages", given["VALUE_DIM"])):
            wanted = joined(rows[:, None] * width + np.arange(width))
            if given[name] is not None:
                assert np.array_equal(joined(read[program, name]), wanted), f"{name} of program {program}"
        for name, each in (("k_scale", given["K_EACH"]), ("v_scale", given["V_EACH"])):
            if each and given[f"{name[0]}_pages"] is not None:
                got = np.unique(joined(read[program, name]))  # keys that are values, too, are scaled twice
                assert np.array_equal(got, np.sort(rows)), f"{name} of program {program}"
        used = -(-len(visible) // given["share"])
        most = max(most, used)
        splits = {x.program[2] for x in parts.seen if x.name == "parts" and x.program[:2] == program}
        assert splits == set(range(used)), f"parts of program {program}"
        places = joined(read[program, "tables"]) - sequence * given["table_width"]
        assert set(places.tolist()) == {t // block_size for t in visible}, f"tables of program {program}"
    assert parts.grid[2] <= most + 1, "a window may take a part less than its bound, and no more is wasted"
    for launch, name in ((parts, "logs"), (whole, "out")):
        wanted = np.arange(launch.given[name].numel())
        assert np.array_equal(launch.offsets("store", name), wanted), name
    written, merged = parts.offsets("store", "parts"), whole.offsets("load", "parts")
    assert np.isin(merged, written).all(), "parts"


def far(given):
    """The same problem where what is used lies beyond 2**31 numbers; the pages before are not touched."""
    small = given["k_pages"]
    more = 2**31 // small[0].numel() + 1
    moved = {"block_tables": given["block_tables"] + more}
    for name in ("k_pages", "v_pages"):
        if given[name] is not None:
            moved[name] = small.new_empty(more + len(small), *given[name].shape[1:], dtype=given[name].dtype)
            moved[name][more:] = given[name]
    return given | moved


@contextmanager
def untouched():
    """After a launch the interpreter copies every tensor onto itself: not inside this block."""
    from triton.runtime.interpreter import GridExecutor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GridExecutor, "_restore_args_dev", lambda *given: None)
        yield
