"""``kvlab train VARIANT``: retrain a tiny model of the course."""

from kvlab.commands import setup


def main(argv):
    """Train in the environment, which is set up first where needed."""
    environment = setup.ready()
    if not environment.is_current:
        return environment.rerun("train", argv)
    from kvlab.training import train

    return train.main(argv) or 0
