"""What computes paged attention in this process, and why. Triton itself is not imported for the answer."""

import importlib.util
import os
from typing import NamedTuple

import torch

BACKENDS = ("triton", "interpreter", "reference")
INSTALL = "pip install triton (for Linux; on Windows there is triton-windows)"


class Mode(NamedTuple):
    backend: str  # one of BACKENDS
    why: str

    def __str__(self):
        return f"{self.backend}: {self.why}"


def mode():
    """The backend that ``paged_attention`` picks where none is named, and why -> Mode."""
    if not installed():
        return Mode("reference", f"Triton is not installed: {INSTALL}")
    if asked_to_interpret():
        return Mode("interpreter", "TRITON_INTERPRET is set")
    if torch.cuda.is_available():  # on ROCm, too
        return Mode("triton", f"Triton compiles for {torch.cuda.get_device_name()}")
    return Mode("reference", "no GPU here; Triton's interpreter is right but slow, and runs when asked for")


def installed():
    """Can Triton be imported?"""
    return importlib.util.find_spec("triton") is not None


def asked_to_interpret():
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def chosen(backend, device, obstacle):
    """The backend to use for tensors on ``device`` -> str.

    ``obstacle(interpreting)``: an exception that says what Triton cannot take of the arguments, or None. It
    is raised where Triton is asked for by name; else the reference takes what Triton cannot.
    Raises ValueError for an unknown name, ImportError for Triton where it is missing.
    """
    if backend not in (None, *BACKENDS):
        raise ValueError(f"backend is {backend!r}; known: {', '.join(BACKENDS)}")
    if backend is None and device.type == "cpu" and not asked_to_interpret():
        return "reference"  # whatever GPU there is beside it
    wanted = backend or mode().backend
    if wanted == "reference":
        return wanted
    if not installed():
        raise ImportError(f"backend is {backend!r}, and Triton is not installed: {INSTALL}")
    problem = obstacle(interpreting=wanted == "interpreter")
    if problem is not None and backend is not None:
        raise problem
    return wanted if problem is None else "reference"


def moved(numbers, device):
    """A tensor on ``device``, without waiting for the device."""
    if device.type == "cuda" and numbers.device.type == "cpu":
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)
