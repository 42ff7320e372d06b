"""``kvlab train VARIANT``: retrain a tiny model of the course, on the CPU; goes on where it was cut."""

import argparse
from pathlib import Path

from kvlab.commands import setup
from kvlab.training.variants import VARIANTS


def main(argv):
    """Train in the environment, which is set up first where needed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab train", description=__doc__, argument_default=argparse.SUPPRESS
    )
    parser.add_argument(
        "variant",
        choices=[*VARIANTS, "comparison"],
        metavar="VARIANT",
        help=f"the model: {', '.join(VARIANTS)}; or comparison, the short runs of lesson 07",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the weights and the rows (1)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="the checkpoint folder to write (the one in the repository)"
    )
    chosen = parser.parse_args(argv)
    environment = setup.ready()
    if not environment.is_current:
        return environment.rerun("train", argv)
    if chosen.variant == "comparison":
        from kvlab.training.compare import compare

        compare()
        return 0
    from kvlab.training import train

    train.main(**vars(chosen))
    return 0
