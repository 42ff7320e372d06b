"""Reuse across requests: what is found, shared and evicted; and the tokens are always the same."""

import pytest

from kvlab.engine import Simulation, Trace
from tests.engine.cases import LETTERS, Watched, engine, failing, prompt
from tests.engine.referee import Referee

pytestmark = pytest.mark.parametrize("kind", ["radix", "hash"])


@pytest.fixture
def server(kind):
    return engine(40, prefix_cache=kind)


def serve(server, *watched, referee=None):
    """Run, and compare each with what it is alone -> the metrics."""
    (referee or Referee(server)).run()
    for each in watched:
        each.compare()
    return server.metrics()


def one(server, ids, new=4, **options):
    """A request that is served alone -> it."""
    watched = Watched(server, ids, new, **options)
    server.run()
    watched.compare()
    server.check()
    return watched


def test_a_prompt_that_is_stored_whole_has_its_last_token_computed(kind):
    for size, found in ((1, 11), (3, 9), (4, 8), (16, 0)):
        server = engine(40, size, prefix_cache=kind)
        first, again = one(server, prompt(12)), one(server, prompt(12))
        assert (first.cached_tokens, again.cached_tokens) == (0, found)
        assert server.trace[len(server.trace) - 4].ran == [[1, 12 - found, "prefill"]]


def test_the_next_turn_of_a_conversation_finds_prompt_and_answer(server):
    first = one(server, prompt(9), 8)
    text = first.ids + first.outputs[0]  # the last token of an answer is not fed back, so 16 are stored
    assert one(server, text + prompt(5, 1)).cached_tokens == 16


def test_all_but_the_changed_block_and_what_follows_is_found(server):
    ids = prompt(24)
    one(server, ids)
    for place in range(24):
        other = [*ids[:place], (ids[place] + 1) % 23, *ids[place + 1 :], 5]
        assert server.prefix_cache.peek(other) == place // 4 * 4


def test_the_same_new_prefix_twice_in_one_step_is_computed_twice_and_stored_once(server):
    texts = [Watched(server, prompt(13), 4) for _ in range(3)]
    server.step()
    assert [text.cached_tokens for text in texts] == [0, 0, 0]
    tables = [text.request.sequences[0].table for text in texts]
    assert tables[0].blocks[:3] == tables[1].blocks[:3] == tables[2].blocks[:3]
    assert server.pool.num_held == 3 + 3 * 1
    m = serve(server, *texts)
    assert (m.found, m.computed) == (0, 3 * (13 + 3))
    assert server.pool.num_kept == server.prefix_cache.num_blocks == 4


def test_a_shared_prefix_is_held_once(server):
    one(server, prompt(33), 1)
    texts = [Watched(server, [*prompt(33)[:32], number, 1], 3) for number in range(10)]
    server.step()
    assert [text.cached_tokens for text in texts] == [32] * 10
    assert server.pool.num_held == 8 + 10
    serve(server, *texts)


def test_what_is_computed_in_chunks_is_found_before_it_is_complete(kind):
    server = engine(40, max_batch_tokens=8, prefix_cache=kind)
    long = Watched(server, prompt(30), 2)
    server.step()
    assert server.prefix_cache.peek(prompt(30)) == 8
    serve(server, long)


def test_a_preempted_text_finds_its_own_prefix(kind):
    server = engine(9, prefix_cache=kind)
    texts = [Watched(server, prompt(5, seed), 20) for seed in (0, 1)]
    m = serve(server, *texts)
    young, trace = texts[1], server.trace
    assert texts[0].preempted == 0 < young.preempted
    given_up = [(step.number, stored) for step in trace.steps for _, stored in step.preempted]
    back = [found for step in trace.steps for name, found, _ in step.found if step.number > given_up[0][0]]
    assert len(back) == len(given_up) and sum(back) > 0
    assert m.computed == 2 * 24 + m.given_up - sum(back)


def test_what_a_cancelled_one_has_computed_is_found(server):
    gone = Watched(server, prompt(18), 9)
    server.step()
    gone.cancel()
    assert one(server, prompt(18)).cached_tokens == 16


def test_what_is_kept_is_evicted_when_others_need_its_room(kind):
    server = engine(8, prefix_cache=kind)
    for seed in range(5):
        one(server, prompt(13, seed), 4)
        assert server.pool.num_kept == server.prefix_cache.num_blocks == min(8, 4 * (seed + 1))
    m = server.metrics()
    assert m.evicted == 5 * 4 - 8
    assert one(server, prompt(13, 4)).cached_tokens == 12
    assert one(server, prompt(13, 0)).cached_tokens == 0


def test_nothing_of_a_running_text_is_evicted(kind):
    server = engine(9, prefix_cache=kind)
    first = Watched(server, prompt(13), 12)
    referee = Referee(server)
    referee.step()
    blocks = list(first.request.sequences[0].table.blocks)
    others = [Watched(server, prompt(9, seed), 3) for seed in range(1, 7)]
    while not first.done:
        referee.step()
        if not first.done:
            assert first.request.sequences[0].table.blocks[:4] == blocks
    serve(server, first, *others, referee=referee)
    assert server.metrics().evicted > 0


@pytest.mark.parametrize("salts", [(None, "a"), ("a", None), ("a", "b"), ("", None)])
def test_texts_of_different_salts_share_nothing(server, salts):
    one(server, prompt(13), salt=salts[0])
    assert one(server, prompt(13), salt=salts[1]).cached_tokens == 0
    assert one(server, prompt(13), salt=salts[0]).cached_tokens == 12


