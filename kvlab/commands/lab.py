"""``kvlab lab``: set up on first use, then open the lessons in JupyterLab."""

import argparse
import json
import os
import subprocess

from kvlab.commands import setup

# Only defaults: whatever the reader chose in JupyterLab's own settings wins over them.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}


def main(argv):
    """Open JupyterLab on notebooks/ and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab lab",
        description=__doc__,
        parents=[setup.options()],
        epilog="Other options go to JupyterLab as they are.",
        allow_abbrev=False,
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--port", type=int, metavar="N", help="the port to listen on (8888, or the next free one)"
    )
    chosen, others = parser.parse_known_args(argv)
    environment = setup.ready(chosen)
    quiet_news(environment)
    trust = sign(environment)
    return environment.run([*command(environment, chosen.no_browser, chosen.port), *trust, *others])


def command(environment, no_browser=False, port=None, root=None):
    """JupyterLab's command line. Its token stays on."""
    is_root = getattr(os, "geteuid", lambda: 1)() == 0
    return [
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root or environment.root / 'notebooks'}",
        *(["--no-browser"] if no_browser else []),
        *([f"--port={port}"] if port is not None else []),
        *(["--allow-root"] if is_root else []),
    ]


def quiet_news(environment):
    """Turn off the questions about news and updates, for this environment only."""
    folder = environment.folder / "share" / "jupyter" / "lab" / "settings"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overrides.json").write_text(json.dumps(SETTINGS, indent=1) + "\n", encoding="utf-8")


def sign(environment):
    """Trust the lessons, so that their stored outputs show before anything is run.

    Only files named like lessons: what else lies in the folder may come from anywhere. Returns the options
    that make a server look in the same place, in the environment and apart from the reader's own signatures.
    """
    store = environment.folder / "share" / "jupyter" / "kvlab-trust"
    store.mkdir(parents=True, exist_ok=True)
    options = [
        f"--NotebookNotary.secret_file={store / 'secret'}",
        f"--NotebookNotary.db_file={store / 'signatures.db'}",
    ]
    lessons = sorted(map(str, (environment.root / "notebooks").glob("[0-9][0-9]_*.ipynb")))
    if lessons:
        command = [str(environment.python), "-m", "nbformat.sign", *options, *lessons]
        # Without trust the lessons still run: a failure here is no reason to stop.
        subprocess.run(command, cwd=environment.root, capture_output=True)
    return options
