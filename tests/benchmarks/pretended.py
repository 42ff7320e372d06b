"""A GPU that is none: tensors on the CPU, times that are made up."""

from contextlib import nullcontext

import torch

from kvlab.benchmarks.kernel.gpu import Timing


class Pretended:
    """In the place of ``Gpu``. times: seconds of what is timed, the last one of all that follows."""

    device, multiprocessors, float8 = torch.device("cpu"), 132, "float8_e4m3fn"
    no_waiting = staticmethod(nullcontext)

    def __init__(self, backend="reference", name="NVIDIA H100 80GB HBM3", memory=2**29, times=(1e-3,)):
        self.backend, self.name, self.memory, self.times = backend, name, memory, list(times)

    def facts(self):
        versions = {"driver": "1.2", "cuda": "13.0", "torch": "2.13", "triton": "3.7"}
        return {"device": self.name, "multiprocessors": 132, "memory_bytes": self.memory} | versions

    def free(self):
        return self.memory

    def time(self, step):
        step()
        return Timing(self.times.pop(0) if len(self.times) > 1 else self.times[0], 7, "made up")
