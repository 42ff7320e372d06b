"""``kvlab figures``: draw each picture of figures/ again, from the script beside it.

With --check nothing is written: it says which pictures are not what their scripts draw, and exits 1 if any.
"""

import argparse
import runpy

from kvlab.commands import setup
from kvlab.paths import ROOT

FIGURES = ROOT / "figures"


def main(argv):
    """Redraw, or check, every figure."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="say which would change, write nothing")
    chosen = parser.parse_args(argv)
    environment = setup.ready()
    if not environment.is_current:
        return environment.rerun("figures", argv)
    changed = [script.stem for script in sorted(FIGURES.glob("*.py")) if redraw(script, chosen.check)]
    for name in changed:
        print(f"{name}.png {'is not what its script draws' if chosen.check else 'drawn anew'}")
    if not changed:
        print("every figure is what its script draws")
    return 1 if chosen.check and changed else 0


def redraw(script, check):
    """Draw one figure -> whether it differs from the stored one, which is replaced unless ``check``."""
    picture, png = script.with_suffix(".png"), runpy.run_path(str(script))["draw"]()
    if picture.exists() and picture.read_bytes() == png:
        return False
    if not check:
        picture.write_bytes(png)
    return True
