"""Which backend computes, what it refuses, and what is said of it: here, and in processes of other kinds."""

import math
import os
import subprocess
import sys

import pytest
import torch

from kvlab import Ledger
from kvlab.kernels import backend, language, mode, paged_attention, triton_launch, watch
from kvlab.kernels.backend import INSTALL, Mode, chosen
from kvlab.paths import ROOT
from tests.kernels import cases
from tests.kernels.cases import assert_exact, build, in_dtype

PLAIN = cases.PLAIN | {"contexts": [5, 9], "queries": [1, 3]}
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def machine(monkeypatch):
    """machine(triton=..., interpret=..., gpu=...): as if this were another one."""

    def become(triton=True, interpret=None, gpu=False):
        monkeypatch.setattr(backend, "installed", lambda: triton)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        if interpret is not None:
            monkeypatch.setenv("TRITON_INTERPRET", interpret)

    return become


@pytest.mark.parametrize(
    ("here", "name", "why"),
    [
        ({"triton": False}, "reference", f"Triton is not installed: {INSTALL}"),
        ({"triton": False, "interpret": "1", "gpu": True}, "reference", "not installed"),
        ({"interpret": "1"}, "interpreter", "TRITON_INTERPRET is set"),
        ({"interpret": "True", "gpu": True}, "interpreter", "TRITON_INTERPRET is set"),
        ({"interpret": "on"}, "interpreter", "TRITON_INTERPRET is set"),
        ({"interpret": "0", "gpu": True}, "triton", "compiles for H100"),
        ({"gpu": True}, "triton", "compiles for H100"),
        ({}, "reference", "runs when asked for"),
        ({"interpret": ""}, "reference", "no GPU here"),
        ({"interpret": "off"}, "reference", "no GPU here"),
    ],
)
def test_the_mode_and_why(machine, here, name, why):
    machine(**here)
    assert mode() == Mode(name, mode().why) and why in mode().why
    assert str(mode()) == f"{name}: {mode().why}"


def nothing(interpreting):
    return None


def refused(interpreting):
    return ValueError(f"refused, interpreting: {interpreting}")


@pytest.mark.parametrize(
    ("here", "asked", "device", "obstacle", "name"),
    [
        ({}, None, CPU, nothing, "reference"),
        ({}, "interpreter", CPU, nothing, "interpreter"),
        ({}, "reference", CPU, refused, "reference"),
        ({"interpret": "1"}, None, CPU, nothing, "interpreter"),
        ({"interpret": "1"}, None, CPU, refused, "reference"),
        ({"gpu": True}, None, CPU, refused, "reference"),
        ({"gpu": True}, None, GPU, nothing, "triton"),
        ({"gpu": True}, None, GPU, refused, "reference"),
        ({"gpu": True}, "reference", GPU, nothing, "reference"),
        ({"gpu": True}, "triton", GPU, nothing, "triton"),
        ({"triton": False}, None, CPU, refused, "reference"),
        ({"triton": False, "gpu": True}, None, GPU, refused, "reference"),
        ({"triton": False}, "reference", CPU, refused, "reference"),
    ],
)
def test_the_choice(machine, here, asked, device, obstacle, name):
    machine(**here)
    assert chosen(asked, device, obstacle) == name


def test_what_was_asked_for_by_name_is_done_or_refused(machine):
    machine(gpu=True)
    with pytest.raises(ValueError, match="refused, interpreting: True"):
        chosen("interpreter", CPU, refused)
    with pytest.raises(ValueError, match="refused, interpreting: False"):
        chosen("triton", GPU, refused)
    with pytest.raises(ValueError, match="backend is 'cuda'; known: triton, interpreter, reference"):
        chosen("cuda", GPU, nothing)
    machine(triton=False)
    for name in ("triton", "interpreter"):
        with pytest.raises(
            ImportError, match=f"backend is '{name}', and Triton is not installed: pip install"
        ):
            chosen(name, CPU, nothing)


def test_no_gpu_is_looked_for_where_none_is_needed(machine, monkeypatch):
    """Asking for one takes a second in a new process."""
    machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("looked for a GPU"))
    assert chosen(None, CPU, nothing) == "reference"


