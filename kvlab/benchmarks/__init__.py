"""Benchmarks: ratios measured side by side in one run. ``python3 -m kvlab bench`` prints them.

A benchmark is a function that returns rows: what was measured, the number, its unit, and what to compare it
with. Peers that are not installed have a row that says how to get them.
"""

from kvlab.benchmarks.decode import decode
from kvlab.benchmarks.engine import engine
from kvlab.benchmarks.pool import pool
from kvlab.benchmarks.prefix import prefix
from kvlab.benchmarks.reuse import reuse

BENCHMARKS = {"pool": pool, "prefix": prefix, "decode": decode, "engine": engine, "reuse": reuse}

__all__ = ["BENCHMARKS"]
