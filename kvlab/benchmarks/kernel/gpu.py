"""The GPU: what it is, and how long something takes on it."""

import subprocess
import time
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import torch

from kvlab.memory import UnknownName
from kvlab.memory import device as device_named

SECONDS = 0.25  # that the runs of one case may take
LEAST, MOST = 5, 100  # runs
# Names of PyTorch's that are not the catalogue's and no part of them.
CATALOGUE = {
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100 80GB SXM",
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100 40GB SXM",
    "NVIDIA GeForce RTX 3090": "NVIDIA RTX 3090",
    "NVIDIA GeForce RTX 4090": "NVIDIA RTX 4090",
    "NVIDIA GeForce RTX 5090": "NVIDIA RTX 5090",
    "Tesla T4": "NVIDIA T4",
    "Tesla V100-SXM2-32GB": "NVIDIA V100 SXM2 32GB",
    "AMD Instinct MI300X": "AMD MI300X",
}


class Timing(NamedTuple):
    seconds: float  # the median
    runs: int
    how: str


class Gpu:
    """The current GPU. What tests put in its place has the same names."""

    backend = "triton"

    def __init__(self):
        self.device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self.device)
        self.name, self.multiprocessors = properties.name, properties.multi_processor_count
        new = torch.cuda.get_device_capability(self.device) >= (8, 9)
        self.float8 = "float8_e4m3fn" if new else "float8_e5m2"
        cache = getattr(properties, "L2_cache_size", 0)
        self._cache_filler = torch.empty(max(4 * cache, 2**28) // 4, device=self.device)

    def facts(self):
        """What the numbers belong to -> {name: text or number}."""
        import triton

        return {
            "device": self.name,
            "multiprocessors": self.multiprocessors,
            "memory_bytes": torch.cuda.get_device_properties(self.device).total_memory,
            "driver": _driver(),
            "cuda": torch.version.cuda or f"ROCm {torch.version.hip}",
            "torch": torch.__version__,
            "triton": triton.__version__,
        }

    def free(self):
        """Bytes of memory."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]

    @contextmanager
    def no_waiting(self):
        """PyTorch raises RuntimeError where it would wait for the device."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def time(self, step):
        """The median of some runs of ``step``, with nothing of its tensors left in the cache -> Timing."""
        run, how = self._captured(step)
        start = time.perf_counter()
        self._runs(run, 3)
        each = (time.perf_counter() - start) / 3
        seconds = self._runs(run, max(LEAST, min(MOST, int(SECONDS / each))))
        return Timing(median(seconds), len(seconds), how)

    def _captured(self, step):
        """``step`` as a CUDA graph, so that starting its kernels costs next to nothing -> (run, how)."""
        stream, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            for _ in range(2):  # compiles, and takes the memory it needs
                step()
        stream.wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
        except Exception as error:
            torch.cuda.set_stream(stream)  # a capture that fails may leave its own
            return step, f"no CUDA graph: {first_line(error)}"
        return graph.replay, "CUDA graph"

    def _runs(self, run, count):
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for start, end in pairs:
            self._cache_filler.zero_()
            self._cache_filler.sum()  # what was just read need not be written back meanwhile
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairs]


def catalogued(name):
    """The catalogue's Device of this name of PyTorch's, or None."""
    try:
        return device_named(CATALOGUE.get(name, name))
    except UnknownName:
        return None


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _driver():
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"
