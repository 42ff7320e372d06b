"""What the kernel's benchmark measures: sizes, bytes and FLOPs, and checks that find a wrong kernel."""

from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch

import kvlab
from kvlab.benchmarks.kernel import cases, checks
from kvlab.benchmarks.kernel.cases import Case
from kvlab.benchmarks.kernel.problem import Problem
from kvlab.kernels import backend, triton_launch, write

CPU = torch.device("cpu")
SMALL = {
    "the usual": Case(2, 32),
    "other groups": Case(3, 64, heads=6, kv_heads=2, key_dim=24, value_dim=20),
    "MLA": Case(2, 32, **cases.MLA),
    "large blocks": Case(1, 256, block_size=128),
    "8 bits": Case(2, 32, stored="float8_e4m3fn"),
    "float16": Case(1, 16, dtype="float16", stored="float16"),
}
needs_triton = pytest.mark.skipif(not backend.installed(), reason="Triton is not installed")


@pytest.mark.parametrize("name", SMALL)
def test_bytes_are_those_of_the_tensors(name):
    case = SMALL[name]
    problem = Problem(case, CPU)
    pages = [x for x in (problem.k, problem.v) if x is not None]
    assert sum(x.nbytes for x in pages) == case.page_bytes
    out = problem.attend("reference")
    assert out.shape == (case.batch, case.heads, case.value_dim) and out.dtype == problem.q.dtype
    assert sum(x.nbytes for x in (*pages, problem.q, problem.tables, out)) == case.bytes


@pytest.mark.parametrize("name", SMALL)
def test_the_ledger_counts_as_many(name):
    case = SMALL[name]
    with kvlab.Ledger() as bill:
        Problem(case, CPU).attend("reference")
    assert (bill.flops, bill.kv_read) == (case.flops, case.page_bytes)


def test_pages_lie_in_any_order_and_each_is_used_once():
    problem = Problem(Case(4, 256), CPU)
    order = problem.tables.flatten().tolist()
    assert sorted(order) == list(range(len(problem.k)))
    assert sum(b == a + 1 for a, b in pairwise(order)) < len(order) / 4


def test_all_numbers_are_random(monkeypatch):
    monkeypatch.setattr("kvlab.benchmarks.kernel.problem.CHUNK", 1000)
    problem = Problem(Case(2, 64), CPU)
    for x in (problem.q, problem.k, problem.v):
        assert 0.97 < x.float().std() < 1.03 and x.unique().numel() > 1000


