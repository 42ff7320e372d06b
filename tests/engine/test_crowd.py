"""A thousand requests through a pool for a twentieth of their tokens."""

from dataclasses import replace
from random import Random

from tests.engine import cases
from tests.engine.cases import PLAIN, Watched, engine, prompt
from tests.engine.referee import Referee

cases.MODELS["least"] = cases.lively(replace(PLAIN, num_layers=1, hidden_size=8))
SIZE = 4


def requests(count, random):
    """[(prompt, options)]: of few prompts and seeds, so that each text is written alone only once."""
    prompts = [prompt(random.randint(1, 6), seed) for seed in range(16)]
    for number in range(count):
        drawn = {"temperature": 1.5, "seed": random.randrange(3)} if number % 3 else {}
        more = {"n": 2} if number % 10 == 1 else {}
        yield random.choice(prompts), random.randint(1, 16), drawn | more


def work(request):
    """Tokens that go through the model for a request that is never preempted, at most."""
    return request.n * (len(request.ids) + request.new - 1)


def served(count):
    random = Random(0)
    asked = list(requests(count, random))
    slots = sum(len(ids) + new - 1 for ids, new, _ in asked) // 20
    server = engine(slots // SIZE, SIZE, max_batch_tokens=120, model="least")
    referee = Referee(server)
    texts = [Watched(server, ids, new, model="least", **options) for ids, new, options in asked]
    gone = random.sample(texts, count // 50)
    while not server.idle:
        referee.step()
        if gone and len(server.trace) % 3 == 0:
            if not gone[-1].done:
                gone[-1].cancel()
            gone.pop()
    return server, referee, texts


def check_waiting(server, texts):
    """Nobody waits for more steps than the texts in front of it have tokens.

    In every step the first that runs gets on by a token at least, and it is never preempted (the referee sees
    to both), so it ends within as many steps as it has tokens. The first is always the one that has waited
    longest: what comes later cannot delay it.
    """
    in_front = 0
    for each in texts:
        if "admitted" in each.steps:
            assert each.steps["admitted"] <= in_front
        in_front += work(each)
        if each.n == 1:
            assert each.steps["ended"] <= in_front


def check_use(server):
    """That bound is of the worst case. While somebody waits for blocks, most of the pool is in use."""
    steps = [step for step in server.trace.steps if step.because in ("blocks", "preemption")]
    held = sum(step.held for step in steps) / len(steps)
    running = sum(len(step.ran) for step in steps) / len(steps)
    assert held > 0.9 * server.pool.num_blocks and len(steps) > 0.8 * len(server.trace)
    return running


def test_a_thousand_requests():
    server, referee, texts = served(1000)
    assert server.pool.num_free == server.pool.num_blocks
    assert server.requests == [each.request for each in texts]
    for each in texts:
        each.compare()
    referee.check_lives()
    admitted = [each.steps["admitted"] for each in texts if "admitted" in each.steps]
    assert admitted == sorted(admitted)
    assert sum(each.preempted for each in texts) > 50
    assert {each.status for each in texts} == {"finished", "cancelled"}
    assert 40 < check_use(server) < 60
    check_waiting(server, texts)
