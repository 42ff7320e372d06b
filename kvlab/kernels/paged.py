"""Attention of packed queries over keys and values that lie in pages: the front door of every backend."""

import torch

from kvlab import ledger
from kvlab.kernels import torch_reference
from kvlab.kernels.backend import chosen


def paged_attention(
    q,
    k_pages,
    v_pages,
    block_tables,
    context_lens,
    query_lens=None,
    *,
    scale,
    v_dim=None,
    window=None,
    sink_logits=None,
    k_scale=None,
    v_scale=None,
    num_splits=None,
    backend=None,
):
    """softmax(scale * q k^T) v for each of B sequences over its own pages -> [N, Hq, Dv], in q's dtype.

    q             [N, Hq, Dk], the new tokens of all sequences, one sequence after the other
    k_pages       [num_blocks, block_size, Hkv, Dk]; the new tokens' keys are in them already
    v_pages       [num_blocks, block_size, Hkv, Dv], or None: the values are the first ``v_dim`` entries of
                  the keys
    block_tables  integers [B, at least ceil(context / block_size)]; what lies beyond a context is ignored
    context_lens  integers [B], tokens of each sequence, the new ones among them; 0 for none: zeros come out
    query_lens    integers [B], new tokens of each; one each where None. They are the last of their context
    window        a query sees this many latest tokens, itself included; None: all
    sink_logits   [Hq], one more logit in each head's denominator, with no value (as in gpt-oss)
    k_scale,      what stored numbers are multiplied by: a number, [Hkv], or [num_blocks, block_size, Hkv]
    v_scale
    num_splits    into how many parts the kernel may cut a context; None: as many as keep the GPU busy
    backend       "triton" (a GPU), "interpreter" (Triton's, slow), "reference" (PyTorch), or None: that of
                  ``kvlab.kernels.mode()``, and the reference for what the kernel does not take

    Tables and lengths are checked on the host: for many layers, make one ``Batch`` of them. Raises ValueError
    for shapes that do not fit, for a table entry outside the pages, or a context beyond its table; TypeError
    for dtypes; ImportError where Triton is named and missing.

    (PagedAttention, Kwon et al. 2023, section 4.1.)
    """
    if query_lens is None:
        query_lens = torch.ones_like(context_lens)
    _check_tensors(q, k_pages, v_pages, v_dim, window, sink_logits, k_scale, v_scale)
    batch = Batch(block_tables, context_lens, query_lens, *k_pages.shape[:2])
    return batch.attend(
        q,
        k_pages,
        v_pages,
        scale=scale,
        v_dim=v_dim,
        window=window,
        sink_logits=sink_logits,
        k_scale=k_scale,
        v_scale=v_scale,
        num_splits=num_splits,
        backend=backend,
    )


class Batch:
    """Tables and lengths of one step, checked once, for the calls of all layers.

    The arguments are those of :func:`paged_attention`; there are num_blocks pages of block_size slots.
    """

    def __init__(self, block_tables, context_lens, query_lens, num_blocks, block_size):
        _check_lengths(block_tables, context_lens, query_lens, num_blocks, block_size)
        self.block_tables, self.context_lens, self.query_lens = block_tables, context_lens, query_lens
        self.contexts, self.queries = context_lens.tolist(), query_lens.tolist()
        self.num_blocks, self.block_size = num_blocks, block_size
        self._plans = {}

    def attend(
        self,
        q,
        k_pages,
        v_pages,
        *,
        scale,
        v_dim=None,
        window=None,
        sink_logits=None,
        k_scale=None,
        v_scale=None,
        num_splits=None,
        backend=None,
    ):
        """One layer: as :func:`paged_attention`."""
        if num_splits is not None and num_splits < 1:
            raise ValueError(f"num_splits is {num_splits}; a context is at least one part")
        _check_tensors(q, k_pages, v_pages, v_dim, window, sink_logits, k_scale, v_scale)
        if len(q) != sum(self.queries):
            raise ValueError(f"q has {len(q)} tokens and query_lens add up to {sum(self.queries)}")
        if k_pages.shape[:2] != (self.num_blocks, self.block_size):
            raise ValueError(
                f"k_pages are {k_pages.shape[0]} of {k_pages.shape[1]} slots; this batch is for "
                f"{self.num_blocks} of {self.block_size}"
            )
        pages = torch_reference.Pages(k_pages, v_pages, v_dim, k_scale, v_scale, q.dtype)
        backend = chosen(backend, q.device, _obstacle(q, pages))
        self._bill(q, pages, window)
        if backend == "reference":
            return self._reference(q, pages, window).attend(q, pages, scale, sink_logits)
        return self._kernel(q.device).attend(q, pages, scale, window, sink_logits, num_splits)

    def _reference(self, q, pages, window):
        key = window, pages.num_kv_heads, pages.key_dim, pages.k.dtype, q.device
        if key not in self._plans:
            token_bytes = pages.num_kv_heads * pages.key_dim * pages.k.element_size()
            lengths = self.contexts, self.queries, self.block_size
            self._plans[key] = torch_reference.Plan(
                self.block_tables.to(q.device), *lengths, pages.num_kv_heads, token_bytes, window
            )
        return self._plans[key]

    def _kernel(self, device):
        from kvlab.kernels import triton_launch

        if device not in self._plans:
            lengths = self.contexts, self.queries, self.block_size
            self._plans[device] = triton_launch.Plan(self.block_tables, *lengths, device)
        return self._plans[device]

    def _bill(self, q, pages, window):
        """What the visible tokens take, whatever a backend copies or pads."""
        for context, n in zip(self.contexts, self.queries, strict=True):
            if n and context:
                seen = context if window is None else min(context, window + n - 1)
                ledger.read(seen * pages.token_bytes)
                ledger.matmul(q.shape[1] * n, pages.key_dim, seen)
                ledger.matmul(q.shape[1] * n, seen, pages.value_dim)


