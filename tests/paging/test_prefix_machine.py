"""Any order of operations on a prefix cache: what it answers is what a plain dict answers."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.paging.prefix_cases import BOTH
from tests.paging.prefix_machine import PrefixMachine

SIZES = pytest.mark.parametrize("size", [1, 4, 16])


def run(make, size, examples, steps):
    machine = type(f"{make.__name__}{size}", (PrefixMachine,), {"make": make, "size": size, "steps": 0})
    wanted = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(machine, settings=wanted)
    return machine.steps


@BOTH
@SIZES
def test_some_hundred_operations(make, size):
    assert run(make, size, 30, 30) > 300


@pytest.mark.slow
@BOTH
@SIZES
def test_twenty_thousand_operations(make, size):
    assert run(make, size, 750, 50) > 20_000
