"""Set-up: what it installs, when it repeats, how it goes on after an interruption. Nothing is downloaded."""

import json

import pytest

from kvlab.commands import CommandError, setup, sizes
from kvlab.commands.setup import CPU_WHEELS

INSTALL = "pip install -r requirements.txt"
EVERYTHING = ["venv", INSTALL, "import", "model"]


def test_first_run_takes_every_step_and_says_so(machine, capsys):
    assert machine.setup() == EVERYTHING
    said = capsys.readouterr().out
    assert "About 3.0 GB to download" in said and "--cpu" in said
    assert said.index("to download") < said.index("[1/4]") < said.index("[4/4]") < said.index("Set up in")
    link = machine.environment.site_packages / "kvlab.pth"
    assert link.read_text() == f"{machine.environment.root}\n"


def test_second_run_does_nothing(machine, capsys):
    machine.setup()
    assert machine.setup() == []
    assert "Already set up" in capsys.readouterr().out
    assert machine.setup("--cpu") == [], "the torch that is there is kept"


@pytest.mark.parametrize("name", ["requirements.txt", "tests/requirements.txt"])
def test_changed_requirements_are_installed(machine, repository, name):
    setup.ready(tests=True)
    machine.calls.clear()
    (repository / name).write_text((repository / name).read_text() + "gamma==3.0\n")
    setup.ready(tests=True)
    assert machine.calls[:2] == [INSTALL + " -r tests/requirements.txt", "import"]


def test_tests_need_more_than_lessons(machine):
    machine.setup()
    machine.calls.clear()
    setup.ready()
    assert machine.calls == []
    setup.ready(tests=True)
    assert INSTALL + " -r tests/requirements.txt" in machine.calls


def test_a_moved_repository_is_linked_anew(machine):
    machine.setup()
    note = machine.environment.read_note()
    machine.environment.write_note({**note, "root": "/elsewhere"})
    assert machine.setup() == EVERYTHING[1:]


def test_cpu_takes_torch_alone_from_its_own_index(machine):
    calls = machine.setup("--cpu", "--without-smollm2")
    cpu = f"pip install --no-deps --index-url {CPU_WHEELS} torch==2.13.0"
    assert calls == ["venv", cpu, INSTALL, "import"]
    assert machine.environment.installed("torch") == "2.13.0+cpu"


def test_cpu_is_remembered(machine, repository):
    machine.setup("--cpu")
    (repository / "requirements.txt").write_text("torch==2.14.0\n")
    assert any(CPU_WHEELS in call and "2.14.0" in call for call in machine.setup())


@pytest.mark.parametrize("suffix", ["", "+cpu", "+rocm6.4"])
def test_torch_of_the_right_version_is_kept(machine, suffix):
    machine.run(["python", "-m", "venv"])
    machine.install("torch", "2.13.0" + suffix)
    calls = machine.setup("--cpu", "--without-smollm2")
    assert calls == [INSTALL, "import"]
    assert machine.environment.installed("torch") == "2.13.0" + suffix


def test_torch_of_another_version_is_not_kept(machine):
    machine.run(["python", "-m", "venv"])
    machine.install("torch", "2.12.0+cpu")
    assert any(CPU_WHEELS in call for call in machine.setup("--cpu"))


def test_an_environment_without_its_python_is_made_anew(machine):
    machine.setup()
    machine.environment.python.unlink()
    assert machine.setup() == EVERYTHING


def test_an_empty_folder_left_by_an_interruption_is_filled(machine):
    machine.environment.folder.mkdir()
    assert machine.setup() == EVERYTHING


def test_ctrl_c_in_pip_is_continued(machine):
    machine.fails = KeyboardInterrupt()
    with pytest.raises(CommandError, match="stopped. Running the same command again continues"):
        machine.setup()
    machine.fails = None
    assert machine.setup() == EVERYTHING[1:], "the environment itself is kept"
    assert machine.setup() == []


def test_a_failing_pip_leaves_no_finished_note(machine):
    machine.setup()
    machine.fails = CommandError("no network")
    (machine.environment.root / "requirements.txt").write_text("torch==2.14.0\n")
    with pytest.raises(CommandError):
        machine.setup()
    assert machine.environment.read_note() == {}


def test_a_half_installed_package_is_installed_again(machine):
    """pip signs a package as its installer last; one without that signature may lack files."""
    machine.run(["python", "-m", "venv"])
    machine.install("torch", "2.13.0")
    (machine.environment.site_packages / "torch-2.13.0.dist-info" / "INSTALLER").unlink()
    assert any(CPU_WHEELS in call for call in machine.setup("--cpu"))