def test_several_texts_of_a_prompt(kind):
    server = engine(40, tokenizer=LETTERS, prefix_cache=kind)
    first = one(server, prompt(10), 9, n=3, temperature=2.0, seed=1)
    assert len(set(map(tuple, first.outputs))) == 3
    for output in first.outputs:
        assert one(server, [*first.ids, *output], 1).cached_tokens == 16
    assert server.pool.num_held == 0


@pytest.mark.parametrize("where", [0, 1, "behind", "sampling"])
def test_a_step_that_fails_stores_nothing_wrong(kind, where):
    server = engine(40, max_batch_tokens=16, prefix_cache=kind)
    texts = [Watched(server, prompt(n, 1), 5) for n in (13, 21, 6)]
    referee = Referee(server)
    for _ in range(9):
        with failing(server, where, ValueError):
            referee.failing_step(ValueError)
        referee.step()
        texts.append(Watched(server, prompt(21, 1), 3))
    serve(server, *texts, referee=referee)
    assert server.metrics().found > 0


def test_what_a_fork_writes_into_was_stored_by_its_sibling_which_has_ended(kind):
    """That block is in the cache; the fork, whose step failed, has to go back into it, and gets a copy."""
    server = engine(20, 3, prefix_cache=kind)
    texts = Watched(server, prompt(9), 1, n=2, temperature=2.0, seed=1)
    referee = Referee(server)
    with failing(server, "sampling", ValueError):
        referee.failing_step(ValueError)
    assert texts.why == ["length", None] and server.prefix_cache.peek(prompt(9)) == 9
    serve(server, texts, referee=referee)
    assert server.prefix_cache.peek(prompt(9)) == 9


def test_the_longest_prefix_first_and_nobody_overtaken_more_often(kind):
    """One runs at a time; of those that wait, 2 and 4 find nothing, all others the text of 0."""
    server = engine(40, max_batch_tokens=1, prefix_cache=kind, overtaking=3)
    one(server, prompt(24, 1), 1)
    texts = [Watched(server, [*prompt(24, seed)[:20], seed, 1], 1) for seed in (1, 2, 1, 3, 1, 1, 1, 1)]
    serve(server, *texts)
    order = [name for step in server.trace.steps for name in step.admitted]
    assert order == [0, 1, 3, 5, 6, 2, 7, 4, 8]


def test_who_overtakes_goes_by_tokens_under_its_own_salt(kind):
    server = engine(60, max_batch_tokens=1, prefix_cache=kind, overtaking=2)
    for ids, salt in ((prompt(24, 1), "a"), (prompt(16, 2), None), (prompt(5, 3), None)):
        one(server, ids, 1, salt=salt)
    Watched(server, prompt(6, 6), 1)
    server.step()  # 3 runs
    Watched(server, [*prompt(5, 3), 1], 1)  # 4 finds 4 of 6
    Watched(server, prompt(24, 1), 1)  # 5 would find 20 under another salt
    Watched(server, [*prompt(16, 2), *prompt(40, 4)], 1)  # 6 finds 16 of 56
    server.run()
    assert [name for step in server.trace.steps for name in step.admitted] == [0, 1, 2, 3, 6, 4, 5]


def test_cached_tokens_are_those_of_the_first_admission(kind):
    server = engine(8, prefix_cache=kind)
    texts = [Watched(server, prompt(13, seed), 16) for seed in (1, 2)]
    serve(server, *texts)
    assert texts[1].preempted and texts[1].cached_tokens == 0 and server.metrics().found > 0


def test_a_plan_that_is_interrupted_is_on_record(kind, monkeypatch):
    server = engine(6, prefix_cache=kind)
    one(server, prompt(13), 4)
    texts = [Watched(server, prompt(6, seed), 4) for seed in (1, 2)]

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as once, pytest.raises(KeyboardInterrupt):
        once.setattr(server.prefix_cache, "evict", interrupted)
        server.step()
    server.check()
    assert server.trace[-1].admitted == [1, 2] and server.trace[-1].ran == []
    assert [text.status for text in texts] == ["running", "running"]
    assert server.metrics().sought == 13 + 2 * 6 and texts[0].queueing is not None
    serve(server, *texts)


def test_without_overtaking_first_come_first_served(kind):
    server = engine(40, max_batch_tokens=40, prefix_cache=kind)
    one(server, prompt(24, 1), 1)
    texts = [Watched(server, [*prompt(24, seed)[:20], seed, 1], 1) for seed in (2, 1, 3, 1)]
    serve(server, *texts)
    assert [name for step in server.trace.steps for name in step.admitted] == [0, 1, 2, 3, 4]


def test_counted_by_hand(kind):
    simulation = Simulation(num_blocks=6, block_size=4, max_batch_tokens=64, prefix_cache=kind)
    for first, length in ((1, 9), (1, 13), (2, 13)):
        simulation.submit([first] * length, 2)
        simulation.run()
    # 9 asked: nothing is there, 8 stored; 13 asked: 8 found, 12 stored; 13 others need 4 of 3 free blocks
    found = [entry for step in simulation.trace.steps for entry in step.found]
    assert found == [[0, 0, 9], [1, 8, 13], [2, 0, 13]]
    m = simulation.metrics()
    assert (m.sought, m.found, m.hit_rate, m.evicted) == (35, 8, 8 / 35, 1)
    assert m.computed == 35 - 8 + 3
    assert Trace.from_text(simulation.trace.text()) == simulation.trace