def _obstacle(q, pages):
    def obstacle(interpreting):
        from kvlab.kernels import triton_launch

        return triton_launch.attention_obstacle(q, pages, interpreting)

    return obstacle


def _check_tensors(q, k_pages, v_pages, v_dim, window, sink_logits, k_scale, v_scale):
    if not q.is_floating_point():
        raise TypeError(f"q is {q.dtype}; queries are floating-point numbers")
    if q.dim() != 3:
        raise ValueError(f"q has shape {list(q.shape)}; it is [tokens, query heads, size]")
    for name, pages in (("k_pages", k_pages), ("v_pages", v_pages)):
        if pages is not None and pages.dim() != 4:
            raise ValueError(
                f"{name} has shape {list(pages.shape)}; it is [blocks, block size, KV heads, size]"
            )
    num_blocks, block_size, num_kv_heads, key_dim = k_pages.shape
    if q.shape[2] != key_dim:
        raise ValueError(f"q is {q.shape[2]} wide and k_pages {key_dim}: a query is as wide as a key")
    if q.shape[1] % num_kv_heads:
        raise ValueError(f"{q.shape[1]} query heads cannot share {num_kv_heads} KV heads evenly")
    if v_pages is None and not (v_dim and 0 < v_dim <= key_dim):
        raise ValueError(f"v_dim is {v_dim}; without v_pages it is between 1 and the keys' width {key_dim}")
    if v_pages is not None:
        if v_pages.shape[:3] != k_pages.shape[:3]:
            raise ValueError(
                f"v_pages has shape {list(v_pages.shape)} and k_pages {list(k_pages.shape)}: only the last "
                "size may differ"
            )
        if v_dim not in (None, v_pages.shape[3]):
            raise ValueError(f"v_dim is {v_dim}, and v_pages are {v_pages.shape[3]} wide: leave v_dim out")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; a query sees at least itself")
    if sink_logits is not None and list(sink_logits.shape) != [q.shape[1]]:
        raise ValueError(
            f"sink_logits has shape {list(sink_logits.shape)}; it is [{q.shape[1]}], one a query head"
        )
    fits = ((), (num_kv_heads,), (num_blocks, block_size, num_kv_heads))
    for name, factor, pages in (("k_scale", k_scale, k_pages), ("v_scale", v_scale, v_pages)):
        if factor is not None and pages is None:
            raise ValueError(f"{name} is given without {name[0]}_pages: the values are the keys, scale those")
        if isinstance(factor, torch.Tensor) and tuple(factor.shape) not in fits:
            raise ValueError(
                f"{name} has shape {list(factor.shape)}; it is a number, [{num_kv_heads}] or {list(fits[2])}"
            )
        if factor is None and pages is not None and pages.dtype != q.dtype:
            raise TypeError(f"{name[0]}_pages is {pages.dtype} and q {q.dtype}: give {name}, or one dtype")


def _check_lengths(block_tables, context_lens, query_lens, num_blocks, block_size):
    """What lies in the tables. On the host: a kernel on a device trusts whoever made them."""
    for name, numbers, dims in (
        ("block_tables", block_tables, 2),
        ("context_lens", context_lens, 1),
        ("query_lens", query_lens, 1),
    ):
        if numbers.is_floating_point() or numbers.dtype == torch.bool or numbers.dim() != dims:
            raise ValueError(
                f"{name} is {numbers.dtype} of shape {list(numbers.shape)}; it holds integers, and has "
                f"{dims} dimension{'s' * (dims > 1)}"
            )
        if len(numbers) != len(block_tables):
            raise ValueError(
                f"{name} has {len(numbers)} rows and block_tables {len(block_tables)}: one a sequence"
            )
    if bool((query_lens < 0).any()) or bool((context_lens < 0).any()):
        raise ValueError("query_lens and context_lens are 0 or more")
    short = (context_lens > 0) & (context_lens < query_lens)
    if bool(short.any()):
        b = int(short.nonzero()[0])
        raise ValueError(
            f"sequence {b} has {int(query_lens[b])} new tokens in a context of {int(context_lens[b])}: the "
            "context counts the new tokens, too"
        )
    needed = (context_lens + block_size - 1) // block_size  # [B]
    if len(needed) and int(needed.max()) > block_tables.shape[1]:
        b = int(needed.argmax())
        raise ValueError(
            f"the context of sequence {b}, {int(context_lens[b])} tokens, takes {int(needed[b])} blocks of "
            f"{block_size}, and its table has {block_tables.shape[1]}"
        )
    used = torch.arange(block_tables.shape[1], device=block_tables.device) < needed[:, None]  # [B, blocks]
    outside = used & ((block_tables < 0) | (block_tables >= num_blocks))
    if bool(outside.any()):
        b, place = outside.nonzero()[0].tolist()
        raise ValueError(
            f"block_tables[{b}, {place}] is {int(block_tables[b, place])}; pages are 0 to {num_blocks - 1}"
        )
