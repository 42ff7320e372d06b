"""Requests replayed on a prefix cache: what is found, who ends when, and what is left in the end."""

from random import Random

import pytest

from kvlab.paging import BlockHashes, BlockPool, OutOfBlocks, RadixTree, Replay
from tests.paging.prefix_cases import BOTH, everything_is_right, text

ALL = pytest.mark.parametrize("kind", [RadixTree, BlockHashes, None])


def a_replay(kind, num_blocks=12, running=1, size=4):
    return Replay(BlockPool(num_blocks, size), kind, running)


def is_right(replay):
    tables = [table for table, *_ in replay.running]
    if replay.cache is not None:
        everything_is_right(replay.cache, *tables)
    replay.pool.check([*tables, *([replay.cache] if replay.cache is not None else [])])


@ALL
def test_what_is_found_is_counted(kind):
    replay = a_replay(kind)
    found = replay.run([(text(1, 2), [3] * 4), (text(1, 2, 3, 4), []), ([*text(1), 2], [2])])
    assert found == replay.found == ([0, 0, 0] if kind is None else [0, 12, 4])
    assert (replay.asked, replay.evicted, replay.pool.num_held) == (8 + 16 + 5, 0, 0)
    assert replay.pool.num_kept == (0 if kind is None else 4)
    is_right(replay)


@BOTH
def test_the_last_token_of_a_prompt_is_never_found(make):
    assert a_replay(make).run([(text(1, 2), ()), (text(1, 2), ()), ([*text(1, 2), 3], ())]) == [0, 4, 8]


@BOTH
def test_a_prompt_is_found_while_it_runs_and_its_answer_when_it_has_ended(make):
    replay = a_replay(make, running=2)
    replay.add(text(1), text(2))
    assert replay.add(text(1, 2, 3)) == 4
    assert replay.add(text(1, 2, 4)) == 8
    assert len(replay.running) == 2
    is_right(replay)


@ALL
def test_the_oldest_ends_when_the_next_one_comes(kind):
    replay = a_replay(kind, running=2)
    for letter in (1, 2, 3, 4):
        replay.add(text(letter), [9])
        is_right(replay)
        assert [tokens[0] for _, tokens, _ in replay.running] == [1, 2, 3, 4][:letter][-2:]


@ALL
def test_room_is_made_by_evicting_and_then_by_ending_the_oldest(kind):
    replay = a_replay(kind, num_blocks=6, running=9)
    for letter, running, evicted in ((1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 3, 2), (5, 3, 4)):
        replay.add(text(letter), text(9))
        assert (len(replay.running), replay.evicted) == (running, 0 if kind is None else evicted)
        is_right(replay)
    replay.add(text(6, 7, 8), text(9, 9, 9))
    assert (len(replay.running), replay.pool.num_held) == (1, 6)
    replay.end()
    is_right(replay)


@ALL
def test_what_never_fits_is_refused_and_leaves_nothing(kind):
    replay = a_replay(kind, num_blocks=3, running=2)
    replay.add(text(1), [2])
    with pytest.raises(OutOfBlocks, match="blocks are needed and . of 3 are free"):
        replay.add(text(1, 2, 3), [4])
    assert (replay.found, replay.asked, replay.pool.num_held) == ([0], 4, 0)
    is_right(replay)
    assert replay.add(text(1, 5), text(6)) == (0 if kind is None else 4)
    is_right(replay)


@ALL
def test_a_run_that_fails_leaves_nobody_running(kind):
    replay = a_replay(kind, num_blocks=3, running=2)
    with pytest.raises(OutOfBlocks):
        replay.run([(text(1), [2]), (text(1, 2, 3), [4])])
    assert (len(replay.running), replay.pool.num_held, replay.found) == (0, 0, [0])
    is_right(replay)


@BOTH
@pytest.mark.parametrize(("prompt", "answer"), [(text(1, None), []), (text(1), text(None))])
def test_what_are_no_ids_is_refused_and_leaves_nothing(make, prompt, answer):
    replay = a_replay(make, running=2)
    with pytest.raises(ValueError, match="tokens are ids"):
        replay.run([(text(1), [2]), (prompt, answer)])
    assert (len(replay.running), replay.pool.num_held) == (0, 0)
    is_right(replay)


@pytest.mark.parametrize(("priority", "found"), [(0, 0), (1, 8)])
def test_what_is_important_stays(priority, found):
    replay = a_replay(RadixTree, num_blocks=4)
    requests = (text(1, 2), [], priority), (text(3, 4), []), (text(5, 6), []), (text(1, 2, 7), [])
    assert replay.run(requests) == [0, 0, 0, found]


@pytest.mark.parametrize("running", [0, -1])
def test_somebody_has_to_run(running):
    with pytest.raises(ValueError, match=f"running is {running}; at least one"):
        a_replay(RadixTree, running=running)


@ALL
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("running", [1, 3, 20])
def test_the_books_are_right_after_every_request(kind, size, running):
    random, replay = Random(running), a_replay(kind, 64 // size, running, size)
    texts = [[]]
    for number in range(1, 121):
        start = random.choice(texts)[: random.randrange(30)]
        prompt = [*start, *(random.randrange(2) for _ in range(random.randint(1, 20)))]
        answer = [random.randrange(2) for _ in range(random.randrange(12))]
        found = replay.add(prompt, answer, random.randrange(3))
        assert found % size == 0 and found < len(prompt)
        assert len(replay.found) == number and len(replay.running) <= running
        is_right(replay)
        texts = [*texts, prompt + answer][-8:]
    assert kind is None or (sum(replay.found) > 0 and replay.evicted > 0)
