"""Benchmarks: ratios measured side by side in one run. ``python3 -m kvlab bench`` prints them.

A benchmark is a function that returns rows: what was measured, the number, its unit, and what to compare it
with. Peers that are not installed have a row that says how to get them. Each lies in a module of its name,
which is imported when it is called: one of them may lack what another needs.
"""

from importlib import import_module


def _benchmark(name):
    return lambda: getattr(import_module(f"kvlab.benchmarks.{name}"), name)()


BENCHMARKS = {name: _benchmark(name) for name in ("pool", "prefix", "decode", "engine", "reuse", "kernel")}

__all__ = ["BENCHMARKS"]
