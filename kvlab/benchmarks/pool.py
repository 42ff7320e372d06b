"""Bookkeeping of blocks: what a decode step costs for each running request, without any tensor."""

from kvlab.benchmarks.clock import fastest
from kvlab.paging import BlockPool, BlockTable

RUNNING, TOKENS, STEPS, REPEATS = 64, 1000, 200, 5


def pool():
    """Rows of the benchmark: microseconds a running request a step, with tables of about 1,000 tokens."""
    tables = _tables()
    seconds = fastest({"decode": lambda: _decode(tables)}, REPEATS)["decode"]
    forks = fastest({"fork": lambda: [table.fork().release() for table in tables]}, REPEATS)["fork"]
    each = RUNNING * STEPS
    what = f"{RUNNING} requests of about {TOKENS:,} tokens"
    return [
        ("reserve, slot and advance", f"{1e6 * seconds / each:.3g}", "µs a request a step", what),
        ("fork and release", f"{1e6 * forks / RUNNING:.3g}", "µs a request", f"{TOKENS // 16} blocks each"),
    ]


def _tables():
    longest = TOKENS + RUNNING + REPEATS * STEPS
    shared = BlockPool(RUNNING * -(-longest // 16), 16)
    tables = [BlockTable(shared) for _ in range(RUNNING)]
    for number, table in enumerate(tables):
        table.reserve(TOKENS + number)  # so that not all of them need a block in the same step
        table.advance(TOKENS + number)
    return tables


def _decode(tables):
    for _ in range(STEPS):
        slots = []
        for table in tables:
            table.reserve(1)
            slots += table.slots(1)
            table.advance(1)