def test_the_model_can_be_left_out_and_fetched_later(machine):
    assert "model" not in machine.setup("--without-smollm2")
    machine.calls.clear()
    setup.ready()
    assert machine.calls == [], "opening the course does not fetch what was left out"
    assert "model" in machine.setup()
    assert machine.setup("--without-smollm2") == []
    assert machine.setup() == []


def test_without_the_model_set_up_succeeds_and_says_how_to_retry(machine, capsys):
    machine.model_status = 1
    assert machine.setup() == EVERYTHING
    said = capsys.readouterr().out
    assert "the lessons go on without it" in said and "python3 -m kvlab setup" in said
    machine.calls.clear()
    setup.ready()
    assert machine.calls == [], "opening the course does not try again each time"
    machine.model_status = 0
    assert "model" in machine.setup()
    assert machine.setup() == []


def test_a_deleted_model_is_fetched_again(machine, repository):
    machine.setup()
    (repository / "cache" / "smollm2-135m" / "config.json").unlink()
    assert "model" in machine.setup()


def test_an_interruption_before_the_model_is_continued_by_any_command(machine):
    machine.setup()
    machine.environment.write_note({**machine.environment.read_note(), "model": "to come"})
    machine.calls.clear()
    setup.ready()
    assert "model" in machine.calls


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 0}', "null", '{"requirements": null}'])
def test_a_damaged_note_counts_as_none(machine, text):
    machine.setup()
    machine.environment.note.write_text(text)
    assert machine.setup() == EVERYTHING[1:]
    assert json.loads(machine.environment.note.read_text())["model"] == "there"


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_no_venv_module(machine, monkeypatch, missing):
    monkeypatch.setattr(setup, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(CommandError, match=r"sudo apt install python3\.\d+-venv"):
        machine.setup()
    assert machine.calls == []


def test_venv_fails(machine, monkeypatch):
    class Failed:
        returncode, stdout, stderr = 1, "Error: ensurepip is broken\n", ""

    monkeypatch.setattr(setup.subprocess, "run", lambda *_, **__: Failed)
    with pytest.raises(CommandError, match="ensurepip is broken"):
        machine.setup()


def test_an_environment_that_cannot_import_is_named(machine, monkeypatch):
    run = machine.run

    class Failed:
        returncode, stdout, stderr = 1, "", "Traceback\nImportError: libgomp.so.1: cannot open\n"

    monkeypatch.setattr(setup.subprocess, "run", lambda c, **k: run(c, **k) if "venv" in c else Failed)
    with pytest.raises(CommandError, match=r"libgomp.so.1.*\. Delete .*\.venv and run"):
        machine.setup()
    assert machine.environment.read_note() == {}


def test_a_folder_that_cannot_be_written(machine, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(type(machine.environment.folder), "write_text", refuse)
    with pytest.raises(CommandError, match="cannot write in .*Read-only file system.*Copy the repository"):
        machine.setup()


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_something_else_in_the_place_of_the_environment(machine, kind):
    folder = machine.environment.folder
    if kind == "file":
        folder.write_text("mine")
    else:
        folder.symlink_to("nowhere")
    with pytest.raises(CommandError, match=r"\.venv is in the way: .*Remove it"):
        machine.setup()
    assert machine.calls == []


def test_too_little_disk(tmp_path):
    parts = [sizes.TORCH_CUDA, sizes.LESSONS]
    sizes.check_disk(parts, tmp_path, free=lambda path: 100 * sizes.GB)
    with pytest.raises(CommandError, match=r"too little disk space in .*: [\d.]+ GB needed, 1.0 GB free"):
        sizes.check_disk(parts, tmp_path, free=lambda path: sizes.GB)


def test_only_what_is_missing_is_announced(machine):
    def missing(**options):
        return sizes.missing_parts(machine.environment, "2.13.0", **{"cpu": False, **options})

    assert missing(tests=True, model=True) == [sizes.TORCH_CUDA, sizes.LESSONS, sizes.TESTS, sizes.SMOLLM2]
    assert missing(tests=False, model=False, cpu=True) == [sizes.TORCH_CPU, sizes.LESSONS]
    machine.run(["python", "-m", "venv"])
    for name in ("torch-2.13.0", "jupyterlab-4.6.6", "transformers-5.24.0"):
        machine.install(*name.split("-"))
    assert missing(tests=True, model=False) == []
