"""The README's picture: what each step of a generation computes, without a cache and with one."""

from kvlab.viz import step_grids, style


def draw():
    """PNG bytes."""
    style()
    return step_grids(prompt=6, new=6).png
