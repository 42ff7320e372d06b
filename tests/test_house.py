"""The house rules: imports run downward, files stay small, nothing points to where it was written."""

import ast
import re
import subprocess
import sys

import pytest

from kvlab.paths import ROOT

# From the roof to the ground; a module imports only from floors below its own, or from its own.
FLOORS = [
    ("__main__",),
    ("commands",),
    ("benchmarks",),
    ("widgets",),
    ("exercises",),
    ("machine",),
    ("engine",),
    ("training",),
    ("generation",),
    ("caches",),
    ("kernels",),
    ("paging",),
    ("model",),
    ("memory",),
    ("viz",),
    ("ledger",),
    ("checkpoint",),
    ("paths",),
]
HEIGHT = {name: len(FLOORS) - number for number, names in enumerate(FLOORS) for name in names}

WITHOUT_TENSORS = ("memory", "paging")  # plain Python, so that they are read, and run, without torch
MOST_LINES = 350
# Only what git would commit is looked at; in pieces, so that this file does not find itself.
HOSTS = re.compile(
    "|".join(["files.python" + "hosted", "pypi" + r"\.org", "registry.npm" + "js", "deb.deb" + "ian"])
)
HOME = re.compile("(?<![A-Za-z0-9_.:/~<])/(?:home|root|Users|work|private|mnt)" + "/[A-Za-z]")
MAY_NAME_PATHS = (
    "tests/notebooks/",
    "notebooks/",
)  # the rules for notebooks, and notebooks, which have those rules


def floor(module):
    """'kvlab.caches.static' -> 'caches'; 'kvlab' -> None."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imported(tree, module):
    """The full names of all modules that this one imports, wherever in it it does so."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            # `from kvlab import paths` imports kvlab.paths: its names are modules.
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "kvlab" else [base]


def upward(source, module):
    """The imports of a module that do not run downward."""
    own = floor(module)
    for name in imported(ast.parse(source), module):
        target = floor(name)
        if not name.startswith("kvlab.") or target == own or target not in HEIGHT:
            continue
        if HEIGHT[target] >= HEIGHT[own]:
            yield f"{module} imports {name}"


def modules():
    """(name, path) of every module, but not kvlab/__init__.py, whose imports happen on first use."""
    for path in sorted((ROOT / "kvlab").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("kvlab", "__init__"):
            yield ".".join(parts), path


def test_imports_run_downward():
    found = list(modules())
    assert len(found) > 10
    unknown = {floor(name) for name, _ in found} - HEIGHT.keys()
    assert not unknown, f"give them a floor in FLOORS: {unknown}"
    assert [line for name, path in found for line in upward(path.read_text(encoding="utf-8"), name)] == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("kvlab.model.decoder", "from kvlab.caches import GrowingCache", True),
        ("kvlab.model.decoder", "def f():\n    import kvlab.engine.trace", True),
        ("kvlab.model.decoder", "from kvlab import caches", True),
        ("kvlab.model.decoder", "from ..caches import static", True),
        ("kvlab.caches.static", "from kvlab.model.config import Config", False),
        ("kvlab.caches.static", "from .base import Cache\nimport torch", False),
        ("kvlab.paths", "import os", False),
    ],
)
def test_upward_imports_are_noticed(module, source, wrong):
    assert bool(list(upward(source, module))) == wrong


def tensor_imports(source, module):
    return [name for name in imported(ast.parse(source), module) if name.split(".")[0] in ("torch", "numpy")]


def test_plain_python_stays_plain():
    for name, path in modules():
        if floor(name) in WITHOUT_TENSORS:
            assert tensor_imports(path.read_text(encoding="utf-8"), name) == []
    assert tensor_imports("def f():\n    import numpy.linalg", "kvlab.paging.pool")


def tracked():
    """The text files that git has or would add; without git, what the working tree holds of our folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [
            path
            for folder in ("kvlab", "tests", "notebooks", "figures")
            for path in (ROOT / folder).rglob("*")
        ]
    for path in paths:
        if path.is_file():
            content = path.read_bytes()
            if b"\0" not in content[:8000]:
                yield path.relative_to(ROOT).as_posix(), content.decode("utf-8", "replace")


def too_long(name, text):
    return name.endswith((".py", ".md")) and len(text.splitlines()) > MOST_LINES


def gives_away(name, text):
    """What a file says of the machine it was written on, or of one package host."""
    found = HOSTS.findall(text)
    if not name.startswith(MAY_NAME_PATHS):
        found += HOME.findall(text)
    return found


def test_files_are_small_and_give_nothing_away():
    files = list(tracked())
    assert "kvlab/__main__.py" in [name for name, _ in files]
    assert [name for name, text in files if too_long(name, text)] == []
    assert {name: found for name, text in files if (found := gives_away(name, text))} == {}


def test_long_and_telling_files_are_noticed():
    assert too_long("kvlab/x.py", "x\n" * (MOST_LINES + 1)) and not too_long("kvlab/x.py", "x\n" * MOST_LINES)
    for text in ("https://files.python" + "hosted.org/x", "cd /ho" + "me/ann", '"/wo' + 'rk/main"'):
        assert gives_away("README.md", text)
    for text in ("https://example.org/home/ann", "~/work/x", "a/root/b", "kvlab/home/"):
        assert not gives_away("README.md", text)


def ruff(*arguments, cwd=ROOT):
    command = [
        sys.executable,
        "-m",
        "ruff",
        *arguments,
        "--no-cache",
        f"--config={ROOT / 'pyproject.toml'}",
        ".",
    ]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=lambda arguments: arguments[0])
def test_ruff_is_content(arguments, tmp_path):
    run = ruff(*arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    (tmp_path / "bad.py").write_text("import os\nx = { 'a':1 }\n")
    assert ruff(*arguments, cwd=tmp_path).returncode == 1, "it would notice"
