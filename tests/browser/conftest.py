"""One Chromium for all browser tests; where there is none they are skipped, and in CI they fail."""

import os

import pytest

from tests.browser.jupyter import REMEDY, Lab, Server, chromium, find_chromium
from tests.notebooks.make import COMMITTED


def without_chromium():
    """Skip with the remedy, or fail where a browser is required."""
    if os.environ.get("KVLAB_REQUIRE_BROWSER") == "1":
        pytest.fail(REMEDY + ", and KVLAB_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(REMEDY)


@pytest.fixture(scope="session")
def browser():
    if not find_chromium():
        without_chromium()
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def server(browser, tmp_path_factory):
    """JupyterLab on a copy of the committed lessons."""
    with Server(COMMITTED, tmp_path_factory.mktemp("jupyter")) as running:
        yield running


@pytest.fixture
def lab(browser, server):
    """A fresh page; open a lesson in it with ``lab.open``."""
    context = browser.new_context()
    try:
        yield Lab(context.new_page(), server)
    finally:
        context.close()
