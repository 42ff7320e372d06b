"""The log of a pool: at every event the tables as they truly were, as text and back, marks, refusals."""

from collections import Counter

import pytest

from kvlab.paging import BlockPool, BlockTable, Log, Moment, OutOfBlocks
from tests.paging.cases import refused, stored


class Watched(Log):
    """Notes beside each event how the tables truly are at that time."""

    tables, truth = (), ()

    def born(self, table):
        self.tables = [*self.tables, table]
        super().born(table)

    def note(self, table, kind, *numbers):
        super().note(table, kind, *numbers)
        if kind == "ended":
            self.tables.remove(table)
        self.truth = [*self.truth, {each.name: (list(each.blocks), each.length) for each in self.tables}]


def a_story():
    """Everything that can happen -> the pool and its log."""
    pool = BlockPool(8, 4)
    log = Watched.of(pool)
    first = stored(pool, 6)
    second = first.fork()
    third = second.fork("beam")
    second.reserve(4)
    second.advance(4)
    pool.keep(first.blocks[0])
    first.release()
    third.truncate(5)
    third.reserve(1)
    third.advance(1)
    with pytest.raises(OutOfBlocks):
        third.reserve(99)
    second.truncate(0)
    third.release()
    stored(pool, 1)
    return pool, log


def test_at_is_the_truth_after_every_event():
    pool, log = a_story()
    assert {kind for kind, *_ in log.events} == {
        *("born", "allocated", "shared", "copied", "left", "freed", "length", "ended")
    }
    assert len(log.truth) == len(log.events)
    for number, tables in enumerate(log.truth, 1):
        moment = log.at(number)
        assert {name: (moment.tables[name], moment.lengths[name]) for name in moment.tables} == tables
        assert moment.counts() == Counter(block for blocks, _ in tables.values() for block in blocks)
        assert moment.event == log.events[number - 1]
    assert log.at(0) == Moment(8, 4)


def test_events_by_hand():
    pool = BlockPool(4, 4)
    log = Log.of(pool)
    table = stored(pool, 5)
    other = table.fork()
    other.reserve(1)
    table.truncate(4)
    other.release()
    assert log.events == [
        ("born", "A"),
        ("allocated", "A", 0),
        ("allocated", "A", 1),
        ("length", "A", 5),
        ("born", "B"),
        ("shared", "B", 0),
        ("shared", "B", 1),
        ("length", "B", 5),
        ("copied", "B", 1, 2),
        ("length", "A", 4),
        ("freed", "A", 1),
        ("freed", "B", 2),
        ("left", "B", 0),
        ("ended", "B"),
    ]


def test_text_and_back():
    _, log = a_story()
    log.mark("the end")
    again = Log.from_text(log.text())
    assert (again.num_blocks, again.block_size, again.events) == (8, 4, log.events)
    assert all(again.at(number) == log.at(number) for number in range(len(log.events) + 1))
    assert again.text() == log.text()
    assert Log.from_text(Log(2, 3).text()).events == []


def test_marks_say_what_comes_next():
    pool = BlockPool(4, 4)
    log = Log.of(pool)
    log.mark("one")
    table = stored(pool, 1)
    log.mark("two")
    table.release()
    assert log.marks() == [1, 5]
    assert [log.at(number).mark for number in (0, 1, 4, 5, 7)] == ["", "one", "one", "two", "two"]
    assert log.at(5).event == ("mark", "two")


def test_tokens_in_blocks_and_empty_slots():
    pool = BlockPool(6, 4)
    log = Log.of(pool)
    table = stored(pool, 6)
    other = table.fork()
    other.truncate(5)
    table.reserve(9)
    moment = log.at(len(log.events))
    assert moment.filled() == {0: 4, 4: 0, 3: 0, 1: 1, 2: 2}
    assert moment.waste() == 4 + 4 + 3 + 2


@pytest.mark.parametrize("number", [-1, 5])
def test_there_is_no_moment_outside(number):
    pool = BlockPool(4, 4)
    log = Log.of(pool)
    stored(pool, 1).release()
    log.events = log.events[:4]
    with pytest.raises(ValueError, match=f"there are 4 events; asked was for the state after {number}"):
        log.at(number)


def test_moments_are_their_own():
    _, log = a_story()
    one = log.at(6)
    one.tables["A"].clear()
    assert log.at(6).tables["A"] == [0, 1]


def test_names_are_letters_and_then_numbered_letters():
    pool = BlockPool(1, 1)
    Log.of(pool)
    names = [BlockTable(pool).name for _ in range(53)]
    assert (names[0], names[25], names[26], names[52]) == ("A", "Z", "A1", "A2")


def test_no_two_tables_have_one_name():
    pool = BlockPool(4, 4)
    log = Log.of(pool)
    table = stored(pool, 1, name="B")
    refused(pool, [table], ValueError, "there is a table called B already", BlockTable, pool, "B")
    refused(pool, [table], ValueError, "there is a table called B already", table.fork, "B")
    assert [BlockTable(pool).name for _ in range(2)] == ["A", "C"]
    table.release()
    stored(pool, 1, name="B")
    assert log.at(len(log.events)).tables == {"A": [], "C": [], "B": [0]}


def test_a_log_belongs_to_a_fresh_pool():
    pool = BlockPool(4, 4)
    table = stored(pool, 1)
    with pytest.raises(ValueError, match="attach a log to a fresh pool"):
        Log.of(pool)
    assert pool.log is None
    table.release()
    Log.of(pool)


def test_a_table_older_than_the_log_is_named():
    pool = BlockPool(4, 4)
    old = BlockTable(pool)
    Log.of(pool)
    with pytest.raises(ValueError, match="this table is older than the log"):
        old.reserve(1)


def test_without_a_log_nothing_has_a_name():
    assert BlockTable(BlockPool(1, 1)).name is None
