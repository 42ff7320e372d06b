"""What the tests of blocks have in common: stored tokens, and refusals that change nothing."""

import copy
import re

import pytest

from kvlab.paging import BlockTable


def stored(pool, n, **more):
    """A table with n tokens."""
    table = BlockTable(pool, **more)
    table.reserve(n)
    table.advance(n)
    return table


def state(pool, tables=()):
    """All that a refusal may not change."""
    events = None if pool.log is None else list(pool.log.events)
    return copy.deepcopy([vars(pool) | {"log": events}, *(vars(table) | {"pool": None} for table in tables)])


def refused(pool, tables, error, says, operation, *arguments):
    """The operation raises, and afterwards all is as it was."""
    before = state(pool, tables)
    with pytest.raises(error, match=says and re.escape(says)):
        operation(*arguments)
    assert state(pool, tables) == before