UNFIT = {
    "queries of float64": ("q", lambda given, options: given | {"q": given["q"].double()}, TypeError),
    "pages of float64": (
        "v_pages",
        lambda given, options: given | {"v_pages": given["v_pages"].double()},
        TypeError,
    ),
    "pages in pieces": (
        "k_pages",
        lambda given, options: given | {"k_pages": torch.stack([given["k_pages"]] * 2, dim=-1)[..., 0]},
        ValueError,
    ),
}
TOO_WIDE = {
    "keys": ({"key_dim": 257}, "k_pages is 257 wide; the kernel takes up to 256"),
    "values": ({"value_dim": 257}, "v_pages is 257 wide"),
    "latent": (
        {"key_dim": 520, "value_dim": 513, "values_in_keys": True},
        "v_dim is 513 of k_pages 520 wide",
    ),
    "rope": ({"key_dim": 66, "value_dim": 1, "values_in_keys": True}, "v_dim is 1 of k_pages 66 wide"),
}


@pytest.fixture
def interprets(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.mark.parametrize("what", UNFIT)
def test_what_the_kernel_does_not_take_is_named_and_left_to_the_reference(what, interprets):
    name, change, error = UNFIT[what]
    given, options = in_dtype(*build(**PLAIN), torch.float32)
    options |= {"k_scale": 1.0, "v_scale": 1.0}
    unfit = change(given, options)
    with pytest.raises(error, match=f"^{name} "):
        paged_attention(**unfit, **options, backend="interpreter")
    got = paged_attention(**unfit, **options)
    assert got.dtype == unfit["q"].dtype
    assert torch.allclose(got.float(), paged_attention(**given, **options, backend="reference"), atol=1e-5)


@pytest.mark.parametrize("what", TOO_WIDE)
def test_too_wide_heads_are_named_and_left_to_the_reference(what, interprets):
    more, message = TOO_WIDE[what]
    given, options = in_dtype(*build(**PLAIN | more), torch.float32)
    with pytest.raises(ValueError, match=message):
        paged_attention(**given, **options, backend="interpreter")
    reference = paged_attention(**given, **options, backend="reference")
    assert torch.equal(paged_attention(**given, **options), reference)


def test_the_widest_heads_pass(interprets):
    for key_dim, value_dim, latent in ((256, 256, False), (576, 512, True), (65, 1, True)):
        sizes = {"contexts": [3], "queries": [1], "kv_heads": 1, "group": 1}
        sizes |= {"key_dim": key_dim, "value_dim": value_dim, "values_in_keys": latent}
        given, options = in_dtype(*build(**PLAIN | sizes), torch.float32)
        options["scale"] /= math.sqrt(key_dim)
        assert_exact(paged_attention(**given, **options), given, options)


def test_where_triton_interprets_it_is_the_kernel_that_runs(interprets):
    given, options = in_dtype(*build(**PLAIN), torch.float32)
    with watch.watch(k_pages=given["k_pages"], v_pages=given["v_pages"]) as seen:
        assert_exact(paged_attention(**given, **options), given, options)
    assert seen
    with watch.watch() as seen:
        paged_attention(**given, **options, backend="reference")
    assert not seen


def test_an_interpreting_process_compiles_nothing():
    given, options = in_dtype(*build(**PLAIN), torch.float32)
    with pytest.raises(RuntimeError, match="imported Triton to interpret, for good: .* TRITON_INTERPRET=0"):
        paged_attention(**given, **options, backend="triton")


@pytest.mark.parametrize("before", [None, "on"])
def test_other_processes_decide_for_themselves(monkeypatch, before):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if before:
        monkeypatch.setenv("TRITON_INTERPRET", before)
    language._import_to_interpret()
    assert os.environ.get("TRITON_INTERPRET") == before


@pytest.mark.parametrize(("capability", "fits"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_a_gpu_without_the_dtype_is_said_so(monkeypatch, capability, fits):
    monkeypatch.setattr(triton_launch, "interpreted", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    pages = torch.empty(1, 1, 1, 1, dtype=torch.float8_e4m3fn, device="meta")  # not on the CPU, that is
    problem = triton_launch.obstacle({"k_pages": (pages, triton_launch.STORED)}, interpreting=False)
    assert problem is None if fits else str(problem).startswith("k_pages is torch.float8_e4m3fn, which this")


COMMON = """
import os, sys, torch
import kvlab.kernels as kernels
from kvlab.kernels import paged_attention, write_pages
torch.manual_seed(0)
q, k, v = torch.randn(2, 4, 6), torch.randn(3, 4, 2, 6), torch.randn(3, 4, 2, 5)
tables, contexts = torch.tensor([[0, 1], [2, 0]]), torch.tensor([7, 2])
def attend(backend): return paged_attention(q, k, v, tables, contexts, scale=0.3, backend=backend)
one, last = torch.ones(1, 2, 6), torch.tensor([11])
def write(backend): return write_pages(one, None, k, None, last, backend=backend)
def refused(call, *words):
    try: call()
    except Exception as error: return all(word in f"{type(error).__name__} {error}" for word in words)
"""
PROCESSES = {
    "compiles": (
        {"TRITON_INTERPRET": "0"},
        """
from kvlab.kernels.language import interpreted
from kvlab.kernels.triton_attention import attend_part
print(not interpreted, type(attend_part).__name__ == "JITFunction")
print(refused(lambda: attend("triton"), "ValueError", "q is on the CPU", "'reference'"))
print(refused(lambda: write("triton"), "ValueError", "k is on the CPU"), not (k[2, 3] == 1).any())
for call in (attend, write):
    print(refused(lambda: call("interpreter"), "RuntimeError", "to compile", "TRITON_INTERPRET=1"))
print(torch.equal(attend(None), attend("reference")))
""",
    ),
    "imported Triton before": (
        {},
        """
import triton
from kvlab.kernels.language import interpreted
from kvlab.kernels.triton_attention import attend_part
print(not interpreted, type(attend_part).__name__ == "JITFunction", "TRITON_INTERPRET" not in os.environ)
for call in (attend, write):
    print(refused(lambda: call("interpreter"), "RuntimeError", "to compile", "TRITON_INTERPRET=1"))
print(torch.equal(attend(None), attend("reference")))
""",
    ),
    "has no GPU": (
        {},
        """
print(kernels.mode().backend == "reference", "triton" not in sys.modules)
print(torch.equal(attend(None), attend("reference")), "kvlab.kernels.language" not in sys.modules)
print(torch.allclose(attend("interpreter"), attend("reference"), atol=1e-6))
print("TRITON_INTERPRET" not in os.environ, sys.modules["kvlab.kernels.language"].interpreted)
import triton, triton.language as tl  # a kernel of the reader's own is interpreted, too
@triton.jit
def add(x, n: tl.constexpr): tl.store(x + tl.arange(0, n), tl.load(x + tl.arange(0, n)) + 1)
x = torch.zeros(4); add[1,](x, n=4)
print((x == 1).all().item())
""",
    ),
    "has no Triton": (
        {"TRITON_INTERPRET": "1"},
        """
sys.modules["triton"] = None  # as find_spec and the import statement see it
print(kernels.mode().backend == "reference", "pip install triton" in kernels.mode().why)
print(torch.equal(attend(None), attend("reference")))
write(None)
print((k[2, 3] == 1).all().item())
print(all(refused(lambda: call(name), "ImportError", f"'{name}'", "pip install triton")
          for call in (attend, write) for name in ("triton", "interpreter")))
from kvlab.kernels.language import interpreted, jit, tl
from kvlab.kernels.triton_attention import attend_part, merge
from kvlab.kernels.triton_write import store
@jit
def mine(x, n: tl.constexpr): tl.store(x + tl.arange(0, n), 0)
@jit(do_not_specialize=["n"])
def yours(x, n): tl.store(x, tl.sum(n).to(tl.float32))
print(not interpreted)
kernels = {"mine": mine, "yours": yours, "attend_part": attend_part, "merge": merge, "store": store}
for name, kernel in kernels.items():
    for grid in (1, (1,), (2, 3)):
        print(refused(lambda: kernel[grid](1), f"ImportError {name} is a Triton kernel", "pip install"))
from kvlab.kernels.watch import watch
with watch(): pass
print(not hasattr(tl, "__wrapped__"))
""",
    ),
}


@pytest.fixture(scope="module")
def processes():
    """All begin at once, and each test waits for its own."""
    started = {}
    for name, (environment, code) in PROCESSES.items():
        inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        environment = inherited | environment | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        started[name] = subprocess.Popen(
            [sys.executable, "-c", COMMON + code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_that(name, processes):
    said, errors = processes[name].communicate(timeout=120)
    assert processes[name].returncode == 0, errors
    assert set(said.split()) == {"True"}, said


def test_what_is_refused_is_not_billed():
    given, options = build(**PLAIN)  # float64, which the kernel does not take
    with Ledger() as bill, pytest.raises(TypeError, match="q is torch.float64"):
        paged_attention(**given, **options, backend="interpreter")
    assert (bill.flops, bill.kv_read, bill.copied) == (0, 0, 0)
