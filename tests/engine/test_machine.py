"""The engine's stateful machine: some hundred steps in every run, many thousand in the long one."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import EngineMachine


def test_some_hundred_steps():
    options = settings(max_examples=10, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(EngineMachine, settings=options)


@pytest.mark.slow
def test_many_thousand_steps():
    options = settings(max_examples=500, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(EngineMachine, settings=options)
    assert EngineMachine.steps > 9000 and min(EngineMachine.preemptions, EngineMachine.failures) > 300
