"""Decode attention of one layer over pages in any order, against the same over contiguous keys and values."""

import torch

from kvlab.benchmarks.clock import fastest
from kvlab.kernels import Batch

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
    k, v = (
        pages[tables].flatten(1, 2).transpose(1, 2).contiguous() for pages in (k_pages, v_pages)
    )  # [B, Hkv, T, D]
    lengths = torch.full((SEQUENCES,), TOKENS), torch.ones(SEQUENCES, dtype=torch.int64)
    batch, scale = Batch(tables, *lengths, blocks, BLOCK), WIDTH**-0.5

    def contiguous():
        """A group's queries are rows of one product, as in kvlab's own attention."""
        rows = q.unflatten(1, (KV_HEADS, -1))  # [B, Hkv, G, D]
        weights = (rows @ k.mT * scale).softmax(dim=-1)  # [B, Hkv, G, T]
        return (weights @ v).flatten(1, 2)

    steps = {
        "contiguous, queries packed as rows": contiguous,
        "paged, blocks in any order": lambda: batch.attend(q, k_pages, v_pages, scale=scale),
        "contiguous, PyTorch's own (enable_gqa)": lambda: torch.nn.functional.scaled_dot_product_attention(
            q[:, :, None], k, v, enable_gqa=True
        ),
    }
    first, *others = (step().reshape(q.shape) for step in steps.values())
    if max((other - first).abs().max() for other in others) > 1e-5:
        raise AssertionError("the ways of computing attention differ: their times mean nothing")
    seconds = fastest(steps)
    base = seconds["contiguous, queries packed as rows"]
    what = f"{SEQUENCES} x {TOKENS:,} tokens, {HEADS}/{KV_HEADS} heads of {WIDTH}, float32"
    threads = f"threads: {torch.get_num_threads()}"
    return [
        (name, f"{1000 * each:.3g}", f"ms, {each / base:.2f} times the first", f"{what}, {threads}")
        for name, each in seconds.items()
    ]