def test_without_pages_there_are_the_same_keys():
    problem = Problem(Case(2, 32, heads=4, kv_heads=2, key_dim=16, value_dim=12), CPU)
    for pages, by_token, by_head in zip(
        (problem.k, problem.v), problem.by_token, problem.by_head, strict=True
    ):
        for b in range(2):
            for t in range(32):
                row = pages[problem.tables[b, t // 16], t % 16]  # [Hkv, D]
                assert torch.equal(by_token[b, t], row) and torch.equal(by_head[b, :, t], row)


def test_the_usual_sizes():
    assert cases.LONE[2:] == cases.MANY[2:] == (32, 8, 128, 128, False, 16, "bfloat16", "bfloat16")
    assert (cases.LONE[:2], cases.MANY[:2]) == ((1, 32768), (64, 8192))
    assert cases.BATCHES == (1, 4, 16, 64, 256) and cases.CONTEXTS == (128, 1024, 8192, 32768, 131072)
    assert all(context % 128 == 0 for context in cases.CONTEXTS), "whole blocks of every size"
    assert Problem(SMALL["other groups"], CPU).scale == 24**-0.5


def test_the_grid_is_what_there_is_room_for():
    assert len(cases.grid(2**50)) == len(set(cases.grid(2**50))) == 25
    assert cases.grid(2**50)[:2] == [cases.LONE, cases.MANY]
    free = 80 * 2**30
    kept = cases.grid(free)
    assert all(case.page_bytes <= 0.6 * free for case in kept)
    assert {case for case in cases.grid(2**50) if case not in kept} == {Case(256, 2**17)}
    assert cases.grid(0) == []


def test_options_differ_from_their_point_in_what_they_say():
    made = cases.options(2**50, "float8_e5m2")
    assert len(made) == len(set(made)) == 14
    for what, case in made:
        point = cases.LONE if case.batch == 1 else cases.MANY
        assert case != point and case.context == point.context
        if what.startswith("group of"):
            assert (
                case.heads // case.kv_heads == int(what.split()[-1]) and case.page_bytes == point.page_bytes
            )
        if what.startswith("blocks of"):
            assert case.block_size == int(what.split()[-1])
    assert {case.stored for what, case in made if what == "float8_e5m2 pages"} == {"float8_e5m2"}
    assert cases.options(0, "int8") == []
    tiled = cases.tiled(2**50, "float8_e5m2")
    assert tiled[:2] == [cases.LONE, cases.MANY] and {case.stored for case in tiled[2:]} > {"float8_e5m2"}
    assert [case.latent for case in tiled] == [False, False, False, True]


@needs_triton
@pytest.mark.parametrize("case", [Case(1, 512), Case(2, 256, heads=64), Case(1, 512, **cases.MLA)], ids=str)
def test_parts_and_tiles_are_those_that_the_kernel_is_started_with(case, monkeypatch):
    started = []

    class Started:
        def __getitem__(self, grid):
            return lambda *given, **options: started.append((grid, options))

    monkeypatch.setattr(triton_launch, "attend_part", Started())
    monkeypatch.setattr(triton_launch, "merge", Started())
    monkeypatch.setattr(triton_launch, "multiprocessors", lambda device: 132)
    problem, small = Problem(case, CPU), case.tiling._replace(tokens=16)
    for wanted, tiling in ((None, None), (3, None), (None, small)):
        del started[:]
        problem.attend("interpreter", wanted, tiling)
        (grid, options), _ = started
        assert grid[2] == case.parts(132, wanted, tiling)
        sizes = options["ROWS"], options["TILE"], options["num_warps"], options["num_stages"]
        assert sizes == (tiling or case.tiling)


@needs_triton
def test_tilings_are_near_the_usual_one():
    for case in (cases.LONE, Case(1, 16, **cases.MLA)):
        made = cases.tilings(case)
        assert len(made) == len(set(made)) >= 8 and case.tiling not in made
        for tiling in made:
            assert 1 <= sum(a != b for a, b in zip(tiling, case.tiling, strict=True)) <= 2
            assert min(tiling[:2]) >= 16 and min(tiling) >= 1


@needs_triton
def test_other_tiles_give_the_same():
    problem = Problem(Case(1, 32, heads=2, kv_heads=1, key_dim=16, value_dim=16), CPU)
    right = problem.attend("reference").float()
    for tiling in (problem.case.tiling._replace(tokens=16), problem.case.tiling._replace(rows=32)):
        assert (problem.attend("interpreter", None, tiling).float() - right).abs().max() < 0.02


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.what)
def test_the_reference_passes_every_check(check):
    off = checks.steps_off(check._replace(unused=3), CPU, "reference", "float8_e5m2")
    assert 0 < off < 1


@needs_triton
@pytest.mark.parametrize("check", [c for c in checks.CHECKS if not c.latent], ids=lambda check: check.what)
def test_the_kernel_passes_small_checks(check):
    contexts, queries = tuple(min(n, 19) for n in check.contexts), tuple(min(n, 3) for n in check.queries)
    small = check._replace(contexts=contexts, queries=queries, unused=3, heads=check.heads // 2, kv_heads=1)
    assert 0 < checks.steps_off(small, CPU, "interpreter", "float8_e4m3fn") < 1


def test_checks_are_odd():
    """Every option somewhere, and lengths on both sides of a block's border."""
    for name in ("window", "parts", "sinks", "latent", "stored", "scales"):
        assert len({getattr(check, name) for check in checks.CHECKS}) > 1
    assert {check.dtype for check in checks.CHECKS} == set(checks.STEPS)
    widths = {(check.key_dim, check.value_dim) for check in checks.CHECKS}
    assert widths >= {(64, 64), (80, 48), (96, 96), (128, 128), (192, 128), (256, 256), (576, 512)}
    assert any(0 in check.contexts for check in checks.CHECKS)
    assert any(
        check.unused * check.block_size * check.kv_heads * check.key_dim >= 2**31 for check in checks.CHECKS
    )
    assert min(check.unused for check in checks.CHECKS) >= 3
    assert max(check.unused for check in checks.CHECKS) < checks.NOWHERE / 2
    assert all(q <= c or c == 0 for x in checks.CHECKS for q, c in zip(x.queries, x.contexts, strict=True))


PLAIN = checks.Check("", (17, 40), (3, 1))
WRONG = {
    "a window a token too long": ({"window": 5}, "window", lambda given: {"window": given["window"] + 1}),
    "no sinks": ({"sinks": True}, "sink_logits", lambda given: {"sink_logits": None}),
    "another scale": ({}, "scale", lambda given: {"scale": given["scale"] * 1.05}),
    "keys of other size": ({"stored": "int8", "scales": "head"}, "k_scale", lambda given: {"k_scale": 0.02}),
    "pages of others": ({}, "k_pages", lambda given: {"k_pages": given["k_pages"].roll(1, 0)}),
    "not a number": ({}, "v_pages", lambda given: {"v_pages": given["v_pages"] * torch.nan}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_fails(what, monkeypatch):
    sizes, name, change = WRONG[what]
    right = checks.Batch.attend

    def wrong(batch, q, **given):
        assert name in given
        return right(batch, q, **given | (change(given) if q.dtype == torch.bfloat16 else {}))

    monkeypatch.setattr(checks.Batch, "attend", wrong)
    assert not checks.steps_off(PLAIN._replace(**sizes), CPU, "reference", None) <= 1


def test_what_lies_in_no_context_is_not_a_number():
    made = checks._made(PLAIN._replace(contexts=(17, 0), queries=(1, 1)), CPU, None)
    plain, paged = made["plain"]["k_pages"], made["paged"]["k_pages"]
    assert plain.isnan()[1, 1:].all() and not plain.isnan()[0].any() and not plain.isnan()[1, 0].any()
    assert len(paged) == len(plain) + 3 and paged[:3].isnan().all()
    assert torch.equal(paged[made["tables"][0, :2]].nan_to_num(), plain.nan_to_num())
    assert made["tables"].tolist()[1] == [checks.NOWHERE] * 2


def test_pages_written_otherwise_are_named(monkeypatch):
    assert checks.written_otherwise(CPU, "reference", "float8_e4m3fn") == []
    store, calls = write._store, []

    def wrong(new, pages, slots, scale):
        calls.append(pages.dtype)
        store(new + (pages.dtype == torch.int8 and len(calls) % 4 == 0), pages, slots, scale)

    monkeypatch.setattr(write, "_store", wrong)
    assert checks.written_otherwise(CPU, "reference", "float8_e4m3fn") == [
        "int8, head scale",
        "int8, each scale",
    ]


def test_a_layer_that_waits_is_noticed():
    watched = []

    @contextmanager
    def strict():
        monkey, attend = pytest.MonkeyPatch(), checks.Batch.attend
        monkey.setattr(checks.Batch, "attend", lambda *a, **o: watched.append(1) or attend(*a, **o))
        yield
        monkey.undo()

    checks.attend_without_waiting(CPU, "reference", strict)
    assert len(watched) == 2
