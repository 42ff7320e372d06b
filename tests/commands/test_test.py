"""``kvlab test``: which notebooks are tested, and how pytest is called."""

import os
import subprocess
import sys

import pytest

from kvlab.commands import setup, test
from kvlab.commands.environment import Environment
from kvlab.paths import ROOT
from tests.notebooks.make import code, notebook, save


def git(root, *arguments):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A git checkout with two committed notebooks."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "course"
    (root / "notebooks").mkdir(parents=True)
    for number in (4, 5):
        (root / "notebooks" / f"0{number}_x.ipynb").write_text(f'{{"committed": {number}}}\n')
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "lessons")
    return root


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_the_committed_notebooks_are_tested(course, scratch):
    folder, remark = test.committed(course, scratch)
    assert remark is None and folder == scratch / "notebooks"
    assert sorted(path.name for path in folder.iterdir()) == ["04_x.ipynb", "05_x.ipynb"]


def test_a_readers_edits_are_left_alone_and_named_in_one_line(course, scratch):
    (course / "notebooks" / "04_x.ipynb").write_text("a reader's work\n")
    (course / "notebooks" / "06_new.ipynb").write_text("{}\n")
    folder, remark = test.committed(course, scratch)
    assert (folder / "04_x.ipynb").read_text() == '{"committed": 4}\n'
    assert (course / "notebooks" / "04_x.ipynb").read_text() == "a reader's work\n"
    assert "04_x.ipynb, 06_new.ipynb" in remark and "\n" not in remark
    assert "python3 -m kvlab test notebooks/04_x.ipynb" in remark


def test_line_ends_are_no_difference(course, scratch):
    file = course / "notebooks" / "04_x.ipynb"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert test.committed(course, scratch)[1] is None


def test_without_a_checkout_the_files_as_they_are(tmp_path, scratch):
    folder, remark = test.committed(tmp_path, scratch)
    assert folder == tmp_path / "notebooks" and "as they are" in remark


def test_without_git_the_files_as_they_are(course, scratch, monkeypatch):
    monkeypatch.setenv("PATH", str(scratch))
    folder, remark = test.committed(course, scratch)
    assert folder == course / "notebooks" and "git is not installed" in remark


def test_one_pytest_with_everything(monkeypatch):
    """pytest itself decides between our paths and the reader's, by its `testpaths`."""
    seen = {}

    def run(arguments, **variables):
        seen.update(variables, arguments=arguments)
        return 5

    environment = Environment()
    environment.run = run
    monkeypatch.setattr(setup, "ready", lambda chosen, tests: environment)
    assert test.main(["-k", "cache", "--cpu", "-x", "tests/caches"]) == 5
    arguments = seen["arguments"]
    assert arguments[:2] == ["-m", "pytest"] and arguments[-4:] == ["-k", "cache", "-x", "tests/caches"]
    assert any(argument.startswith("testpaths=tests ") for argument in arguments)
    assert set(test.NBVAL) <= set(arguments)
    assert seen["cwd"] == ROOT
    assert seen["KVLAB_STATE"] != os.environ.get("KVLAB_STATE")


def test_files_of_the_callers_folder_are_named_in_full(tmp_path, monkeypatch):
    """pytest itself runs in the repository."""
    (tmp_path / "caches").mkdir()
    mine = tmp_path / "test_mine.py"
    mine.write_text("")
    arguments = ["-k", "caches", "caches", "./test_mine.py::test_a", "-x", "elsewhere.py", ""]
    monkeypatch.chdir(ROOT)
    assert test.absolute(["-k", "tests", "tests"]) == ["-k", "tests", "tests"]
    monkeypatch.chdir(tmp_path)
    full = ["-k", "caches", str(tmp_path / "caches"), f"{mine}::test_a", "-x", "elsewhere.py", ""]
    assert test.absolute(arguments) == full


@pytest.mark.parametrize(
    ("arguments", "collected"),
    [([], {"one.py", "two.ipynb"}), (["with space/one.py"], {"one.py"}), (["-k", "two"], {"two.ipynb"})],
)
def test_testpaths_give_way_to_a_path(tmp_path, monkeypatch, arguments, collected):
    """What the command relies on, asked of pytest: with a path only that, without one everything."""
    inside, outside = tmp_path / "with space", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "one.py").write_text("def test_one(): pass\n")
    save(notebook(code("1 + 1", count=None)), outside / "two.ipynb")
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.pytest.ini_options]\npython_files = ["one.py"]\n')
    command = [
        part.replace(str(ROOT / "pyproject.toml"), str(settings)) for part in test.pytest(outside, arguments)
    ]
    command = [part.replace("testpaths=tests", "testpaths='with space'") for part in command]
    run = subprocess.run(
        [sys.executable, *command, "--collect-only", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert {name for name in ("one.py", "two.ipynb") if name in run.stdout} == collected, (
        run.stdout + run.stderr
    )
