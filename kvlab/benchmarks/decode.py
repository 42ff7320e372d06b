"""Decode attention of one layer over pages in any order, against the same over contiguous keys and values.

Contiguous in two layouts, both with a group's queries packed as the rows of one product: token by token, as
kvlab's caches and its pages keep them, and head by head, which is the fastest to read.
"""

import torch

from kvlab.benchmarks.clock import fastest
from kvlab.kernels import Batch
from kvlab.model.attention import attention

SEQUENCES, TOKENS, HEADS, KV_HEADS, WIDTH, BLOCK = 8, 2048, 32, 8, 128, 16


@torch.no_grad()
def decode():
    """Rows of the benchmark: milliseconds, and how many times contiguous attention's they are."""
    random = torch.Generator().manual_seed(0)
    blocks = SEQUENCES * TOKENS // BLOCK
    k_pages, v_pages = (
        torch.randn(blocks, BLOCK, KV_HEADS, WIDTH, generator=random) for _ in range(2)
    )  # [num_blocks, block_size, Hkv, D]
    tables = torch.randperm(blocks, generator=random).view(SEQUENCES, -1)
    q = torch.randn(SEQUENCES, HEADS, WIDTH, generator=random)  # [N, Hq, D]
    kept = [pages[tables].flatten(1, 2) for pages in (k_pages, v_pages)]  # [B, T, Hkv, D]
    k, v = (x.transpose(1, 2).contiguous() for x in kept)  # [B, Hkv, T, D]
    lengths = torch.full((SEQUENCES,), TOKENS), torch.ones(SEQUENCES, dtype=torch.int64)
    batch, scale = Batch(tables, *lengths, blocks, BLOCK), WIDTH**-0.5

    last, positions = torch.tensor([TOKENS - 1]), torch.arange(TOKENS)

    def by_token():
        """kvlab's own attention, a sequence at a time."""
        each = (attention(*qkv, last, positions, scale) for qkv in zip(q.split(1), *kept, strict=True))
        return torch.cat(list(each))

    def by_head():
        rows = q.unflatten(1, (KV_HEADS, -1))  # [B, Hkv, G, D]
        weights = (rows @ k.mT * scale).softmax(dim=-1)  # [B, Hkv, G, T]
        return (weights @ v).flatten(1, 2)

    steps = {
        "contiguous, token by token": by_token,
        "contiguous, head by head": by_head,
        "paged, blocks in any order": lambda: batch.attend(q, k_pages, v_pages, scale=scale),
        "contiguous, head by head, PyTorch's own (enable_gqa)": lambda: (
            torch.nn.functional.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)
        ),
    }
    first, *others = (step().reshape(q.shape) for step in steps.values())
    if max((other - first).abs().max() for other in others) > 1e-5:
        raise AssertionError("the ways of computing attention differ: their times mean nothing")
    seconds = fastest(steps)
    base = seconds["contiguous, token by token"]
    what = f"{SEQUENCES} x {TOKENS:,} tokens, {HEADS}/{KV_HEADS} heads of {WIDTH}, float32"
    threads = f"threads: {torch.get_num_threads()}"
    return [
        (name, f"{1000 * each:.3g}", f"ms, {each / base:.2f} times the first", f"{what}, {threads}")
        for name, each in seconds.items()
    ]
