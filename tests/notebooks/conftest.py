"""Whole lessons take long to run and use one core each: they run two at a time, before their tests ask."""

from concurrent.futures import ThreadPoolExecutor

import pytest


class Ahead:
    def __init__(self, pool):
        self.pool, self.begun = pool, {}

    def result(self, request, work):
        """Of ``work(**parameters)``; that of the same test's other selected parameters is begun as well."""
        for item in request.session.items:
            same = getattr(item, "function", None) is request.function
            if same and item.nodeid not in self.begun:
                self.begun[item.nodeid] = self.pool.submit(work, **item.callspec.params)
        return self.begun[request.node.nodeid].result()


@pytest.fixture(scope="session")
def ahead():
    with ThreadPoolExecutor(2) as pool:
        yield Ahead(pool)
        pool.shutdown(cancel_futures=True)  # of tests that were not run after all
