"""Logs of pools in which random things happen."""

from random import Random

from kvlab.paging import BlockPool, BlockTable, Log, OutOfBlocks

SIZES = [(1, 1), (4, 4), (10, 4), (13, 5), (24, 8), (64, 16), (7, 100)]
WORDS = ["The", " cat", "\n", " unbelievably", "", "$x$", " <b>", ",", " mat"]


def walk(seed, num_blocks=10, block_size=4, steps=25, tables=5, marks=True):
    """-> Log. At most one more than so many tables are alive."""
    choose = Random(seed)
    pool = BlockPool(num_blocks, block_size)
    log, alive = Log.of(pool), []
    for step in range(steps):
        if marks and choose.random() < 0.2:
            log.mark(f"Step {step}: " + "something comes next, " * choose.randrange(1, 6))
        name = choose.choice([None, None, None, f"beam {step}", f"a rather long name {step}"])
        kind = choose.choice(["store", "store", "store", "new", "fork", "truncate", "release"])
        if kind == "new" or not alive:
            alive.append(BlockTable(pool, name))
        table = choose.choice(alive)
        if kind == "release" or len(alive) > tables:
            alive.remove(table)
            table.release()
        elif kind == "fork":
            alive.append(table.fork(name))
        elif kind == "truncate":
            table.truncate(choose.randint(0, table.length))
        elif kind == "store":
            tokens = choose.randint(1, 2 * block_size)
            try:
                table.reserve(tokens)
            except OutOfBlocks:
                continue
            table.advance(tokens)
    pool.check(alive)
    return log


def texts_for(log):
    """For every table as many texts as it ever holds tokens."""
    most = {event[1]: 0 for event in log.events if event[0] == "born"}
    for kind, name, *numbers in log.events:
        if kind == "length":
            most[name] = max(most[name], numbers[0])
    return {name: [WORDS[place % len(WORDS)] for place in range(count)] for name, count in most.items()}
