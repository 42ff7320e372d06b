"""Others that compute the same: each prepares what it needs of a problem, and gives the call that is timed.

Each of them is given its layout of keys and values for nothing. Where it is not installed, preparing raises
ImportError. The names and layouts are those of PyTorch 2.13, FlashInfer 0.6, FlashAttention 2.8 and 3, and
vLLM 0.20.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

FLASH_2_PAGES = 256  # it takes multiples of this


class Peer(NamedTuple):
    name: str
    prepare: object  # Problem -> a call that returns [B, Hq, D], or the same with a dimension of 1
    install: str = "comes with PyTorch"


def sdpa(problem):
    k, v = problem.by_head
    q = problem.q[:, :, None]  # [B, Hq, 1, D]
    return lambda: scaled_dot_product_attention(q, k, v, scale=problem.scale, enable_gqa=True)


def gather_and_sdpa(problem):
    q, tables = problem.q[:, :, None], problem.tables.long()

    def run():
        k, v = (pages[tables].flatten(1, 2).transpose(1, 2) for pages in (problem.k, problem.v))
        return scaled_dot_product_attention(q, k, v, scale=problem.scale, enable_gqa=True)

    return run


def flex(problem):
    from torch.nn.attention.flex_attention import flex_attention

    on_gpu = problem.device.type == "cuda"  # elsewhere it is only looked at, and compiling takes long
    call = torch.compile(flex_attention, dynamic=False) if on_gpu else flex_attention
    (k, v), q = problem.by_head, problem.q[:, :, None]
    return lambda: call(q, k, v, scale=problem.scale, enable_gqa=True)


def flashinfer(problem):
    return _flashinfer(problem, use_tensor_cores=False)


def flashinfer_tensor_cores(problem):
    return _flashinfer(problem, use_tensor_cores=True)


def _flashinfer(problem, use_tensor_cores):
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    case, q, pages = problem.case, problem.q, (problem.k, problem.v)
    workspace = torch.empty(2**27, dtype=torch.uint8, device=problem.device)
    wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=use_tensor_cores)
    starts = torch.arange(case.batch + 1, dtype=torch.int32) * problem.tables.shape[1]
    last = torch.full((case.batch,), case.block_size, dtype=torch.int32)
    sizes = case.heads, case.kv_heads, case.key_dim, case.block_size
    kinds = {"q_data_type": q.dtype, "kv_data_type": problem.k.dtype, "sm_scale": problem.scale}
    wrapper.plan(starts, problem.tables.flatten(), last, *sizes, **kinds)
    return lambda: wrapper.run(q, pages)


def flash_attention_2(problem):
    from flash_attn import flash_attn_with_kvcache

    k, v = (x.flatten(0, 1).unflatten(0, (-1, FLASH_2_PAGES)) for x in problem.by_token)
    tables = torch.arange(len(k), dtype=torch.int32, device=problem.device).view(problem.case.batch, -1)
    options = {"cache_seqlens": problem.contexts, "softmax_scale": problem.scale, "causal": True}
    return lambda: flash_attn_with_kvcache(problem.q[:, None], k, v, block_table=tables, **options)


def flash_attention_3(problem):
    from flash_attn_interface import flash_attn_with_kvcache

    options = {"cache_seqlens": problem.contexts, "softmax_scale": problem.scale, "causal": True}
    given = problem.q[:, None], problem.k, problem.v
    return lambda: flash_attn_with_kvcache(*given, page_table=problem.tables, **options)


def vllm(problem):
    from vllm.vllm_flash_attn import flash_attn_varlen_func, is_fa_version_supported

    case = problem.case
    options = {
        "cu_seqlens_q": torch.arange(case.batch + 1, dtype=torch.int32, device=problem.device),
        "max_seqlen_q": 1,
        "seqused_k": problem.contexts,
        "max_seqlen_k": case.context,
        "block_table": problem.tables,
        "softmax_scale": problem.scale,
        "causal": True,
        "fa_version": 3 if is_fa_version_supported(3) else 2,
    }
    return lambda: flash_attn_varlen_func(problem.q, problem.k, problem.v, **options)


PEERS = [
    Peer("PyTorch SDPA, contiguous", sdpa),
    Peer("PyTorch SDPA, its gather of pages included", gather_and_sdpa),
    Peer("flex attention, contiguous", flex),
    Peer("FlashInfer", flashinfer, "pip install flashinfer-python"),
    Peer("FlashInfer, tensor cores", flashinfer_tensor_cores, "pip install flashinfer-python"),
    Peer("FlashAttention 2, pages of 256 in a row", flash_attention_2, "pip install flash-attn"),
    Peer("FlashAttention 3", flash_attention_3, "build hopper/ of Dao-AILab/flash-attention"),
    Peer("vLLM's FlashAttention", vllm, "pip install vllm"),
]
