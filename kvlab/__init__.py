"""kvlab: how the memory of LLM inference works, from a dot product to a paged-attention kernel.

Importing this package is quick and needs the standard library alone; everything that needs torch
is imported when it is first used, so that ``python3 -m kvlab`` runs before anything is installed.
"""

from importlib import import_module

_HOMES = {
    "load": "kvlab.model.load",
    "load_adapter": "kvlab.model.peft",
    "Ledger": "kvlab.ledger",
    "generate": "kvlab.generation",
}
_MODULES = {
    "hf": "kvlab.model.hf",
    "caches": "kvlab.caches",
    "engine": "kvlab.engine",
    "generation": "kvlab.generation",
    "kernels": "kvlab.kernels",
    "memory": "kvlab.memory",
    "paging": "kvlab.paging",
}

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name):
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        # Not an f-string: this file has to parse wherever __main__.py refuses an old Python politely.
        raise AttributeError(
            "module 'kvlab' has no attribute {!r}; it has {}".format(name, ", ".join(__all__))
        )
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
