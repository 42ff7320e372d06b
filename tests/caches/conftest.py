"""No test of a cache leaves a thread behind."""

import threading

import pytest


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [each.name for each in threading.enumerate() if "host tier" in each.name] == []
