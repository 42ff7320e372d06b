"""What this machine has for the course: versions, cores, memory, a GPU or none, and how Triton will run."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from kvlab.kernels import backend
from kvlab.model import smollm2
from kvlab.viz import Table

GIB = 2**30


def doctor():
    """One row a thing, with what it means for the lessons -> Table. Different on every machine, by nature."""
    import psutil
    import torch

    def row(what, found, meaning=""):
        return what, str(found), meaning

    cores = os.cpu_count() or 1
    memory = psutil.virtual_memory().total
    enough = "4 GiB are enough" if memory >= 4 * GIB else "may be tight: 4 GiB are enough"
    smol = ("installed", "") if smollm2.installed() else ("missing", "`python3 -m kvlab setup` fetches it")
    return Table(
        ["", "here", "what it means"],
        [
            row("Python", platform.python_version()),
            row("torch", torch.__version__),
            row("cores", cores, "times in the lessons are from two"),
            row("memory", f"{memory / GIB:.1f} GiB", enough),
            row("GPU", *_gpu()),
            row("Triton", *triton_mode()),
            row("SmolLM2", *smol),
        ],
        "Your machine",
    )


def _gpu():
    import torch

    if not torch.cuda.is_available():
        return "none", "not needed; speeds of GPUs are computed from their data sheets"
    properties = torch.cuda.get_device_properties(0)
    return properties.name, f"{properties.total_memory / GIB:.1f} GiB"


def triton_mode():
    """(how Triton runs here, what that means): "compiled", "interpreter" or "missing"."""
    if not backend.installed():
        return "missing", "the kernel lessons use the torch reference instead"
    try:
        release = version("triton")
    except PackageNotFoundError:
        release = "of unknown version"
    if backend.mode().backend == "triton":
        return "compiled", f"triton {release} compiles the kernels for your GPU"
    return "interpreter", f"triton {release} runs the kernels in its interpreter: right results, no speed"
