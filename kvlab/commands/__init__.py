"""The commands of ``python3 -m kvlab``: one module each, with a ``main(argv)`` that returns an exit status.

To add a command, write its module here and give it a line in ``COMMANDS``. Modules in this folder import
nothing outside the standard library at their top, because they run before anything is installed; what
needs the environment goes through ``setup.ready`` and is imported inside functions.
"""

import sys
from importlib import import_module

COMMANDS = {
    "lab": "open the course in JupyterLab, after setting it up the first time",
    "test": "run every test: unit, reference, notebooks, browser",
    "setup": "only the set-up: make .venv and install what the lessons need",
    "notebooks": "execute lessons and save them with their outputs; --check, --html",
    "memory": "what a model's KV cache costs, and how much of it fits on a device",
    "bench": "measure, side by side and in one run; --json",
    "figures": "draw the pictures of figures/ again; --check",
    "train": "retrain a tiny model of the course",
}


class CommandError(Exception):
    """Something a person can mend: said in plain words, without a traceback."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def run(argv):
    """Run the command that ``argv`` names and return its exit status."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    name, *rest = argv
    if name not in COMMANDS:
        print(f"kvlab: no command {name!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return import_module(f"kvlab.commands.{name}").main(rest)
    except CommandError as error:
        print(f"kvlab {name}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130  # what a shell reports for a program that Ctrl-C ended


def usage():
    """The text of ``python3 -m kvlab --help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python3 -m kvlab COMMAND [options]",
            "",
            *lines,
            "",
            "`python3 -m kvlab COMMAND --help` says more about one of them.",
        ]
    )
