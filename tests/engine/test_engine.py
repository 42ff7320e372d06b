"""The engine: every request gets the tokens that it would get alone, whoever else is served."""

from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.engine import Engine, Trace
from tests.models import ABSORBED, SMALL, random_ids, random_model


@pytest.fixture(scope="module")
def model():
    return random_model()


def prompt(n, seed=0):
    return random_ids(n, seed=seed).tolist()


def drained(engine):
    while not engine.idle:
        engine.step()
        engine.check()
    assert engine.pool.num_free == engine.pool.num_blocks
    return engine


@pytest.mark.parametrize("config", [SMALL, ABSORBED, replace(SMALL, windows=(3, None, 5))])
@pytest.mark.parametrize(("blocks", "budget"), [(400, 512), (400, 5), (14, 8), (14, 64)])
def test_tokens_do_not_depend_on_the_company(config, blocks, budget):
    model = random_model(config)
    engine = Engine(model, blocks, 4, budget)
    wanted = []
    for i in range(9):
        ids, options = prompt(3 + 5 * i % 23, seed=i), {"max_new_tokens": 3 + 4 * i % 17}
        if i % 2:
            options |= {"temperature": 0.9, "seed": i, "top_k": 9}
        wanted.append((engine.submit(ids, **options), list(kvlab.generate(model, ids, **options))))
        if i % 3 == 0:
            engine.step()
    drained(engine)
    for request, tokens in wanted:
        assert request.outputs == [tokens] and request.status == "finished"


def test_n_texts_share_their_prompt_and_are_those_of_their_seeds(model):
    ids = prompt(11)
    engine = Engine(model, 60, 4)
    request = engine.submit(ids, 9, n=3, temperature=1.0, seed=5)
    engine.step()
    assert engine.pool.num_held == 3 and len(engine.trace[0].forked) == 2
    drained(engine)
    for i, tokens in enumerate(request.outputs):
        assert tokens == list(kvlab.generate(model, ids, 9, temperature=1.0, seed=5 + i))


def test_a_step_never_computes_more_than_its_budget_and_decodes_come_first(model):
    engine = Engine(model, 200, 4, max_batch_tokens=7)
    engine.submit(prompt(5), 20)
    engine.step()
    engine.submit(prompt(40, seed=1), 5)
    for _ in range(6):
        step = engine.step()
        assert step.tokens <= 7 and step.ran[0][2] == "decode"
    assert [ran[1] for ran in engine.trace[1].ran] == [1, 6]
    drained(engine)


def test_preempted_and_resumed_with_what_it_had_written(model):
    engine = Engine(model, 8, 4, spare_blocks=0)
    first, second = (engine.submit(prompt(9, seed=i), 14) for i in range(2))
    drained(engine)
    assert second.preempted > 0 == first.preempted
    for i, request in enumerate((first, second)):
        assert request.outputs == [list(kvlab.generate(model, prompt(9, seed=i), 14))]


def test_stop_tokens_end_a_text_and_are_not_part_of_it(model):
    ids = prompt(9)
    plain = list(kvlab.generate(model, ids, 12))
    request = Engine(model, 40, 4).submit(ids, 12, stop=plain[4])
    engine = Engine(model, 40, 4)
    request = engine.submit(ids, 12, stop=plain[4])
    drained(engine)
    assert request.outputs == [plain[: plain.index(plain[4])]] and request.why == ["stop"]


def test_cancelled_at_any_moment_it_gives_its_blocks_back(model):
    for steps in range(6):
        engine = Engine(model, 30, 4, max_batch_tokens=6)
        kept, gone = engine.submit(prompt(9), 6), engine.submit(prompt(9, seed=1), 6, n=2, temperature=1.0)
        for _ in range(steps):
            engine.step()
        engine.cancel(gone)
        engine.check()
        with pytest.raises(ValueError, match="has ended already: it is cancelled"):
            engine.cancel(gone)
        drained(engine)
        assert kept.outputs == [list(kvlab.generate(model, prompt(9), 6))] and gone.status == "cancelled"


def test_streaming_gives_each_token_as_it_is_written(model):
    engine = Engine(model, 40, 4)
    other, request = engine.submit(prompt(5), 3), engine.submit(prompt(9, seed=1), 8)
    assert list(engine.stream(request)) == list(kvlab.generate(model, prompt(9, seed=1), 8))
    assert other.status == "finished"


def test_times_and_steps_are_noted(model):
    engine = Engine(model, 40, 4, max_batch_tokens=4)
    request = engine.submit(prompt(9), 5)
    engine.run()
    assert request.steps == {"submitted": 0, "admitted": 0, "first token": 2, "ended": 6}
    assert 0 < request.queueing < request.ttft < request.latency and request.tpot > 0


def test_the_trace_is_stored_and_read_again(model):
    engine = Engine(model, 8, 4, spare_blocks=0)
    for i in range(3):
        engine.submit(prompt(9, seed=i), 14)
    engine.run()
    again = Trace.from_text(engine.trace.text())
    assert again.steps == engine.trace.steps and any(step.preempted for step in again.steps)


def test_what_cannot_be_served_is_refused_at_submit(model):
    engine = Engine(model, 10, 4, max_batch_tokens=6)
    for arguments, message in {
        (300, 2): "301 positions, but the model has 300",
        (30, 12): "41 slots, but the pool has 40",
        (5, 0): "max_new_tokens is 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            engine.submit(prompt(arguments[0]), arguments[1])
    for n, message in {0: "n is 0", 7: "n is 7 texts, but a step has room for 6 tokens"}.items():
        with pytest.raises(ValueError, match=message):
            engine.submit(prompt(5), 4, n=n)
    with pytest.raises(ValueError, match="the prompt is empty"):
        engine.submit([])
    assert engine.idle and not engine.requests
    engine.submit(prompt(30), 11)
    drained(engine)
    for name, value in {"num_blocks": 0, "block_size": 0, "max_batch_tokens": 0, "spare_blocks": -1}.items():
        with pytest.raises(ValueError, match=name):
            Engine(model, **({"num_blocks": 10} | {name: value}))
    with pytest.raises(ValueError, match="not of this engine"):
        Engine(model, 10).cancel(engine.requests[0])


def test_rows_of_the_model(model):
    ids = torch.tensor(prompt(9))
    full = model(ids, kvlab.caches.NoCache(SMALL))
    some = model(ids, kvlab.caches.NoCache(SMALL), rows=[8, 2])
    assert (some - full[[8, 2]]).abs().max() < 1e-12
