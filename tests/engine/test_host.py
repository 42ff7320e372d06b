"""Blocks that spill to the host's memory and come back: fewer tokens computed, and never another answer."""

from random import Random
from threading import Event

import pytest
import torch

from kvlab.caches import HostTier
from kvlab.caches.host import Load
from kvlab.engine import Simulation, converse
from kvlab.engine.users import chat
from tests.engine.cases import VOCAB, Watched, engine, prompt

pytestmark = pytest.mark.parametrize("kind", ["radix", "hash"])


@pytest.fixture
def made(kind):
    """-> a function that makes an engine of so many blocks, with a tier behind it."""
    tiers = []

    def make(blocks, host_blocks=200, link=None, **options):
        server = engine(blocks, prefix_cache=kind, **options)
        tiers.append(HostTier(server.pages, host_blocks, link_bytes_per_second=link))
        server.spill_to(tiers[-1])
        return server, tiers[-1]

    yield make
    for tier in tiers:
        tier.close()


def one(server, tier, ids, new=4, **options):
    """A request that is served alone, and all that goes out after it -> it."""
    watched = Watched(server, ids, new, **options)
    while not watched.done:
        server.step()
        server.check()
    watched.compare()
    tier.wait()
    return watched


def test_what_was_evicted_comes_back(made):
    server, tier = made(8)
    for seed in range(5):
        one(server, tier, prompt(13, seed))
    back = one(server, tier, prompt(13, 0))
    assert back.cached_tokens == 12 and tier.loaded == 3
    step = next(step for step in server.trace.steps if 5 in step.admitted)
    assert (step.found, step.loaded) == ([[5, 0, 13]], [[5, 12]])
    assert step.ran == [[5, 1, "prefill"]]
    assert server.metrics().loaded == 12 and server.metrics().found == 0
    assert one(server, tier, prompt(13, 0)).cached_tokens == 12 and tier.loaded == 3  # now it is here again


def test_what_the_prefix_cache_has_is_not_loaded(made):
    server, tier = made(8)
    one(server, tier, prompt(24), 1)
    one(server, tier, prompt(17, 1), 1)  # takes the end of the first one's room
    found = server.prefix_cache.peek(prompt(24))
    assert 0 < found < 20
    back = one(server, tier, prompt(24), 1)
    (step,) = (step for step in server.trace.steps if 2 in step.admitted)
    assert step.found == [[2, found, 24]] and step.loaded == [[2, 20 - found]]
    assert back.cached_tokens == 20 and tier.loaded == (20 - found) // 4


def test_a_corrupt_block_is_computed_again(made):
    server, tier = made(8)
    for seed in range(5):
        one(server, tier, prompt(13, seed))
    tier.rows[tier.index.match(prompt(13, 0)[:12]).blocks[1], 5] ^= 1
    back = one(server, tier, prompt(13, 0))
    assert back.cached_tokens == 4 and (tier.corrupt, tier.loaded) == (1, 1)


def test_a_link_that_breaks_costs_computation_alone(made):
    server, tier = made(8)
    for seed in range(5):
        one(server, tier, prompt(13, seed))

    def broken(source, target):
        raise OSError("no carrier")

    tier.carry = broken
    assert one(server, tier, prompt(13, 0)).cached_tokens == 0
    tier.close()
    assert one(server, tier, prompt(13, 1)).cached_tokens == 0


def test_those_who_run_go_on_while_a_text_is_on_its_way(made):
    server, tier = made(24, max_batch_tokens=32)
    one(server, tier, prompt(40), 1)
    for seed in range(1, 4):
        one(server, tier, prompt(30, seed), 1)
    assert server.prefix_cache.peek(prompt(40)) < 20
    runs = Watched(server, prompt(5, 9), 8)
    server.step()
    tier.link_bytes_per_second = 1  # for ever, unless it is closed
    waits = Watched(server, prompt(40), 2)
    for _ in range(4):
        server.step()
        server.check()
    assert server.trace[-1].because == "loading" and "on its way from the host" in server.trace[-1].reason
    assert waits.status == "waiting" and len(runs.outputs[0]) == 5
    tier.close()
    server.run()
    runs.compare()
    waits.compare()


def test_cancelled_while_it_is_on_its_way(made):
    server, tier = made(24, max_batch_tokens=32)
    one(server, tier, prompt(40), 1)
    for seed in range(1, 4):
        one(server, tier, prompt(30, seed), 1)
    runs = Watched(server, prompt(5, 9), 8)
    server.step()
    tier.link_bytes_per_second = 1
    waits = Watched(server, prompt(40), 2)
    server.step()
    waits.cancel()
    server.run()
    server.check()
    runs.compare()


def test_salts_are_kept_apart_there_too(made):
    server, tier = made(8)
    one(server, tier, prompt(13), salt="a")
    for seed in range(1, 5):
        one(server, tier, prompt(13, seed))
    assert one(server, tier, prompt(13), salt="b").cached_tokens == 0
    assert one(server, tier, prompt(13), salt="a").cached_tokens == 12


