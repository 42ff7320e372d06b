"""Timing on a GPU, with PyTorch's part of it stood in for."""

import subprocess
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from kvlab.benchmarks.kernel import gpu
from kvlab.benchmarks.kernel.gpu import Gpu, first_line
from tests.benchmarks.pretended import Pretended


class Device:
    """Records what it is told, in order; each run of what is timed takes the next of ``seconds``."""

    def __init__(self, seconds=(0.002,), capture=None):
        self.seconds, self.capture, self.log, self.now = list(seconds), capture, [], 0.0
        self.stream = "main"

    def step(self):
        self.log.append("step")
        if self.capturing:
            if self.capture is not None:
                raise self.capture
            return
        self.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]

    capturing = False


@pytest.fixture
def device(monkeypatch):
    made = Device()

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            made.log.append("event")
            self.at = made.now

        def elapsed_time(self, other):
            return 1000 * (other.at - self.at)

    class Stream:
        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            made.log.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self):
            assert made.stream == "main"
            made.step()

    @contextmanager
    def capture(graph):
        made.capturing, made.stream = True, "capturing"
        try:
            yield
            made.stream = "main"
        finally:
            made.capturing = False

    @contextmanager
    def on(stream):
        made.stream = stream.name
        yield
        made.stream = "main"

    def set_stream(stream):
        made.stream = stream.name

    main = Stream("main")
    properties = SimpleNamespace(
        name="NVIDIA H200", multi_processor_count=132, L2_cache_size=60 * 2**20, total_memory=7
    )
    fakes = {
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": capture,
        "stream": on,
        "set_stream": set_stream,
        "current_stream": lambda: main,
        "current_device": lambda: 0,
        "synchronize": lambda: made.log.append("wait"),
        "get_device_properties": lambda device: properties,
        "get_device_capability": lambda device: made.capability,
        "empty_cache": lambda: made.log.append("empty"),
        "mem_get_info": lambda device: (5, 9),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)  # raises where PyTorch has no such name
    made.capability, made.properties = (9, 0), properties
    empty = torch.empty
    filler = SimpleNamespace(zero_=lambda: made.log.append("write"), sum=lambda: made.log.append("read"))
    made.filled = []
    monkeypatch.setattr(
        torch, "empty", lambda size, device: made.filled.append(size) or filler if size > 9 else empty(size)
    )
    return made


def test_the_median_of_runs_of_a_graph(device):
    device.seconds = [9.0, 9.0] + [9.0] * 3 + [1.0, 5.0, 2.0] + [3.0]
    timing = Gpu().time(device.step)
    assert timing.how == "CUDA graph" and gpu.LEAST <= timing.runs <= gpu.MOST
    assert timing.seconds == pytest.approx(3.0)
    before = device.log[: device.log.index("write")]
    # Twice aside from the main stream, which compiles; once into the graph.
    expected = ["side waits for main", "step", "step", "main waits for side", "wait", "step"]
    assert before == expected


def test_the_cache_is_written_and_read_before_each_run_and_outside_of_its_time(device):
    timing = Gpu().time(device.step)
    log = device.log[device.log.index("write") :]
    one = ["write", "read", "event", "step", "event"]
    assert log == one * 3 + ["wait"] + one * timing.runs + ["wait"]
    assert device.filled == [max(4 * 60 * 2**20, 2**28) // 4]


@pytest.mark.parametrize(("cache", "size"), [(None, 2**28), (2**20, 2**28), (2**27, 2**29)])
def test_what_fills_the_cache_is_larger_than_it(device, cache, size):
    if cache is None:
        del device.properties.L2_cache_size
    else:
        device.properties.L2_cache_size = cache
    Gpu()
    assert device.filled == [size // 4]


@pytest.mark.parametrize(("each", "runs"), [(1e-5, gpu.MOST), (0.01, 25), (1.0, gpu.LEAST)])
def test_so_many_runs_as_the_time_allows(device, monkeypatch, each, runs):
    made, calls = Gpu(), iter([0.0, 3 * each])
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: next(calls))
    assert made.time(device.step).runs == runs


def test_what_no_graph_takes_is_run_without_one(device):
    device.capture = RuntimeError("operation not permitted when stream is capturing\nMore.")
    timing = Gpu().time(device.step)
    assert timing.how == "no CUDA graph: RuntimeError: operation not permitted when stream is capturing"
    assert timing.seconds == pytest.approx(0.002) and device.stream == "main"


def test_what_fails_outside_of_a_graph_is_raised(device):
    def broken():
        raise ValueError("no such kernel")

    with pytest.raises(ValueError, match="no such kernel"):
        Gpu().time(broken)


@pytest.mark.parametrize(
    ("capability", "float8"),
    [((8, 0), "float8_e5m2"), ((8, 9), "float8_e4m3fn"), ((9, 0), "float8_e4m3fn")],
)
def test_what_it_is(device, capability, float8, monkeypatch):
    device.capability = capability
    made = Gpu()
    assert (made.name, made.multiprocessors, made.float8) == ("NVIDIA H200", 132, float8)
    assert (made.backend, made.device) == ("triton", torch.device("cuda", 0))
    assert made.free() == 5 and "empty" in device.log


def test_facts(device, monkeypatch):
    pytest.importorskip("triton")
    answers, asked = [SimpleNamespace(stdout="580.1\n580.1\n")], []
    monkeypatch.setattr(
        subprocess, "run", lambda *given, **options: asked.append((given, options)) or answers[0]
    )
    facts = Gpu().facts()
    assert facts.keys() == Pretended().facts().keys()
    assert (facts["driver"], facts["memory_bytes"], facts["torch"]) == ("580.1", 7, torch.__version__)
    (command,), options = asked[0]
    assert command == ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    assert options["check"] and options["text"]
    answers[0] = SimpleNamespace(stdout="")
    assert Gpu().facts()["driver"] == "unknown"

    def missing(*given, **options):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", missing)
    assert Gpu().facts()["driver"] == "unknown"


@pytest.mark.parametrize("fails", [False, True])
def test_waiting_is_an_error_inside_and_as_before_afterwards(device, monkeypatch, fails):
    modes = ["warn"]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    with pytest.raises(RuntimeError) if fails else nullcontext(), Gpu().no_waiting():
        assert modes == ["warn", "error"]
        if fails:
            raise RuntimeError("waited")
    assert modes == ["warn", "error", "warn"]


def test_what_stands_in_for_it_has_the_same_names(device):
    names = {name for name in {**vars(Gpu), **vars(Gpu())} if not name.startswith("_")}
    assert names == {name for name in {*vars(Pretended), *vars(Pretended())} if name[0] != "_"} - {
        "memory",
        "times",
    }


def test_errors_are_said_in_one_line():
    assert first_line(ValueError("a\nb")) == "ValueError: a"
    assert first_line(KeyError()) == "KeyError"
