"""Kernels in plain Python, to think with: one function a program, with loads and stores at offsets.

They are started like Triton's, can be watched like them, and take their place where Triton is missing.
"""

from itertools import product

import torch

from kvlab.kernels.backend import installed
from kvlab.kernels.watch import note

_running = []  # the place in the grid of the program that runs


class Plain:
    """``function(place, *arguments)``, started for each place of a grid: ``plain[2, 3](*arguments)``.

    A grid is a tuple; a place is one, too, or a number where the grid has one side.
    """

    def __init__(self, function, said=""):
        self.function, self.said = function, said

    def __getitem__(self, grid):
        def start(*arguments, **constants):
            if self.said:
                print(self.said)
            for place in product(*map(range, grid)):
                _running.append(place)
                try:
                    self.function(place[0] if len(grid) == 1 else place, *arguments, **constants)
                finally:
                    _running.pop()

        return start


def plain(function):
    """Decorator: a function of a place in the grid becomes a kernel."""
    return Plain(function)


def instead(twin):
    """Decorator: where Triton is missing, the plain kernel ``twin`` runs in a kernel's place, and says so."""

    def decorate(kernel):
        if installed():
            return kernel
        name = twin.function.__name__
        return Plain(twin.function, f"(Triton is not installed: {name} runs in place of the kernel)")

    return decorate


def load(x, offsets, mask=None, other=0.0):
    """Numbers of x at these offsets in its memory, ``other`` where the mask is False -> shape of offsets."""
    offsets, mask = _offered(x, offsets, mask, "load")
    found = x.new_full(offsets.shape, other)
    found[mask] = x.flatten()[offsets[mask]]
    return found


def store(x, offsets, numbers, mask=None):
    """Put numbers into x at these offsets in its memory, where the mask is True."""
    offsets, mask = _offered(x, offsets, mask, "store")
    numbers = torch.as_tensor(numbers, dtype=x.dtype).expand(offsets.shape)
    x.view(-1)[offsets[mask]] = numbers[mask]


def _offered(x, offsets, mask, kind):
    """What would be accessed, once it is noted -> offsets and mask, of one shape."""
    offsets = torch.as_tensor(offsets)
    mask = torch.ones_like(offsets, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    offsets, mask = torch.broadcast_tensors(offsets, mask)
    place = (*_running[-1], 0, 0)[:3] if _running else (0, 0, 0)
    note(place, kind, (x.data_ptr() + offsets[mask].long() * x.element_size()).flatten().numpy())
    return offsets, mask