@pytest.mark.parametrize("seed", range(6))
def test_crowds_in_small_pools_write_what_each_writes_alone(made, seed):
    """Preempted, cancelled, evicted here and there, over a link that takes its time."""
    choose = Random(seed)
    sizes = {"block_size": choose.choice([1, 3, 4]), "max_batch_tokens": choose.choice([4, 9, 30])}
    server, tier = made(60 // sizes["block_size"], choose.choice([4, 20, 200]), **sizes)
    tier.link_bytes_per_second = choose.choice([None, 10**6])
    families, texts = [prompt(20, each) for each in range(4)], []
    for _ in range(40):
        ids = choose.choice(families)[: choose.randint(1, 20)] + prompt(choose.randint(1, 4), 9)
        texts.append(Watched(server, ids, choose.randint(1, 9)))
        for _ in range(choose.randint(0, 6)):
            server.step()
        if choose.random() < 0.1 and not texts[-1].done:
            texts[-1].cancel()
        server.check()
    server.run()
    tier.wait()
    server.check()
    for each in texts:
        each.compare()
    assert server.metrics().found > 0


def emptied(made, blocks, *texts, **options):
    """An engine whose prefix cache has lost these texts, which the tier has."""
    server, tier = made(blocks, **options)
    for ids in texts:
        one(server, tier, ids, 1)
    server.prefix_cache.evict(blocks)
    return server, tier


def test_what_was_stored_here_meanwhile_is_not_written_over(made):
    server, tier = emptied(made, 40, prompt(30), max_batch_tokens=8)
    with HostTier(server.pages, 9) as empty:
        server.spill_to(empty)
        first = Watched(server, prompt(30), 3)
        server.step()
        server.spill_to(tier)
        carry, go = tier.carry, Event()
        tier.carry = lambda source, target: (go.wait(), carry(source, target))
        second = Watched(server, prompt(30), 3)
        while not first.done:
            server.step()
        go.set()
        server.run()
    first.compare()
    second.compare()
    step = next(step for step in server.trace.steps if 2 in step.admitted)
    assert (step.found, step.loaded) == ([[2, 28, 30]], [])
    assert second.sequences[0].load is None


def test_a_step_waits_for_the_link_where_nobody_runs(made):
    server, tier = emptied(made, 8, prompt(13))
    tier.link_bytes_per_second = 20_000
    waits = Watched(server, prompt(13), 4)
    step = server.step()
    assert step.ran == [[1, 1, "prefill"]] and step.loaded == [[1, 12]]
    server.run()
    waits.compare()


def test_two_of_one_text_load_it_once(made):
    server, tier = emptied(made, 40, prompt(13))
    texts = [Watched(server, prompt(13), 1) for _ in range(2)]
    server.run()
    assert tier.loaded == 3 and [each for step in server.trace.steps for each in step.loaded] == [[1, 12]]
    assert [text.cached_tokens for text in texts] == [12, 12]


def test_evictions_are_counted_and_none_is_made_where_there_is_room(made):
    server, tier = made(8)
    for seed in (0, 1, 2, 3, 4, 0):
        one(server, tier, prompt(13, seed))
    metrics, steps = server.metrics(), server.trace.steps
    assert metrics.evicted == server.prefix_cache.blocks_evicted > 0 and metrics.loaded == 12
    assert all(min(step.taken, step.freed) >= 0 for step in steps)
    assert sum(step.taken - step.freed for step in steps) == 8 - server.pool.num_free
    roomy, tier = emptied(made, 40, prompt(13, 1))
    one(roomy, tier, prompt(13, 2), 1)
    one(roomy, tier, prompt(13, 1), 1)
    assert (roomy.metrics().loaded, roomy.metrics().evicted) == (12, 0)


def test_a_preempted_text_is_offered(made):
    server, tier = made(8)
    texts = [Watched(server, prompt(13, 1), 16), Watched(server, prompt(13, 2), 12)]
    while not texts[1].preempted:
        server.step()
    tier.wait()
    assert tier.find([*texts[1].ids, *texts[1].outputs[0]]) >= 12
    server.run()
    for text in texts:
        text.compare()


@pytest.mark.parametrize("where", ["_reserve", "_copied", "into"])
def test_no_memory_for_copies_costs_no_text(made, where, monkeypatch):
    """What runs is not lost, and nothing is held for ever, whoever of the tier fails."""
    server, tier = made(8)
    texts = [Watched(server, prompt(13, seed), 12) for seed in (1, 2)]

    def full(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(Load if where == "into" else tier, where, full)
    server.run()
    texts.append(Watched(server, prompt(13, 1), 4))
    server.run()
    server.check()
    for text in texts:
        text.compare()
    assert (tier.failed > 0) == (where != "into")


def test_interrupted_while_it_is_brought_in(made, monkeypatch):
    server, tier = emptied(made, 8, prompt(13))
    text = Watched(server, prompt(13), 4)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as once, pytest.raises(KeyboardInterrupt):
        once.setattr(Load, "into", interrupted)
        server.step()
    server.check()
    server.run()
    server.check()
    text.compare()


def test_a_chat_that_does_not_fit_computes_little_again(made):
    computed = []
    for host in (1, 500):
        server, _ = made(24, host, max_batch_tokens=32)
        converse(server, chat(users=4, turns=4, system=10, turn=6, vocab=VOCAB), 6, at_once=1)
        users = chat(users=4, turns=4, system=10, turn=6, vocab=VOCAB)
        converse(server, users, 6, at_once=1)
        computed.append(server.metrics().computed)
    assert computed[1] < 0.8 * computed[0]


def test_refused(kind):
    other, server = engine(8, prefix_cache=kind), engine(8, prefix_cache=kind)
    with HostTier(other.pages, 8) as tier:
        with pytest.raises(ValueError, match="this tier is of other pages: make it with HostTier"):
            server.spill_to(tier)
        with pytest.raises(ValueError, match="there is no prefix cache, behind which a host's memory could"):
            engine(8).spill_to(tier)
        with pytest.raises(NotImplementedError, match="a simulation has no keys and values"):
            Simulation(8, prefix_cache=kind).spill_to(tier)
        for wrong in (None, "host", server.pages):
            with pytest.raises(TypeError, match="host is .*; make a HostTier"):
                server.spill_to(wrong)
        assert server.scheduler.host is None
