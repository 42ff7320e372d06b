"""Whole lessons take long to run and use one core each: they run beside the other tests, before theirs ask.

A test marked ``ahead(work=...)`` gets, as ``ahead``, what ``work`` returned for its parameters. Such tests
come last; once one of them has to wait, two pieces of work run at the same time.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tests.notebooks.apart import FORKS, apart, start
from tests.notebooks.make import as_stored


def work(item):
    marker = item.get_closest_marker("ahead")
    return marker and marker.kwargs["work"]


def drives_a_browser(item):
    return "browser" in getattr(item, "fixturenames", ())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Browsers first, what runs ahead last, the late lessons (they are long) before the early ones.

    A lesson of which a test compares the outputs is not run by nbval here once more.
    """
    ahead = [item for item in items if work(item)][::-1]
    compared = {item.callspec.params["path"].resolve() for item in ahead if work(item) is as_stored}
    again = [item for item in items if item.path.suffix == ".ipynb" and item.path.resolve() in compared]
    config.hook.pytest_deselected(items=again)
    others = [item for item in items if item not in ahead and item not in again]
    items[:] = sorted(others, key=drives_a_browser, reverse=True) + ahead


def pytest_collection_finish(session):
    session.config.pluginmanager.register(Ahead(session.items), "ahead")


@pytest.fixture
def ahead(request):
    return request.config.pluginmanager.get_plugin("ahead").result(request.node.nodeid)


class Ahead:
    """A plugin, since what runs ahead begins with tests of other folders."""

    def __init__(self, items):
        self.items = [item for item in items if work(item)]
        self.pool, self.waited_for, self.begun = ThreadPoolExecutor(2), Event(), {}

    def begin(self):
        if not self.items or self.begun:
            return
        start()
        self.pool.submit(self.waited_for.wait)  # until then one of the two threads has nothing to do
        for item in self.items:
            self.begun[item.nodeid] = self.pool.submit(apart, work(item), **item.callspec.params)

    def result(self, nodeid):
        self.begin()
        self.waited_for.set()
        return self.begun[nodeid].result()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        # Not beside a browser, whose patience is short. And where processes do not fork from one that is
        # there already, not beside tests that replace parts of the system.
        if FORKS and not drives_a_browser(item):
            self.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self):
        self.waited_for.set()
        self.pool.shutdown(cancel_futures=True)  # of tests that were not run after all
