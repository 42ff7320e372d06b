"""What set-up still has to download, how big that is, and whether the disk has room for it."""

import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kvlab.commands import CommandError

GB = 10**9


@dataclass(frozen=True)
class Part:
    """A part of the set-up: what it is, and its size to download and on disk, in bytes."""

    name: str
    download: int
    disk: int


# Measured on Linux x86-64 with Python 3.11. Rounded up: a surprise should be a pleasant one.
TORCH_CUDA = Part("PyTorch with CUDA", int(2.6 * GB), int(4.2 * GB))
TORCH_CPU = Part("PyTorch (CPU)", int(0.2 * GB), int(0.8 * GB))
LESSONS = Part("JupyterLab, matplotlib, Triton and the rest", int(0.3 * GB), int(1.4 * GB))
TESTS = Part("what the tests need", int(0.1 * GB), int(0.5 * GB))
SMOLLM2 = Part("SmolLM2-135M-Instruct, a real model", int(0.1 * GB), int(0.4 * GB))


def torch_has_cuda():
    """Whether the ordinary torch wheel of this machine carries CUDA."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def missing_parts(environment, torch_version, *, cpu, tests, model):
    """The parts that are not there yet."""
    parts = []
    if torch_version and not has_torch(environment, torch_version):
        parts.append(TORCH_CUDA if torch_has_cuda() and not cpu else TORCH_CPU)
    if not environment.installed("jupyterlab"):
        parts.append(LESSONS)
    if tests and not environment.installed("transformers"):
        parts.append(TESTS)
    if model:
        parts.append(SMOLLM2)
    return parts


def has_torch(environment, version):
    """Whether that version of torch is installed; a local suffix such as +cpu or +rocm6.4 does not matter."""
    return (environment.installed("torch") or "").split("+")[0] == version


def announcement(parts):
    """What is going to be downloaded, said before it starts."""
    download, disk = sum(part.download for part in parts), sum(part.disk for part in parts)
    lines = [f"About {gb(download)} to download, {gb(disk)} on disk:"]
    lines += [f"  {gb(part.download):>6}  {part.name}" for part in parts]
    if TORCH_CUDA in parts:
        saved = TORCH_CUDA.download - TORCH_CPU.download
        lines.append(f"Without an NVIDIA GPU add --cpu: the lessons are the same and it is {gb(saved)} less.")
    return "\n".join(lines)


def check_disk(parts, folder, free=lambda path: shutil.disk_usage(path).free):
    """Raise ``CommandError`` if the disk has no room for the parts.

    pip collects its downloads in the folder for temporary files before it unpacks any of them.
    """
    folder, temporary = Path(folder), Path(tempfile.gettempdir())
    download, disk = sum(part.download for part in parts), sum(part.disk for part in parts)
    if folder.stat().st_dev == temporary.stat().st_dev:
        needs = [(folder, disk + download, "")]
    else:
        needs = [(folder, disk, ""), (temporary, download, ", or set TMPDIR to a folder with more room")]
    for path, needed, remedy in needs:
        if needed > free(path):
            raise CommandError(
                f"too little disk space in {path}: {gb(needed)} needed, {gb(free(path))} free. "
                f"Free some{remedy}, and run the same command again."
            )


def gb(size):
    """A size in GB (10**9 bytes) with one digit."""
    return f"{size / GB:.1f} GB"
