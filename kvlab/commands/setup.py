"""``kvlab setup``: make .venv, install what the lessons need, fetch the real model. Safe to run again."""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec

from kvlab.commands import CommandError, sizes
from kvlab.commands.environment import Environment
from kvlab.commands.pip import pip
from kvlab.paths import cache_dir

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
LESSONS, TESTS = "requirements.txt", "tests/requirements.txt"
NOTE_FORMAT = 1


def options():
    """The parser of the options that every command which may set up shares."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--cpu", action="store_true", help="take PyTorch's own CPU wheels (Linux: 2.4 GB less)"
    )
    parser.add_argument("--without-smollm2", action="store_true", help="leave the real model out (0.1 GB)")
    return parser


def main(argv):
    """Set up what is not set up yet."""
    parser = argparse.ArgumentParser(prog="python3 -m kvlab setup", description=__doc__, parents=[options()])
    chosen = parser.parse_args(argv)
    setup = Setup(Environment(), chosen.cpu, chosen.without_smollm2)
    if setup.is_done() and setup.model_is_settled():
        print(f"Already set up: {setup.environment.folder} (Python {setup.environment.version}).")
    else:
        setup.run()
    return 0


def ready(chosen=None, tests=False):
    """The environment, set up first where that is still to do; for the commands that need it."""
    setup = Setup(
        Environment(), getattr(chosen, "cpu", False), getattr(chosen, "without_smollm2", False), tests=tests
    )
    if not setup.is_done():
        setup.run()
    return setup.environment


class Setup:
    """One set-up: what it shall reach, and the steps to get there from wherever an earlier one stopped."""

    def __init__(self, environment, cpu=False, without_model=False, tests=False):
        self.environment = environment
        self.note = environment.read_note()
        # What was chosen once stays chosen, so that `lab` after `setup --cpu` does not fetch CUDA.
        self.cpu = cpu or self.note.get("cpu", False)
        self.without_model = without_model
        self.tests = tests or TESTS in self.note.get("requirements", {})
        self.files = [LESSONS, TESTS] if self.tests else [LESSONS]

    def is_done(self):
        """Whether nothing is left to do for the lessons and tests. Reads a few small files, no more."""
        if self.note.get("model") == "to come" and not self.without_model:
            return False  # an earlier run was cut short before its last step
        # A torch that is there is kept, so what --cpu says matters only to one that is still to come.
        goal = {**self.goal(self.note.get("model")), "cpu": self.note.get("cpu")}
        return self.note == goal and self.environment.python.exists()

    def model_is_settled(self):
        """Whether nothing is to be done about the model: it is there, or not wanted."""
        there = self.note.get("model") == "there" and (cache_dir() / "smollm2-135m" / "config.json").exists()
        return self.without_model or there

    def goal(self, model):
        """The note of a finished set-up; ``model`` is "there", "left out", "missing" or "to come"."""
        return {
            "format": NOTE_FORMAT,
            "root": str(self.environment.root),
            "python": self.environment.version,
            "cpu": self.cpu,
            "requirements": {name: self.digest(name) for name in self.files},
            "model": model,
        }

    def digest(self, name):
        text = (self.environment.root / name).read_text(encoding="utf-8")
        return hashlib.sha256(text.encode()).hexdigest()

    def run(self):
        """Take all the steps, saying which one it is; Ctrl-C leaves something that can be continued."""
        start = time.monotonic()
        self.prepare()
        steps = [
            ("a Python environment in .venv", self.make_environment),
            ("packages; pip shows how far it is", self.install),
            ("every package imported once, kvlab made importable", self.check),
        ]
        if not self.without_model:
            steps.append(("SmolLM2-135M-Instruct, the real model", self.fetch_model))
        try:
            for number, (what, step) in enumerate(steps, 1):
                print(f"[{number}/{len(steps)}] {what}", flush=True)
                step()
        except KeyboardInterrupt:
            raise CommandError("stopped. Running the same command again continues from here.") from None
        minutes, seconds = divmod(round(time.monotonic() - start), 60)
        print(f"Set up in {minutes} min {seconds} s." if minutes else f"Set up in {seconds} s.", flush=True)

    def prepare(self):
        """Say what is to come, and stop here if it cannot work."""
        environment = self.environment
        if not environment.works() and not (find_spec("venv") and find_spec("ensurepip")):
            version = "{}.{}".format(*sys.version_info[:2])
            raise CommandError(
                "this Python cannot make environments: its venv module is missing. On Debian and Ubuntu: "
                f"sudo apt install python{version}-venv   Then run the same command again."
            )
        try:
            environment.folder.mkdir(exist_ok=True)
            probe = environment.folder / "kvlab-setup.tmp"
            probe.write_text("can I write here?", encoding="utf-8")
            probe.unlink()
        except FileExistsError:
            raise CommandError(
                f"{environment.folder} is in the way: a file, or a link that leads nowhere. "
                "Remove it and run the same command again."
            ) from None
        except OSError as error:
            raise CommandError(
                f"cannot write in {environment.root} ({error.strerror}). "
                "Copy the repository to a folder of your own and run the command there."
            ) from None
        parts = sizes.missing_parts(
            environment,
            self.torch_version(),
            cpu=self.cpu,
            tests=self.tests,
            model=not self.model_is_settled(),
        )
        print(f"Setting up {environment.folder}.", flush=True)
        if parts:
            print(sizes.announcement(parts), flush=True)
        sizes.check_disk(parts, environment.root)

    def make_environment(self):
        """Make .venv, or keep the one that is there if it works."""
        environment = self.environment
        if environment.works():
            print(f"      there already, with Python {environment.version}", flush=True)
            # Unfinished until the last step says otherwise.
            environment.note.unlink(missing_ok=True)
            forget_half_installed(environment)
            return
        command = [sys.executable, "-m", "venv", "--clear", str(environment.folder)]
        made = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if made.returncode:
            said = (made.stdout + made.stderr).strip().splitlines() or ["no reason given"]
            raise CommandError(f"python -m venv failed. Its last words: {said[-1]}")

    def install(self):
        """Let pip install what is missing or of another version."""
        version = self.torch_version()
        if self.cpu and sizes.torch_has_cuda() and version and not sizes.has_torch(self.environment, version):
            # Alone and without its dependencies: everything else comes from the ordinary index.
            pip(self.environment, "install", "--no-deps", "--index-url", CPU_WHEELS, f"torch=={version}")
        # A torch of the right version satisfies its line, whatever its local suffix, and is left as it is.
        pip(self.environment, "install", *(part for name in self.files for part in ("-r", name)))

    def check(self):
        """Link kvlab in and import everything, so that a fault shows here and not in a lesson."""
        environment = self.environment
        # In the encoding of the locale, as the interpreter reads it.
        (environment.site_packages / "kvlab.pth").write_text(f"{environment.root}\n")
        names = ["kvlab", *self.imports()]
        imported = subprocess.run(
            [str(environment.python), "-c", "import " + ", ".join(names)],
            cwd=environment.folder,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if imported.returncode:
            said = imported.stderr.strip().splitlines() or ["no reason given"]
            raise CommandError(
                f"the environment does not work: {said[-1]}. "
                f"Delete {environment.folder} and run the same command again."
            )
        model = "to come"
        if self.without_model:
            model = "there" if self.note.get("model") == "there" else "left out"
        environment.write_note(self.goal(model))

    def fetch_model(self):
        """Let the model's own module fetch and convert it; the course goes on without it if that fails."""
        environment = self.environment
        status = subprocess.call([str(environment.python), "-m", "kvlab.model.smollm2"], cwd=environment.root)
        environment.write_note(self.goal("there" if status == 0 else "missing"))
        if status:
            print("      Not to be had just now: the lessons go on without it and say where.", flush=True)
            print("      To try again: python3 -m kvlab setup", flush=True)

    def torch_version(self):
        """The version of torch that the lessons ask for, or None."""
        return self.requirements().get("torch")

    def imports(self):
        """The packages to import as a check; those for some systems only (after a `;`) are left out."""
        return [name for name, rest in self.requirements().items() if ";" not in rest]

    def requirements(self):
        """The lessons' requirements, as {name: version and marker}."""
        text = (self.environment.root / LESSONS).read_text(encoding="utf-8")
        return dict(re.findall(r"^(\w+)==([^\s#]+(?: *;[^#\n]*)?)", text, re.MULTILINE))


def forget_half_installed(environment):
    """Make pip install again what an interrupted pip left half installed.

    pip unpacks a package first and names itself as its installer last. Without that name the files may be
    incomplete, although pip would take the package for installed.
    """
    for folder in environment.site_packages.glob("*.dist-info"):
        if not (folder / "INSTALLER").exists():
            shutil.rmtree(folder, ignore_errors=True)
