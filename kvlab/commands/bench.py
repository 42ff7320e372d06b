"""``kvlab bench``: measure, side by side and in one run; figures differ by machine, ratios less so."""

import argparse
import json
import os

from kvlab.benchmarks import BENCHMARKS
from kvlab.commands import CommandError, setup

NAMES = tuple(BENCHMARKS)


def main(argv):
    """Run benchmarks in the environment, which is set up first where needed."""
    parser = argparse.ArgumentParser(prog="python3 -m kvlab bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all where none is named"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        raise CommandError(f"there is no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", status=2)
    environment = setup.ready()
    if not environment.is_current:
        # Nothing else should run meanwhile, so threads may spin between two operations: they wake sooner.
        waiting = os.environ.get("OMP_WAIT_POLICY", "ACTIVE")
        return environment.rerun("bench", argv, OMP_WAIT_POLICY=waiting)
    from kvlab.viz import Table

    measured = {name: BENCHMARKS[name]() for name in options.names or NAMES}
    if options.json:
        columns = "what", "value", "unit", "conditions"
        print(
            json.dumps(
                {n: [dict(zip(columns, row, strict=True)) for row in rows] for n, rows in measured.items()}
            )
        )
        return 0
    for name, rows in measured.items():
        print(Table([name, "", "", ""], rows), end="\n\n")
    return 0
