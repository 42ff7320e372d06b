"""The engine's stateful machine: some hundred steps in every run, many thousand in the long one."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import EngineMachine, HashMachine, RadixMachine

MACHINES = pytest.mark.parametrize("machine", [EngineMachine, RadixMachine, HashMachine])


@MACHINES
def test_some_hundred_steps(machine):
    options = settings(max_examples=10, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(machine, settings=options)


@MACHINES
@pytest.mark.slow
def test_many_thousand_steps(machine):
    options = settings(max_examples=500, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(machine, settings=options)
    assert machine.steps > 9000 and min(machine.preemptions, machine.failures) > 100
    if machine.prefix_cache is not None:
        assert machine.found > 3000 and machine.evicted > 3000
