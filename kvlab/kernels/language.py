"""Triton's names, ready for this machine: kernels are compiled where there is a GPU, interpreted where not.

Triton decides between the two as it is imported, for the whole process, so it is imported from here. Where it
is missing, kernels can still be written down; running one raises ImportError with what to install.
"""

import os
import sys

import torch

from kvlab.kernels.backend import INSTALL, asked_to_interpret, installed


class Missing:
    """Stands where something of Triton would stand."""

    def __init__(self, name, fn=None):
        self.name, self.fn = name, fn

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.name}.{name}")

    def __call__(self, *given, **options):
        if len(given) == 1 and callable(given[0]):  # as a decorator
            return Missing(given[0].__name__, given[0])
        return self

    def __getitem__(self, grid):
        raise ImportError(f"{self.name} is a Triton kernel, and Triton is not installed: {INSTALL}")


def _import_to_interpret():
    """Triton's own functions are decorated as it is imported; later ones ask its knob."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton
    finally:
        if before is None:  # other processes decide for themselves
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
    triton.knobs.propagate_env = False
    triton.knobs.runtime.interpret = True
    triton.knobs.propagate_env = True


def _compile_only():
    return os.environ.get("TRITON_INTERPRET") == "0"


if installed():
    imported_before = "triton" in sys.modules
    if asked_to_interpret() or not (torch.cuda.is_available() or _compile_only() or imported_before):
        _import_to_interpret()
    import triton.language as tl
    from triton import constexpr_function, jit

    interpreted = type(tl.zeros).__name__ == "InterpretedFunction"
else:
    interpreted = False
    tl, jit, constexpr_function = Missing("tl"), Missing("jit"), Missing("constexpr_function")
