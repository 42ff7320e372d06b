"""Starts the Triton kernels: which sequences together, tiles of what size, in how many parts."""

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch

from kvlab.kernels import splits
from kvlab.kernels.backend import moved
from kvlab.kernels.language import interpreted
from kvlab.kernels.triton_attention import attend_part, merge, padded
from kvlab.kernels.triton_write import store
from kvlab.kernels.watch import also

DTYPES = torch.float16, torch.bfloat16, torch.float32
STORED = *DTYPES, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2
WIDEST, WIDEST_LATENT, WIDEST_ROPE = 256, 512, 64
EVERYTHING = 2**30  # a window that no context fills
MERGED_COLUMNS = 64  # of a program of ``merge``: with the most splits, 32 numbers a thread


class Tiling(NamedTuple):
    """What is fixed as ``attend_part`` is compiled: query rows and tokens of a tile, warps, and stages."""

    rows: int
    tokens: int
    warps: int
    stages: int


def tiling(rows, key_dim, value_dim, latent, itemsize, amd=False):
    """For so many query rows of a KV head, numbers of ``itemsize`` bytes -> Tiling.

    Tiles as large as fit the registers, and stages that fit a multiprocessor more than once: a kernel that is
    bound by memory needs many bytes on their way. ``compiled`` shows what the compiler makes of them.
    """
    width = padded(value_dim if latent else max(key_dim, value_dim))
    stages = 2 if amd or width > 256 else 3  # AMD's have 64 KiB of shared memory
    if itemsize == 4:  # no matrix instruction is exact in float32, and products without one take registers
        return Tiling(16, 16, 8, stages)
    rows = min(max(16, 1 << (rows - 1).bit_length()), 32 if latent else 64)
    tokens = min(max(2**13 // width, 64 if latent else 32), 128)
    if amd:
        tokens = 16 if latent else min(tokens, 64 if rows == 16 else 32)
    return Tiling(rows, tokens, 8 if latent or rows == 64 else 4, stages)


def obstacle(tensors, interpreting):
    """What keeps Triton here from these tensors -> an exception that names one, or None.

    tensors: {name: (tensor or None, dtypes that it may have)}.
    """
    if interpreted != interpreting:
        return RuntimeError(
            f"this process has imported Triton to {'interpret' if interpreted else 'compile'}, for good: "
            f"start it anew with TRITON_INTERPRET={int(interpreting)} in its environment"
        )
    for name, (x, dtypes) in tensors.items():
        if x is None:
            continue
        if not interpreting and x.device.type == "cpu":
            return ValueError(
                f"{name} is on the CPU, and backend 'triton' works on a GPU: move it there, or take backend "
                "'reference'"
            )
        if x.dtype not in dtypes:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            return TypeError(f"{name} is {x.dtype}; Triton takes {known} here, and backend 'reference' all")
        if x.dtype == torch.float8_e4m3fn and not interpreting and not _has_float8(x.device):
            return TypeError(f"{name} is {x.dtype}, which this GPU does not have: take int8 or float8_e5m2")
        if not x.is_contiguous():
            return ValueError(f"{name} does not lie in one piece: call .contiguous(), or take 'reference'")
    return None


def attention_obstacle(q, pages, interpreting):
    """``obstacle`` for the arguments of attention."""
    problem = obstacle(
        {"q": (q.contiguous(), DTYPES), "k_pages": (pages.k, STORED), "v_pages": (pages.v, STORED)},
        interpreting,
    )
    if problem is not None:
        return problem
    rope = pages.key_dim - pages.value_dim
    if pages.v is None and (pages.value_dim > WIDEST_LATENT or rope > WIDEST_ROPE):
        return ValueError(
            f"v_dim is {pages.value_dim} of k_pages {pages.key_dim} wide; the kernel takes up to "
            f"{WIDEST_LATENT} and {WIDEST_ROPE} more"
        )
    for name, width in (("k_pages", pages.key_dim), ("v_pages", pages.value_dim)):
        if pages.v is not None and width > WIDEST:
            return ValueError(f"{name} is {width} wide; the kernel takes up to {WIDEST}")
    return None


def _has_float8(device):
    return torch.cuda.get_device_capability(device) >= (8, 9)


class Plan:
    """Tables and lengths of a batch where the kernel wants them; for all layers, whatever their shapes.

    tables [B, blocks] and the lists contexts and queries are those of ``paged_attention``, checked.
    """

    def __init__(self, tables, contexts, queries, block_size, device):
        busy = [b for b, n in enumerate(queries) if n]
        ends = torch.tensor(queries).cumsum(0).tolist()
        self.groups = []
        # Sequences with one new token and those with several: tiles of few rows, and of many.
        for members in ([b for b in busy if queries[b] == 1], [b for b in busy if queries[b] > 1]):
            if members:
                alone = len(members) == len(busy)
                self.groups.append(Group(tables, contexts, queries, ends, members, alone, block_size, device))

    def attend(self, q, pages, scale, window, sink_logits, num_splits, sizes=None):
        """q [N, Hq, Dk] -> [N, Hq, Dv]. ``sizes``: a Tiling in place of the usual one."""
        q, given = q.detach().contiguous(), (pages, scale, window, sink_logits, num_splits, sizes)
        with _current(q.device):
            if len(self.groups) == 1:
                return self.groups[0].attend(q, *given)
            out = q.new_zeros(*q.shape[:2], pages.value_dim)
            for group in self.groups:
                out[group.rows] = group.attend(q[group.rows], *given)
            return out


class Group:
    """Some sequences of a batch, started together. rows: theirs among the queries, None where all are."""

    def __init__(self, tables, contexts, queries, ends, members, alone, block_size, device):
        counts = [queries[b] for b in members]
        starts = [ends[b] - queries[b] for b in members]
        self.most, self.longest, self.block_size = max(counts), max(contexts[b] for b in members), block_size
        self.rows = None
        if not alone:
            rows = [row for start, n in zip(starts, counts, strict=True) for row in range(start, start + n)]
            self.rows = moved(torch.tensor(rows), device)
            starts = [0, *torch.tensor(counts).cumsum(0).tolist()[:-1]]
        lengths = torch.tensor([[contexts[b] for b in members], counts, starts], dtype=torch.int32)
        self.lengths = moved(lengths, device)  # [3, B]
        whole = alone and len(members) == len(tables)
        if not whole:
            tables = tables[moved(torch.tensor(members), tables.device)]
        self.tables = moved(tables.int().contiguous(), device)

    def attend(self, q, pages, scale, window, sink_logits, num_splits, sizes):
        """q [N, Hq, Dk] of this group's rows -> [N, Hq, Dv]."""
        num_heads, num_kv_heads, latent = q.shape[1], pages.num_kv_heads, pages.v is None
        group = num_heads // num_kv_heads
        shape = pages.key_dim, pages.value_dim, latent, q.element_size()
        sizes = sizes or tiling(group * self.most, *shape, amd=torch.version.hip is not None)
        row_tiles = -(-group * self.most // sizes.rows)
        tokens = min(self.most, (sizes.rows + group - 2) // group + 1)  # that have rows in a tile, at most
        seen = self.longest if window is None else min(self.longest, window + tokens - 1)
        programs = len(self.tables) * row_tiles * num_kv_heads
        if num_splits is None:
            num_splits = splits.choose(programs, seen, sizes.tokens, multiprocessors(q.device))
        share = splits.share(seen, num_splits, sizes.tokens)
        num_splits = -(-max(seen, 1) // share)
        k_scale, k_each = _factors(pages.k_scale, q.device, num_kv_heads)
        v_scale, v_each = (k_scale, k_each) if latent else _factors(pages.v_scale, q.device, num_kv_heads)
        sinks = None if sink_logits is None else sink_logits.contiguous()
        parts = q.new_empty(len(q), num_heads, num_splits, pages.value_dim, dtype=torch.float32)
        logs = q.new_empty(parts.shape[:3], dtype=torch.float32)
        out = q.new_empty(len(q), num_heads, pages.value_dim)
        also(q=q, k_pages=pages.k, v_pages=pages.v, k_scale=k_scale, v_scale=v_scale, sinks=sinks)
        also(tables=self.tables, lengths=self.lengths, parts=parts, logs=logs, out=out)
        attend_part[len(self.tables) * row_tiles, num_kv_heads, num_splits](
            q,
            pages.k,
            pages.v,
            k_scale,
            v_scale,
            self.tables,
            *self.lengths,
            parts,
            logs,
            scale * math.log2(math.e),
            self.tables.shape[1],
            row_tiles,
            share,
            EVERYTHING if window is None else min(window, EVERYTHING),
            GROUP=group,
            ROWS=sizes.rows,
            KEY_DIM=pages.key_dim,
            VALUE_DIM=pages.value_dim,
            BLOCK=self.block_size,
            TILE=sizes.tokens,
            K_EACH=k_each,
            V_EACH=v_each,
            INTERPRETED=interpreted,
            num_warps=sizes.warps,
            num_stages=sizes.stages,
        )
        columns = min(padded(pages.value_dim), MERGED_COLUMNS)
        merge[len(q) * num_heads, -(-pages.value_dim // columns)](
            parts,
            logs,
            sinks,
            out,
            num_splits,
            num_heads,
            VALUE_DIM=pages.value_dim,
            COLUMNS=columns,
            SPLITS=1 << (num_splits - 1).bit_length(),
        )
        return out


def write(new, pages, slots, scale):
    """Store new [N, Hkv, D] at slots [N] of pages; ``scale`` as in ``write_pages``."""
    if not new.numel():
        return
    new, slots = new.contiguous(), moved(slots.contiguous(), new.device)
    factors, each = _factors(scale, new.device, new.shape[1])
    also(new=new, slots=slots, pages=pages, scales=factors)
    if pages.dtype.is_floating_point:
        limits = torch.finfo(pages.dtype)
        largest, smallest, step = limits.max, limits.smallest_normal, limits.eps
    else:
        largest, smallest, step = torch.iinfo(pages.dtype).max, 0.0, 1.0
    with _current(new.device):
        store[len(new), new.shape[1]](
            new,
            pages,
            slots,
            factors,
            DIM=new.shape[2],
            EACH=each,
            LARGEST=float(largest),
            SMALLEST=smallest,
            STEP=step,
            INTERPRETED=interpreted,
        )


def multiprocessors(device):
    """Of a GPU; the interpreter has one program at a time."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _factors(scale, device, num_kv_heads):
    """A number, [Hkv] or [num_blocks, block_size, Hkv] -> (the tensor for the kernel, is it one a token?)."""
    if scale is None:
        return None, False
    if not isinstance(scale, torch.Tensor):
        return torch.full([num_kv_heads], scale, dtype=torch.float32, device=device), False
    scale = scale.to(device, torch.float32)
    return (
        (scale.contiguous(), True) if scale.dim() == 3 else (scale.expand(num_kv_heads).contiguous(), False)
    )


def _current(device):
    """Triton starts kernels on the current GPU, wherever the tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
