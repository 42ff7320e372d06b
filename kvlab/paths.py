"""Where things are: the repository, the lessons, and the folders that belong to the reader."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository: the folder that holds kvlab/, notebooks/ and requirements.txt."""

NOTEBOOKS = ROOT / "notebooks"
"""The lessons."""


def cache_dir():
    """The folder for what can be made again, such as a converted model. ``KVLAB_CACHE`` overrides it.

    The folder is not created here: whoever writes into it does that.
    """
    if override := os.environ.get("KVLAB_CACHE"):
        return Path(override).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvlab"
    if sys.platform == "win32":
        return _windows_home() / "kvlab" / "cache"
    return _xdg("XDG_CACHE_HOME", ".cache") / "kvlab"


def state_dir():
    """The folder for the reader's own progress. ``KVLAB_STATE`` overrides it, as the tests do."""
    if override := os.environ.get("KVLAB_STATE"):
        return Path(override).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kvlab"
    if sys.platform == "win32":
        return _windows_home() / "kvlab" / "state"
    return _xdg("XDG_STATE_HOME", ".local/state") / "kvlab"


def _windows_home():
    local = os.environ.get("LOCALAPPDATA")
    return Path(local) if local else Path.home() / "AppData" / "Local"


def _xdg(variable, default):
    # The XDG specification says that a relative path is to be ignored.
    folder = os.environ.get(variable, "")
    return Path(folder) if os.path.isabs(folder) else Path.home() / default
