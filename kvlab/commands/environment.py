"""The virtual environment in .venv: where its Python is, what is in it, how to run it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from kvlab.paths import ROOT

WINDOWS = os.name == "nt"

# For everything that runs in the environment, unless the reader has set it otherwise.
VARIABLES = {
    # The kernel of this environment, even where the reader has one of the same name at home.
    "JUPYTER_PREFER_ENV_PATH": "1",
    # Idle threads sleep instead of spinning. On two cores with other work to do, spinning was measured to
    # make a small model ten times slower.
    "OMP_WAIT_POLICY": "PASSIVE",
}


class Environment:
    """The environment of one repository, and the note that set-up left in it."""

    def __init__(self, root=ROOT):
        self.root = Path(root)
        self.folder = self.root / ".venv"
        self.note = self.folder / "kvlab-setup.json"

    @property
    def python(self):
        """The environment's interpreter, whether it is there or not."""
        return self.folder / ("Scripts/python.exe" if WINDOWS else "bin/python")

    @property
    def version(self):
        """The Python version the environment was made with, or None; read from a file, so it is free."""
        try:
            text = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
        found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", text, re.MULTILINE)
        return found[1] if found else None

    @property
    def site_packages(self):
        """Where the environment keeps its packages."""
        if WINDOWS:
            return self.folder / "Lib" / "site-packages"
        major, minor, _ = (self.version or sys.version.split()[0]).split(".", 2)
        return self.folder / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def is_current(self):
        """Whether this very process runs in the environment."""
        return self.folder.exists() and Path(sys.prefix).resolve() == self.folder.resolve()

    def works(self):
        """Whether the interpreter starts and has pip: false for an environment left half made."""
        if self.version is None:
            return False
        try:
            probe = subprocess.run([str(self.python), "-c", "import pip"], capture_output=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return probe.returncode == 0

    def installed(self, package):
        """The installed version of a package, or None; read from folder names."""
        for folder in self.site_packages.glob(f"{package}-*.dist-info"):
            return folder.name.removesuffix(".dist-info").split("-", 1)[1]
        return None

    def read_note(self):
        """What set-up wrote down when it last finished; empty where it did not, or where it is damaged."""
        try:
            content = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        whole = isinstance(content, dict) and isinstance(content.get("requirements"), dict)
        return content if whole else {}

    def write_note(self, content):
        """Write the note in one go, so that an interruption leaves the old one or the new one."""
        draft = self.note.with_suffix(".tmp")
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        draft.replace(self.note)

    def run(self, arguments, cwd=None, **variables):
        """Run the environment's Python in the foreground and return its exit status.

        It runs in the caller's folder unless told otherwise, so that relative paths mean what they say.
        """
        return foreground([str(self.python), *arguments], cwd, variables)

    def rerun(self, command, argv, **variables):
        """Run a kvlab command again, inside the environment."""
        return self.run(["-m", "kvlab", command, *argv], **variables)


def foreground(command, cwd, variables):
    """Run a program as if it were this one: it gets Ctrl-C and SIGTERM, we hand on its exit status."""
    child = subprocess.Popen(command, cwd=cwd, env={**VARIABLES, **os.environ, **variables})
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                status = child.wait()
                break
            except KeyboardInterrupt:
                continue  # the terminal sent it to the child too, and what it means is the child's to say
    finally:
        signal.signal(signal.SIGTERM, before)
    return status if status >= 0 else 128 - status
