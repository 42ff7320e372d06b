"""``kvlab train NAME``: retrain a tiny model of the course, or an adapter of one, on the CPU.

A model's run goes on where it was cut; an adapter's takes about a minute and starts anew.
"""

import argparse
from pathlib import Path

from kvlab.commands import setup
from kvlab.training.styles import STYLES
from kvlab.training.variants import VARIANTS


def main(argv):
    """Train in the environment, which is set up first where needed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab train", description=__doc__, argument_default=argparse.SUPPRESS
    )
    parser.add_argument(
        "name",
        choices=[*VARIANTS, *STYLES, "comparison"],
        metavar="NAME",
        help=f"the model: {', '.join(VARIANTS)}; the adapter: {', '.join(STYLES)}; "
        "or comparison, the short runs of lesson 07",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the weights and the rows (1)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the checkpoint folder to write (the one in the repository)"
    )
    chosen = vars(parser.parse_args(argv))
    environment = setup.ready()
    if not environment.is_current:
        return environment.rerun("train", argv)
    name = chosen.pop("name")
    if name == "comparison":
        from kvlab.training.compare import compare

        compare()
        return 0
    from kvlab.training import adapters, train

    (adapters if name in STYLES else train).main(name, **chosen)
    return 0
