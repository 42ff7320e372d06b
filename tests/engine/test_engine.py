"""The engine: every request gets the tokens that it would get alone, whoever else is served."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import kvlab
from kvlab.caches import NoCache
from kvlab.engine import Engine
from kvlab.generation.sampling import Sampler
from tests.engine.cases import MODEL, MODELS, PLAIN, Watched, alone, engine, prompt
from tests.engine.referee import Referee
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model


@pytest.mark.parametrize(
    ("blocks", "budget", "size", "model"),
    [
        (200, 512, 4, "plain"),
        (200, 5, 4, "plain"),
        (200, 5, 4, "latent"),
        (15, 20, 3, "plain"),
        *((11, 8, 4, model) for model in MODELS),
        (3, 16, 16, "windows"),
    ],
)
def test_tokens_do_not_depend_on_the_company(blocks, budget, size, model):
    server = engine(blocks, size, budget, model=model)
    referee, texts = Referee(server), []
    for i in range(9):
        drawn = {"temperature": 0.9, "seed": i, "top_k": 9} if i % 2 else {}
        texts.append(Watched(server, prompt(3 + 5 * i % 23, i), 3 + 4 * i % 17, model=model, **drawn))
        if i % 3 == 0:
            referee.step()
    trace = referee.run()
    for each in texts:
        each.compare()
    assert any(step.preempted for step in trace.steps) == (blocks < 20)


@pytest.mark.parametrize("config", [SMALL, NAIVE, replace(ABSORBED, windows=(2, None, 7))])
def test_models_of_other_shapes(config):
    model = random_model(config)
    server = Engine(model, 9, 4, 12)
    asked = [(random_ids(5 + 3 * i, seed=i).tolist(), 9) for i in range(4)]
    requests = [server.submit(ids, new) for ids, new in asked]
    Referee(server).run()
    assert [each.outputs for each in requests] == [[list(kvlab.generate(model, *each))] for each in asked]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_numbers(dtype):
    """Rounding may pick another token than alone, but one that is as good."""
    model = random_model(PLAIN, dtype)
    exact = random_model(PLAIN)
    exact.load_state_dict({name: weight.double() for name, weight in model.state_dict().items()})
    server = Engine(model, 9, 4, 12)
    requests = [server.submit(prompt(5, i), 9) for i in range(4)]
    Referee(server).run()
    for each in requests:
        logits = exact(torch.tensor([*each.prompt, *each.outputs[0]]), NoCache(PLAIN))[4:-1]
        chosen = logits.gather(1, torch.tensor(each.outputs[0])[:, None])[:, 0]
        assert (logits.max(dim=-1).values - chosen).max() < (1e-4 if dtype == torch.float32 else 0.5)


def test_one_forward_pass_explains_all_of_a_text():
    """The tokens are the likeliest after all that came before; drawn ones are those of their seed."""
    server = engine(11)
    drawn = {"temperature": 1.3, "top_p": 0.9}
    greedy, sampled = server.submit(prompt(9), 15), server.submit(prompt(7, 1), 15, seed=4, n=2, **drawn)
    Referee(server).run()
    for request in (greedy, sampled):
        for index, written in enumerate(request.outputs):
            logits = MODEL(torch.tensor([*request.prompt, *written]), NoCache(PLAIN))[
                len(request.prompt) - 1 :
            ]
            sampler = Sampler() if request is greedy else Sampler(seed=4 + index, **drawn)
            assert [sampler.pick(row) for row in logits[:-1]] == written
    assert sampled.preempted


def test_n_texts_share_their_prompt_and_are_those_of_their_seeds():
    server = engine(60)
    text, referee = Watched(server, prompt(11), 9, n=3, temperature=1.0, seed=5), Referee(server)
    step = referee.step()
    assert server.pool.num_held == 3 and step.forked == ["0.1", "0.2"] and step.taken == 3
    assert referee.step().taken == 2, "two copy the last block, the third keeps it"
    referee.run()
    text.compare()
    assert len({tuple(output) for output in text.outputs}) == 3


def test_two_requests_of_several_texts_fork_in_one_step():
    server = engine(60)
    texts = [Watched(server, prompt(5 + i, i), 4, n=2, temperature=1.0, seed=i) for i in range(2)]
    referee = Referee(server)
    assert referee.step().forked == ["0.1", "1.1"]
    referee.run()
    for each in texts:
        each.compare()


def test_texts_without_a_seed_differ():
    server = engine(60)
    requests = [server.submit(prompt(5), 12, n=2, temperature=3.0) for _ in range(2)]
    server.run()
    assert len({tuple(output) for each in requests for output in each.outputs}) == 4


def test_prompts_of_any_kind():
    server, ids = engine(60), prompt(9)
    kinds = ids, tuple(ids), iter(ids), np.array(ids), torch.tensor(ids), [np.int64(i) for i in ids]
    requests = [server.submit(each, 6) for each in kinds]
    ids.append(0)  # nobody looks at the caller's list again
    server.run()
    assert {tuple(each.outputs[0]) for each in requests} == {tuple(alone(prompt(9), 6)[0])}
    assert all(type(token) is int for each in requests for token in [*each.prompt, *each.outputs[0]])


def test_a_step_never_computes_more_than_its_budget_and_decodes_come_first():
    server = engine(200, max_batch_tokens=7)
    referee, first = Referee(server), Watched(server, prompt(5), 20)
    referee.step()
    second = Watched(server, prompt(40, 1), 5)
    for _ in range(6):
        step = referee.step()
        assert [(name, n, what) for name, n, what in step.ran] == [(0, 1, "decode"), (1, 6, "prefill")]
    referee.run()
    first.compare()
    second.compare()


def test_what_a_request_says_of_itself():
    server = engine(9)
    ticks = iter(range(1000))
    server.clock, server._made = lambda: next(ticks), 0
    first, second = server.submit(prompt(5), 3, n=2, temperature=1.0), server.submit(prompt(30), 4)
    assert (first.status, second.status, first.done) == ("waiting", "waiting", False)
    assert (first.queueing, first.ttft, first.tpot, first.latency) == (None,) * 4
    assert first.steps == {"submitted": 0} and first.times == {"submitted": 0}
    server.step()
    assert (first.status, second.status) == ("running", "waiting")
    assert first.tpot is first.latency is None and 0 < first.queueing < first.ttft
    server.run()
    assert (first.status, second.status, first.done) == ("finished", "finished", True)
    assert first.steps == {"submitted": 0, "admitted": 0, "first token": 0, "ended": 2}
    assert second.steps == {"submitted": 0, "admitted": 3, "first token": 3, "ended": 6}
    for each, more in ((first, 2), (second, 3)):
        assert each.queueing == each.times["admitted"] - each.times["submitted"]
        assert each.ttft == each.times["first token"] - each.times["submitted"]
        assert each.latency == each.times["ended"] - each.times["submitted"]
        assert each.tpot == (each.latency - each.ttft) / more
        assert sorted(each.times.values()) == list(each.times.values())
    for step, after in pairwise(server.trace.steps):
        assert 0 < step.began < step.began + step.seconds < after.began
    assert repr(second) == f"Request(1, finished: 30 tokens, {second.outputs})"
    assert [repr(each) for each in first.sequences] == [
        f"Sequence(0.{i}: {5 + 3} tokens, 0 stored)" for i in range(2)
    ]


def test_status_while_some_of_its_texts_wait():
    server = engine(13)
    Watched(server, prompt(6), 9)
    several, referee = Watched(server, prompt(7, 1), 17, n=4, temperature=0.9, seed=8), Referee(server)
    while not server.idle:
        step = referee.step()
        running = any(each.request is several.request for each in server.scheduler.running)
        if not several.done:
            assert several.status == ("running" if running else "waiting")
    assert several.status == "finished" and step.number == several.steps["ended"]


def test_a_text_of_one_token_has_no_time_per_further_token():
    server = engine(9)
    request = server.submit(prompt(5), 1)
    assert server.run() is server.trace and request.tpot is None and request.latency >= request.ttft > 0


def test_time_per_token_is_that_of_the_longest_text():
    server, ticks = engine(20), iter(range(1000))
    server.clock, server._made = lambda: next(ticks), 0
    request = server.submit(prompt(5), 9, n=2, temperature=1.0, stop=0)
    for sampler, script in zip(request.samplers, ([1, 2, 0], [1, 2, 3, 4, 0]), strict=True):
        sampler.pick = lambda _, script=iter(script): next(script)  # noqa: B008
    server.run()
    assert [len(output) for output in request.outputs] == [2, 4]
    assert request.tpot == (request.latency - request.ttft) / 3


def test_check_names_what_is_broken():
    server = engine(20, max_batch_tokens=3)
    requests = [server.submit(prompt(5, i), 9, n=2, temperature=1.0) for i in range(2)]
    for _ in range(3):
        server.step()
    server.check()
    running, waiting = server.scheduler.running, server.scheduler.waiting
    first = waiting[0]
    first.table = running[0].table
    with pytest.raises(AssertionError, match="somebody waits and holds blocks"):
        server.check()
    first.table = None
    waiting.pop()
    with pytest.raises(AssertionError, match="is in no queue"):
        server.check()
    waiting.append(first)
    server.scheduler.max_batch_tokens = 1
    with pytest.raises(AssertionError, match="more texts run than one step can serve"):
        server.check()
    server.scheduler.max_batch_tokens = 3
    requests[0].why = ["length"] * 2
    with pytest.raises(AssertionError, match="one that is done still is"):
        server.check()
    requests[0].why = [None] * 2
    table = running.pop().table
    with pytest.raises(AssertionError, match="other numbers of owners"):
        server.check()
    assert table.blocks


def test_an_idle_engine_makes_empty_steps():
    server = engine(9)
    assert server.idle and not server.step().ran and server.run().steps == server.trace.steps
    assert len(server.trace) == 1


def test_rows_of_the_model():
    ids = torch.tensor(prompt(9))
    full = MODEL(ids, NoCache(PLAIN))
    some = MODEL(ids, NoCache(PLAIN), rows=[8, 2])
    assert (some - full[[8, 2]]).abs().max() < 1e-12
    assert MODEL(ids, NoCache(PLAIN), rows=[]).shape == (0, PLAIN.vocab_size)
