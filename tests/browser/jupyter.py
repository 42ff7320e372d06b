"""JupyterLab and Chromium for the tests: a server that leaves nothing behind, and a page to drive.

with Server(notebooks, folder) as server, chromium() as browser:
    lab = Lab(browser.new_page(), server)
    lab.open("04_the_kv_cache.ipynb")
    lab.run_all()
    lab.errors()
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import sync_playwright

from kvlab.commands import lab as command
from kvlab.commands.environment import VARIABLES, Environment
from kvlab.paths import ROOT

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REMEDY = "Chromium is not installed (Debian and Ubuntu: sudo apt install chromium)"
QUIET = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium():
    """The path of a Chromium on this machine, or None."""
    return next((path for path in map(shutil.which, CHROMIUM) if path), None)


@contextmanager
def chromium():
    """A headless Chromium, the system's own: nothing is downloaded."""
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*root, *QUIET])
        try:
            yield browser
        finally:
            browser.close()


class Server:
    """JupyterLab on a copy of some notebooks, on a free loopback port, token on, with its own settings."""

    def __init__(self, notebooks, folder):
        self.notebooks = Path(folder) / "notebooks"
        self.folder = Path(folder)
        shutil.copytree(notebooks, self.notebooks, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))

    def __enter__(self):
        arguments = [
            *command.command(Environment(), no_browser=True, port=0, root=self.notebooks),
            "--ServerApp.ip=127.0.0.1",
            "--LabApp.expose_app_in_browser=True",
        ]
        with open(self.folder / "jupyter.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**os.environ, **self.variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.address = self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def variables(self):
        """Everything that Jupyter or kvlab would keep at home is kept in the test's folder."""
        for name in ("config", "data", "runtime", "settings", "workspaces", "state"):
            (self.folder / name).mkdir()
        news = self.folder / "settings" / "@jupyterlab" / "apputils-extension"
        news.mkdir(parents=True)
        (news / "notification.jupyterlab-settings").write_text(
            json.dumps(next(iter(command.SETTINGS.values())))
        )
        return {
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(self.folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            **VARIABLES,
            "KVLAB_STATE": str(self.folder / "state"),
            "PYTHONPATH": str(ROOT),
        }

    def wait(self, seconds=90):
        """The server's own note of where it listens, once it answers there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            for note in (self.folder / "runtime").glob("jpserver-*.json"):
                try:
                    content = json.loads(note.read_text())
                except ValueError:
                    continue  # still being written
                return {"url": content["url"], "token": content["token"]}
            time.sleep(0.1)
        raise RuntimeError("JupyterLab did not start:\n" + (self.folder / "jupyter.log").read_text()[-3000:])

    def url(self, path):
        return f"{self.address['url']}{path}?token={self.address['token']}"

    def processes(self):
        """The server and everything it started, kernels included."""
        try:
            server = psutil.Process(self.process.pid)
            return [server, *server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def stop(self):
        """Ask the server to end, then see to it that everything it started has ended."""
        family = self.processes()
        self.process.terminate()
        _, alive = psutil.wait_procs(family, timeout=15)
        for process in alive:  # kernels have a process group of their own and may outlive their server
            process.kill()
        psutil.wait_procs(alive, timeout=15)
        self.process.wait()


class Lab:
    """One JupyterLab page. Commands go through ``window.jupyterapp``; what is seen is read from the page."""

    def __init__(self, page, server):
        self.page, self.server = page, server
        page.set_viewport_size({"width": 1400, "height": 1000})

    def open(self, name):
        """Open a notebook and wait until its kernel is ready."""
        # A workspace of its own: JupyterLab would open what an earlier test had open, in front of this.
        self.page.goto(self.server.url(f"lab/workspaces/{uuid.uuid4().hex}/tree/{name}"))
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=90_000)
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=60_000)
        self.page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=90_000,
        )

    def command(self, name):
        """Execute one of JupyterLab's commands and wait until it is done."""
        return self.page.evaluate("name => window.jupyterapp.commands.execute(name).then(() => null)", name)

    def run_all(self):
        """Run every cell and wait until the last one is done."""
        self.command("notebook:run-all-cells")

    def save(self):
        self.command("docmanager:save")

    def cells(self):
        """The code cells that are not empty, from the notebook's model: count, source, output types."""
        return self.page.evaluate(
            """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
                .filter(cell => cell.type === 'code' && cell.sharedModel.getSource().trim())
                .map(cell => ({
                    count: cell.executionCount,
                    source: cell.sharedModel.getSource(),
                    outputs: cell.outputs.toJSON().map(output => output.output_type),
                }))"""
        )

    def errors(self):
        """The sources of the cells that ended in an error."""
        return [cell["source"] for cell in self.cells() if "error" in cell["outputs"]]

    def show(self, text):
        """Scroll to the first cell whose source has this text: JupyterLab draws only what is near."""
        self.page.evaluate(
            """text => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                const index = notebook.widgets.findIndex(
                    cell => cell.model.sharedModel.getSource().includes(text));
                notebook.activeCellIndex = index;
                return notebook.scrollToItem(index, 'center').then(() => null);
            }""",
            text,
        )

    def find(self, selector):
        """The first match in the notebook, scrolled into view; ``show`` its cell first."""
        element = self.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) {selector}").first
        element.scroll_into_view_if_needed()
        return element
