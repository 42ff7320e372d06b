"""What an engine says of how it served: each figure from a run that can be counted by hand."""

import pytest

from kvlab.engine import Simulation, Spread


def test_a_run_counted_by_hand():
    simulation = Simulation(num_blocks=10, block_size=4, max_batch_tokens=8)
    simulation.submit([0] * 10, 3)  # steps 0 and 1 prefill, 2 and 3 decode
    simulation.submit([0] * 4, 2)  # waits a step; prefill in step 1, decode in step 2
    m = simulation.run() and simulation.metrics()
    assert [[n for _, n, _ in step.ran] for step in simulation.trace] == [[8], [2, 4], [1, 1], [1]]
    assert (m.finished, m.steps, m.written, m.computed, m.given_up) == (2, 4, 5, 17, 0)
    assert m.seconds == 4 and m.throughput == 5 / 4
    assert m.budget_used == 17 / 32 and m.running == 6 / 4
    # blocks while computing: 3 (all of the prompt's first 8 tokens: 2), then 3 + 1, 3 + 2, 3
    assert [step.held for step in simulation.trace] == [2, 4, 5, 3]
    assert m.pool_used == 14 / 40
    assert m.queueing == Spread(0, 1, 1) and m.ttft == Spread(2, 2, 2) and m.tpot == Spread(1, 1, 1)
    assert m.latency == Spread(3, 4, 4)


def test_tokens_that_preemption_threw_away_are_counted():
    simulation = Simulation(num_blocks=8, block_size=4, max_batch_tokens=512, spare_blocks=0)
    for _ in range(2):
        simulation.submit([0] * 9, 14)
    m = simulation.run() and simulation.metrics()
    assert m.given_up == sum(tokens for step in simulation.trace for _, tokens in step.preempted) > 0
    assert m.computed == 2 * (9 + 13) + m.given_up and m.written == 28


def test_before_anything_has_happened_there_are_no_figures():
    m = Simulation(num_blocks=10).metrics()
    assert (m.finished, m.steps, m.written, m.throughput, m.pool_used) == (0, 0, 0, 0, 0)
    assert m.queueing is m.ttft is m.tpot is m.latency is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([3.0], (3, 3, 3)),
        ([2.0, None, 1.0], (1, 2, 2)),
        (list(range(1, 11)), (5, 9, 10)),
        (list(range(10, 0, -1)), (5, 9, 10)),
        (list(range(1, 12)), (6, 10, 11)),
    ],
)
def test_spread(values, expected):
    assert Spread.of(values) == (expected and Spread(*expected))
