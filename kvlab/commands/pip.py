"""Running pip: its progress stays on the screen, its errors become one line with a remedy."""

import os
import subprocess
import sys
from collections import deque

from kvlab.commands import CommandError

# What pip prints, in lower case, against what it means. The first match wins.
CAUSES = (
    (
        ("no space left on device", "not enough space on the disk"),
        "the disk is full. Free some space and run the same command again: it continues.",
    ),
    (
        ("read-only file system", "permission denied", "access is denied"),
        "a file could not be written. Is the folder yours to write to, and is JupyterLab closed?",
    ),
    (
        (
            "failed to establish a new connection",
            "name resolution",
            "name or service not known",
            "nodename nor servname",
            "getaddrinfo failed",
            "network is unreachable",
            "connection refused",
            "connecttimeout",
            "read timed out",
            "max retries exceeded",
            "proxyerror",
            "connection broken",
            "connection reset",
            "(from versions: none)",
        ),
        "the package index cannot be reached. Check the network (and the proxy settings, if you have any), "
        "then run the same command again: it continues.",
    ),
    (
        ("no matching distribution found",),
        "a pinned package has no build for this machine and Python. Linux, Windows and Apple-silicon Macs "
        "have them all; PyTorch no longer makes builds for Intel Macs.",
    ),
)


# `python -m pip`, without its line for every package that is there already. pip has no option that leaves
# these out and keeps its progress; a pip that calls its parts otherwise will only print them again.
RUN = """
import runpy, logging, pip._internal
logger = logging.getLogger("pip._internal.operations.prepare")
logger.addFilter(lambda record: not record.getMessage().startswith("Requirement already satisfied"))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def pip(environment, *arguments):
    """Run pip in the environment; raise ``CommandError`` with the likely cause if it fails."""
    command = [str(environment.python), "-c", RUN, "--disable-pip-version-check", "--no-input", *arguments]
    # A user's own `user = true` would send the packages out of the environment.
    variables = {**os.environ, "PIP_USER": "0"}
    last = deque(maxlen=200)
    # The progress bar is drawn on stdout, which is left alone; what goes wrong is said on stderr.
    child = subprocess.Popen(
        command, cwd=environment.root, env=variables, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        for line in child.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            last.append(line.rstrip())
        status = child.wait()
    except KeyboardInterrupt:
        child.wait()  # pip was told as well, and tidies up
        raise
    if status:
        raise CommandError(explain(last, status))


def explain(lines, status):
    """One line for what pip said: the cause if it is known, and pip's own last words."""
    text = "\n".join(lines).lower()
    said = [line for line in lines if line.strip()][-3:]
    quoted = "".join(f"\n  pip: {line.strip()[:160]}" for line in said)
    for signs, meaning in CAUSES:
        if any(sign in text for sign in signs):
            return meaning + quoted
    return f"pip ended with status {status}. Mend what it names and run the same command again.{quoted}"
