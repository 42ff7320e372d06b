"""What pip says when it fails, in one line with a remedy."""

import socket
import sys
from types import SimpleNamespace

import pytest

from kvlab.commands import CommandError
from kvlab.commands.pip import explain, pip


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (["[Errno -3] Temporary failure in name resolution", "ERROR: No matching distribution found"],
         "the package index cannot be reached"),
        (["ReadTimeoutError: Read timed out."], "cannot be reached"),
        (["ProxyError('Cannot connect to proxy')"], "proxy settings"),
        (["ERROR: Could not install packages: [Errno 28] No space left on device"], "the disk is full"),
        (["ERROR: [Errno 13] Permission denied: 'x'"], "could not be written"),
        (["ERROR: No matching distribution found for torch==2.13.0"], "Intel Macs"),
        (["ERROR: something new"], "pip ended with status 1"),
        ([], "pip ended with status 1"),
    ],
)  # fmt: skip
def test_each_cause_has_its_remedy(said, meaning):
    line = explain(said, 1)
    assert meaning in line
    assert all(f"pip: {words}" in line for words in said[-3:]), "pip's own last words are kept"


@pytest.fixture
def here(tmp_path):
    """This Python, taken for the environment's: pip runs for real, and installs into a folder."""
    return SimpleNamespace(python=sys.executable, root=tmp_path)


def test_what_is_there_already_is_not_listed(here, capfd):
    pip(here, "install", "--no-index", "pip")
    assert "already satisfied" not in capfd.readouterr().out
    pip(here, "list")
    assert "pip" in capfd.readouterr().out, "all else that it prints is shown"


def test_no_network_for_real(here, monkeypatch, capsys):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        index = f"http://127.0.0.1:{unused.getsockname()[1]}/simple"
        for name, value in {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_RETRIES": "1"}.items():
            monkeypatch.setenv(name, value)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(CommandError, match="the package index cannot be reached"):
            pip(here, "download", "--index-url", index, "--dest", "wheels", "kvlab-no-such-package")
    assert "No matching distribution" in capsys.readouterr().err, "what pip says is shown as it comes"
