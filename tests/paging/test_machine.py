"""Any order of operations on shared blocks: no sequence ever notices the others."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.paging.machine import Sequences


def run(examples, steps):
    Sequences.steps = 0
    run_state_machine_as_test(
        Sequences, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )
    return Sequences.steps


def test_some_hundred_operations():
    assert run(30, 25) > 300


@pytest.mark.slow
def test_twenty_thousand_operations():
    assert run(500, 50) > 20_000
