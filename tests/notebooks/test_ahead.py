"""Work done ahead gives a test what it would give later; what goes wrong in it is an error in the test."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kvlab.commands.test import NBVAL
from kvlab.paths import ROOT
from tests.notebooks import conftest
from tests.notebooks.apart import FORKS, apart
from tests.notebooks.make import LESSONS, as_stored


def double(number):
    print("not seen")
    return 2 * number


def fail(number):
    raise ValueError(f"no {number}")


def die(number):
    os._exit(number)


def wait(number):
    time.sleep(number)


def test_a_process_of_its_own(capfd):
    assert apart(double, number=4) == 8
    assert apart(os.getpid) not in (os.getpid(), apart(os.getpid))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("work", "number", "seconds", "error", "said"),
    [
        (fail, 7, 60, RuntimeError, "ValueError: no 7"),
        (die, 0, 60, EOFError, None),
        (wait, 60, 0.5, TimeoutError, "wait"),
    ],
)
def test_what_gives_no_result_raises(work, number, seconds, error, said):
    with pytest.raises(error, match=said):
        apart(work, seconds=seconds, number=number)


def item(name, work=None, fixtures=(), path="test_x.py", **parameters):
    marker = work and SimpleNamespace(kwargs={"work": work})
    return SimpleNamespace(
        nodeid=name,
        path=ROOT / path,
        fixturenames=fixtures,
        callspec=SimpleNamespace(params=parameters),
        get_closest_marker=lambda name: marker,
    )


@pytest.fixture
def plugin(monkeypatch):
    """One with three pieces of work, and the list of those that were done, here in this process."""
    done = []

    def here(work, **arguments):
        done.append(arguments["number"])
        return work(**arguments)

    monkeypatch.setattr(conftest, "apart", here)
    items = [item("a", double, number=1), item("b", fail, number=2), item("c", double, number=3), item("d")]
    ahead = conftest.Ahead(items)
    yield ahead, done
    ahead.pytest_sessionfinish()


def test_each_test_gets_its_own_result(plugin):
    ahead, done = plugin
    assert ahead.result("c") == 6 and ahead.result("a") == 2
    with pytest.raises(ValueError, match="no 2"):
        ahead.result("b")
    assert ahead.result("c") == 6 and sorted(done) == [1, 2, 3]


def test_it_begins_with_the_first_test_without_a_browser(plugin):
    ahead, _ = plugin
    ahead.pytest_runtest_setup(item("page", fixtures=["lab", "browser"]))
    assert ahead.begun == {}
    ahead.pytest_runtest_setup(item("a cell"))
    assert set(ahead.begun) == (set("abc") if FORKS else set())
    ahead.pytest_runtest_setup(item("another"))
    assert ahead.result("a") == 2 and len(ahead.begun) == 3


def test_nothing_is_begun_where_no_test_asks():
    ahead = conftest.Ahead([item("a"), item("b")])
    ahead.pytest_runtest_setup(item("a"))
    assert ahead.begun == {}
    ahead.pytest_sessionfinish()


def test_the_order_and_what_is_dropped():
    lesson, another = "notebooks/01_x.ipynb", "notebooks/02_x.ipynb"
    stored = item("stored", as_stored)
    stored.callspec.params["path"] = ROOT / lesson
    cells = [item("cell 0", path=lesson), item("cell of another", path=another)]
    items = [item("a"), item("early", double), stored, item("page", fixtures=["browser"]), *cells, item("b")]
    dropped = []
    hook = SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items))
    conftest.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    assert [each.nodeid for each in items] == ["page", "a", "cell of another", "b", "stored", "early"]
    assert dropped == cells[:1]


@pytest.mark.parametrize(("chosen", "cells"), [([], False), (["-k", "Cell or process"], True)])
def test_no_lesson_is_compared_twice_nor_never(chosen, cells):
    """As pytest sees it: the cells of a lesson are left out if, and only if, the test beside it runs it."""
    paths = ["tests/notebooks/test_nbval.py", str(LESSONS[0])]
    command = [sys.executable, "-m", "pytest", *NBVAL, "-q", "--collect-only", *chosen, *paths]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert f"are_as_stored[{LESSONS[0].stem}]" in said or cells, said
    assert ("::Cell 0" in said) == cells, said
