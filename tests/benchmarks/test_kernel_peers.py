"""Peers compute what we do. Those that are not here are stood in for, by what their documentation says."""

import sys
from types import ModuleType

import pytest
import torch

from kvlab.benchmarks.kernel import peers
from kvlab.benchmarks.kernel.cases import Case
from kvlab.benchmarks.kernel.problem import Problem

CASE = Case(3, 256, heads=6, kv_heads=2, key_dim=16, value_dim=16, dtype="float32", stored="float32")


@pytest.fixture
def problem():
    return Problem(CASE, torch.device("cpu"))


def softly(q, k_pages, v_pages, tables, lengths, scale):
    """q [B, Hq, D], pages [num_blocks, size, Hkv, D] -> [B, Hq, D], a sequence at a time."""
    out = []
    for row, table, length in zip(q, tables, lengths, strict=True):
        k, v = (pages[table.long()].flatten(0, 1)[:length] for pages in (k_pages, v_pages))  # [T, Hkv, D]
        k, v = (x.repeat_interleave(len(row) // x.shape[1], dim=1) for x in (k, v))  # [T, Hq, D]
        weights = (torch.einsum("hd,thd->ht", row, k) * scale).softmax(dim=-1)
        out.append(torch.einsum("ht,thd->hd", weights, v))
    return torch.stack(out)


def module(monkeypatch, name, **members):
    made = ModuleType(name)
    for key, value in members.items():
        setattr(made, key, value)
    monkeypatch.setitem(sys.modules, name, made)


class BatchDecode:
    """FlashInfer: https://docs.flashinfer.ai/api/attention.html"""

    asked = []

    def __init__(self, float_workspace_buffer, kv_layout="NHD", *, use_tensor_cores=False):
        assert float_workspace_buffer.dtype == torch.uint8 and float_workspace_buffer.nbytes == 128 * 2**20
        assert kv_layout == "NHD"
        self.asked.append(use_tensor_cores)

    def plan(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        *,
        q_data_type="float16",
        kv_data_type=None,
        sm_scale=None,
    ):
        assert {indptr.dtype, indices.dtype, last_page_len.dtype} == {torch.int32}
        assert len(indptr) == len(last_page_len) + 1 and indptr[-1] == len(indices)
        self.tables = [indices[a:b] for a, b in zip(indptr[:-1], indptr[1:], strict=True)]
        pages = (indptr[1:] - indptr[:-1]).tolist()
        self.lengths = [(n - 1) * page_size + int(m) for n, m in zip(pages, last_page_len, strict=True)]
        self.sizes, self.scale = (num_qo_heads, num_kv_heads, head_dim, page_size), sm_scale
        self.kinds = q_data_type, kv_data_type

    def run(self, q, paged_kv_cache):
        k, v = paged_kv_cache
        assert (q.shape[1], k.shape[2], q.shape[2], k.shape[1]) == self.sizes
        assert (q.dtype, k.dtype) == self.kinds
        return softly(q, k, v, self.tables, self.lengths, self.scale)


def with_kvcache(of_pages, name):
    def call(q, k_cache, v_cache, *, cache_seqlens, softmax_scale, causal, **table):
        assert list(table) == [name] and table[name].dtype == cache_seqlens.dtype == torch.int32
        assert k_cache.shape[1] % of_pages == 0, "Paged KV cache block size must be divisible by 256"
        assert causal and q.shape[1] == 1
        return softly(q[:, 0], k_cache, v_cache, table[name], cache_seqlens, softmax_scale)[:, None]

    return call


def varlen(
    q,
    k,
    v,
    *,
    cu_seqlens_q,
    max_seqlen_q,
    seqused_k,
    max_seqlen_k,
    block_table,
    softmax_scale,
    causal,
    fa_version,
):
    assert cu_seqlens_q.tolist() == list(range(len(q) + 1)) and max_seqlen_q == 1 and causal
    assert {cu_seqlens_q.dtype, seqused_k.dtype, block_table.dtype} == {torch.int32}
    assert max_seqlen_k == int(seqused_k.max()) and fa_version in (2, 3)
    return softly(q, k, v, block_table, seqused_k, softmax_scale)


@pytest.fixture
def installed(monkeypatch):
    module(monkeypatch, "flashinfer", BatchDecodeWithPagedKVCacheWrapper=BatchDecode)
    module(monkeypatch, "flash_attn", flash_attn_with_kvcache=with_kvcache(256, "block_table"))
    module(monkeypatch, "flash_attn_interface", flash_attn_with_kvcache=with_kvcache(1, "page_table"))
    known = {"flash_attn_varlen_func": varlen, "is_fa_version_supported": lambda version: version == 3}
    module(monkeypatch, "vllm")
    module(monkeypatch, "vllm.vllm_flash_attn", **known)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_it_computes_what_we_do(peer, problem, installed):
    ours = problem.attend("reference")
    step = peer.prepare(problem)
    for _ in range(2):  # and again
        assert (step().view(ours.shape) - ours).abs().max() < 1e-5


def test_flashinfer_is_tried_in_both_ways(problem, installed):
    del BatchDecode.asked[:]
    for peer in peers.PEERS:
        peer.prepare(problem)
    assert BatchDecode.asked == [False, True]


def test_vllm_takes_the_newest_that_works(problem, installed, monkeypatch):
    used = []
    here = sys.modules["vllm.vllm_flash_attn"]
    monkeypatch.setattr(here, "flash_attn_varlen_func", lambda *x, fa_version, **y: used.append(fa_version))
    peers.vllm(problem)()
    monkeypatch.setattr(here, "is_fa_version_supported", lambda version: False)
    peers.vllm(problem)()
    assert used == [3, 2]


def test_flex_attention_is_compiled_on_a_gpu_alone(problem, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda call, dynamic: asked.append(dynamic) or call)
    peers.flex(problem)
    assert asked == []
    problem.by_head, problem.device = problem.by_head, torch.device("cuda")
    peers.flex(problem)
    assert asked == [False]


def test_peers_have_names_of_their_own():
    assert len({peer.name for peer in peers.PEERS}) == len(peers.PEERS)


def test_the_gather_is_part_of_what_is_timed(problem):
    step = peers.gather_and_sdpa(problem)
    problem.v.zero_()
    assert step().abs().max() == 0


def test_what_is_missing_raises_import_error(problem, monkeypatch):
    for name in ("flashinfer", "flash_attn", "flash_attn_interface", "vllm"):
        monkeypatch.setitem(sys.modules, name, None)
    missing = []
    for peer in peers.PEERS:
        try:
            peer.prepare(problem)
        except ImportError:
            missing.append(peer)
    assert len(missing) == 5 and all(peer.install.startswith(("pip install", "build")) for peer in missing)
