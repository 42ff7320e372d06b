"""What is measured: sizes of decode steps, and the bytes and FLOPs that none of them can do without."""

from typing import NamedTuple

import torch

from kvlab.kernels import splits
from kvlab.kernels.triton_launch import tiling

BATCHES = 1, 4, 16, 64, 256
CONTEXTS = 2**7, 2**10, 2**13, 2**15, 2**17
ROOM = 0.6  # of the free memory, for a case's pages
PARTS = 1, 2, 4, 8, 16, 32, 64, 128


class Case(NamedTuple):
    """One layer of a decode step: ``batch`` sequences of ``context`` tokens, a new one each among them.

    The defaults are those of a model with 32 query heads and 8 KV heads, such as Llama 3 with 8 billion
    parameters (Grattafiori et al. 2024, table 3).
    """

    batch: int
    context: int  # whole blocks
    heads: int = 32
    kv_heads: int = 8
    key_dim: int = 128
    value_dim: int = 128
    latent: bool = False  # are the values the keys' first columns?
    block_size: int = 16
    dtype: str = "bfloat16"  # of queries, as in torch
    stored: str = "bfloat16"  # of pages

    def __str__(self):
        return f"{self.batch} x {self.context:,}"

    @property
    def blocks(self):
        """Of all sequences."""
        return self.batch * self.context // self.block_size

    @property
    def page_bytes(self):
        width = self.key_dim + (0 if self.latent else self.value_dim)
        return self.batch * self.context * self.kv_heads * width * itemsize(self.stored)

    @property
    def bytes(self):
        """Keys and values once for each KV head, block tables, queries and outputs; no partial results."""
        rows = self.batch * self.heads * (self.key_dim + self.value_dim) * itemsize(self.dtype)
        return self.page_bytes + 4 * self.blocks + rows

    @property
    def flops(self):
        return 2 * self.batch * self.heads * self.context * (self.key_dim + self.value_dim)

    @property
    def tiling(self):
        sizes = self.key_dim, self.value_dim, self.latent, itemsize(self.dtype)
        return tiling(self.heads // self.kv_heads, *sizes)

    def parts(self, multiprocessors, wanted=None, tiling=None):
        """Into how many parts the kernel cuts each context, if asked for ``wanted`` or left alone -> int."""
        sizes = tiling or self.tiling
        if wanted is None:
            programs = self.batch * self.kv_heads * -(-self.heads // self.kv_heads // sizes.rows)
            wanted = splits.choose(programs, self.context, sizes.tokens, multiprocessors)
        return -(-self.context // splits.share(self.context, wanted, sizes.tokens))


def itemsize(dtype):
    return getattr(torch, dtype).itemsize


LONE, MANY = Case(1, 2**15), Case(64, 2**13)  # where parts, tilings and peers are looked at
MLA = {"heads": 128, "kv_heads": 1, "key_dim": 576, "value_dim": 512, "latent": True}  # DeepSeek-V3's


def grid(free):
    """The cases of the picture that ``free`` bytes have room for, LONE and MANY first -> [Case]."""
    every = {Case(batch, context): None for batch in BATCHES for context in CONTEXTS}
    return [case for case in {LONE: None, MANY: None} | every if fits(case, free)]


def fits(case, free):
    return case.page_bytes <= ROOM * free


def options(free, float8):
    """[(what is different, Case)] at LONE and MANY; ``float8``: the dtype of 8-bit pages."""
    different = {
        "group of 1": {"heads": 8},
        "group of 8": {"heads": 64},
        "blocks of 32": {"block_size": 32},
        "blocks of 64": {"block_size": 64},
        "blocks of 128": {"block_size": 128},
        f"{float8} pages": {"stored": float8},
        "MLA, 128 heads": MLA,
    }
    found = [(what, point._replace(**sizes)) for what, sizes in different.items() for point in (LONE, MANY)]
    return [(what, case) for what, case in found if fits(case, free)]


def tiled(free, float8):
    """Where other tiles are tried: LONE, MANY, and MANY with other pages -> [Case]."""
    others = MANY._replace(stored=float8), MANY._replace(**MLA)
    return [case for case in (LONE, MANY, *others) if fits(case, free)]


def tilings(case):
    """Tiles near the usual ones -> [Tiling]."""
    rows, tokens, warps, stages = usual = case.tiling
    near = [{"rows": rows // 2}, {"rows": 2 * rows}, {"tokens": tokens // 2}, {"tokens": 2 * tokens}]
    near += [{"warps": warps // 2}, {"warps": 2 * warps}, {"tokens": 2 * tokens, "warps": 2 * warps}]
    near += [{"stages": stages - 1}, {"stages": stages + 1}]
    made = [usual._replace(**sizes) for sizes in near]
    return [tiling for tiling in made if tiling.rows >= 16 and tiling.tokens >= 16]
