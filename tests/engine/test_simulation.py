"""The simulation is the engine with a price: the same schedule, and times that the roofline gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab import memory
from kvlab.engine import Engine, Price, Simulation, arrivals, serve
from kvlab.paging.reservation import lognormal
from tests.models import random_ids, random_model

MODELS = ["Llama-3.1-8B", "Gemma-2-9B", "DeepSeek-V3", "Mixtral-8x7B-v0.1"]
DEVICE = "NVIDIA H100 SXM"


def schedule(trace):
    return [(step.ran, step.admitted, step.preempted, step.ended, step.held, step.freed) for step in trace]


@pytest.mark.parametrize(("blocks", "budget", "spare"), [(60, 30, 1), (14, 8, 0), (14, 40, 2)])
def test_it_makes_the_steps_that_the_engine_makes(blocks, budget, spare):
    model = random_model()
    engine, simulation = Engine(model, blocks, 4, budget, spare), Simulation(blocks, 4, budget, spare)
    for i in range(9):
        prompt, new, n = 3 + 5 * i % 23, 3 + 4 * i % 17, 1 + i % 3 // 2
        engine.submit(random_ids(prompt, seed=i).tolist(), new, n=n, temperature=n - 1.0, seed=i)
        simulation.submit([0] * prompt, new, n=n)
        if i % 3 == 0:
            engine.step()
            simulation.step()
    assert schedule(simulation.run()) == schedule(engine.run())
    simulation.check()
    assert simulation.now == len(simulation.trace)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("tokens", "sequences"), [(1, 1), (300, 7), (5000, 3), (5000, 64)])
def test_a_decode_step_costs_what_the_roofline_says(name, tokens, sequences):
    step = Price(name, DEVICE).step([(tokens - 1, 1)] * sequences)
    spec, device = memory.spec_of(name), memory.device(DEVICE)
    expected = memory.decode(spec, tokens, device, sequences)
    assert step.kv_read == expected.kv_read and step.weights_read == expected.weights_read
    assert step.flops == expected.flops and step.floor_s == expected.floor_s


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [2, 300, 5000])
def test_a_prefill_costs_what_the_roofline_says_and_chunks_add_up(name, tokens):
    price, expected = Price(name, DEVICE), memory.prefill(name, tokens, DEVICE)
    whole = price.step([(0, tokens)])
    assert whole.flops == expected.flops and whole.compute_s == expected.compute_s
    chunks = [price.step([(start, min(100, tokens - start))]) for start in range(0, tokens, 100)]
    assert sum(chunk.flops for chunk in chunks) == whole.flops
    together = price.step([(0, tokens), (40, 1)])
    assert together.kv_read == whole.kv_read + price.step([(40, 1)]).kv_read


def test_an_unknown_model_or_device_is_refused():
    with pytest.raises(ValueError, match="no-such"):
        Price("no-such-model")
    with pytest.raises(ValueError, match="no-such"):
        Price("Llama-3.1-8B", "no-such-device")


def test_requests_come_at_their_times_and_the_clock_waits_for_them():
    simulation = Simulation(100, 4, 16)
    first, second, third = serve(simulation, [(0.0, [0] * 5, 3), (1.5, [0] * 5, 2), (10.0, [0] * 5, 1)])
    assert first.times == {"submitted": 0.0, "admitted": 0.0, "first token": 1.0, "ended": 3.0}
    assert second.times == {"submitted": 1.5, "admitted": 2.0, "first token": 3.0, "ended": 4.0}
    assert third.times == {"submitted": 10.0, "admitted": 10.0, "first token": 11.0, "ended": 11.0}
    assert second.queueing == 0.5 and second.ttft == 1.5 and second.tpot == 1.0 and second.latency == 2.5
    again = serve(simulation, [(2.0, [0] * 5, 1)])[0]
    assert again.times["submitted"] == 13.0  # times count from the call


def test_a_real_engine_waits_too():
    engine = Engine(random_model(), 40, 4)
    requests = serve(engine, [(0.0, [1, 2, 3], 4), (0.05, [4, 5], 4)])
    assert requests[1].times["first token"] > 0.05 and all(each.status == "finished" for each in requests)


@given(st.floats(0.1, 100), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_arrivals_come_in_order_at_about_their_rate(rate, seed):
    lengths = [(1, 1)] * 400
    times = [at for at, *_ in arrivals(lengths, rate, seed)]
    assert times == sorted(times) and times == [at for at, *_ in arrivals(lengths, rate, seed)]
    assert times[-1] * rate / 400 == pytest.approx(
        1, abs=0.25
    )  # a mean of 400 with deviation 1/20: five of them


def test_a_rate_of_nothing_is_refused():
    for rate in (0, -1):
        with pytest.raises(ValueError, match=f"{rate} requests a second: give a number above 0"):
            arrivals([(1, 1)], rate)


def test_littles_law_holds_for_every_run():
    simulation = Simulation(40, 4, 16)
    served = serve(simulation, [(at, [0] * p, a) for at, p, a in arrivals(lognormal(20, 20, 60, 3), 0.1, 3)])
    lives = simulation.trace.lives()
    present = [sum(step in life for life in lives.values()) for step in range(len(simulation.trace))]
    assert sum(present) == sum(each.steps["ended"] - each.steps["submitted"] + 1 for each in served)
    assert any(each.preempted for each in served) and max(present) > 3
