"""The front door: ``python3 -m kvlab COMMAND``.

This file parses on every Python 3, so that one which is too old is refused in plain words and not with a
syntax error. Whatever needs a newer Python lives behind that check, in kvlab/commands/.
"""

import os
import shutil
import subprocess
import sys

OLDEST, NEWEST = (3, 11), (3, 13)


def main(argv=None):
    """Run one command and return its exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if not OLDEST <= tuple(sys.version_info[:2]) <= NEWEST:
        sys.stderr.write(refusal(argv))
        return 1
    from kvlab.commands import run

    return run(argv)


def refusal(argv):
    """What to tell somebody whose Python is too old, or newer than the packages support."""
    lines = [
        "kvlab runs on Python %d.%d to %d.%d; this is Python %d.%d (%s)."
        % (OLDEST + NEWEST + tuple(sys.version_info[:2]) + (sys.executable,))
    ]
    python = supported_python()
    if python:
        lines.append("You have a Python that fits. Type:  " + " ".join([python, "-m", "kvlab"] + list(argv)))
    else:
        lines.append(
            "Install one, from your package manager or https://www.python.org/downloads/, and try again."
        )
    return "\n".join(lines) + "\n"


def supported_python():
    """The command of a supported Python on the PATH, the newest one first; None where there is none."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        command = "py -3.%d" % minor if os.name == "nt" else "python3.%d" % minor
        program = command.split()
        # To be found is not enough: a version manager leaves stand-ins on the PATH that only print an error.
        probe = ["-c", "import sys; sys.exit(sys.version_info[:2] != (3, %d))" % minor]
        if shutil.which(program[0]) and _runs(program + probe):
            return command
    return None


def _runs(command):
    try:
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
