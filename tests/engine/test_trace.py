"""The trace: stored, read again, replayed."""

import json

import numpy as np
import pytest

from kvlab.engine import Step, Trace
from kvlab.engine.trace import REASONS
from tests.engine.cases import LETTERS, Watched, engine, prompt
from tests.engine.referee import Referee


def eventful():
    """A trace in which everything happens -> its engine."""
    server = engine(9, max_batch_tokens=7, tokenizer=LETTERS)
    referee = Referee(server)
    Watched(server, prompt(5), 15)
    referee.step()
    Watched(server, prompt(9, 1), 9, n=2, temperature=1.0, seed=1)
    Watched(server, prompt(4, 2), 9, stop_strings=[*"abcdefgh"])
    gone = Watched(server, prompt(30, 3), 4)
    for _ in range(12):
        referee.step()
    gone.cancel()
    referee.run()
    return server


def test_stored_and_read_again():
    trace = eventful().trace
    for field in (
        "submitted",
        "ran",
        "admitted",
        "preempted",
        "short",
        "forked",
        "because",
        "taken",
        "freed",
    ):
        assert any(getattr(step, field) for step in trace.steps), f"nothing to store of {field}"
    assert {why for step in trace.steps for _, why in step.ended} == {"length", "stop", "cancelled"}
    text = trace.text()
    again = Trace.from_text(text)
    assert ": " not in text and ", " not in text
    assert again == trace and again.text() == text and again.lives() == trace.lives()
    assert (again.num_blocks, again.block_size, again.max_batch_tokens) == (9, 4, 7)
    assert all(isinstance(step, Step) for step in again.steps) and len(again) == len(trace)
    assert again[3] == trace[3] and again != Trace(9, 4, 7) != "trace"
    again[3].held += 1
    assert again != trace


def test_sizes_of_any_integer_type():
    server = engine(np.int64(9), np.int32(4), np.int16(7), np.int8(1))
    server.submit(np.array(prompt(5)), np.int64(3), n=np.uint8(2), seed=np.int64(1), stop=np.int64(2))
    server.run()
    assert Trace.from_text(server.trace.text()) == server.trace
    server.trace[0].seconds = 1  # a clock may count in whole numbers
    assert Trace.from_text(server.trace.text()) == server.trace


GOOD = {"num_blocks": 9, "block_size": 4, "max_batch_tokens": 7, "steps": [{"number": 0}, {"number": 1}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "5",
        "[]",
        "{}",
        '"steps"',
        "[" * 100_000,
        json.dumps(GOOD)[:-1],
        json.dumps(GOOD | {"steps": None}),
        json.dumps(GOOD | {"steps": [3]}),
        json.dumps(GOOD | {"steps": [{}]}),
        json.dumps(GOOD | {"steps": [{"number": 1}]}),
        json.dumps(GOOD | {"steps": [{"number": "0"}]}),
        json.dumps(GOOD | {"steps": [{"number": 0, "more": 1}]}),
        json.dumps(GOOD | {"steps": [{"number": 0, "ran": 3}]}),
        json.dumps(GOOD | {"steps": [{"number": 0, "seconds": None}]}),
        json.dumps(GOOD | {"more": 1}),
        json.dumps(GOOD | {"num_blocks": "9"}),
        json.dumps(GOOD | {"num_blocks": 9.5}),
        json.dumps(GOOD | {"block_size": 0}),
        json.dumps({key: value for key, value in GOOD.items() if key != "block_size"}),
        None,
        3,
    ],
)
def test_what_is_no_trace(text):
    assert len(Trace.from_text(json.dumps(GOOD))) == 2
    with pytest.raises(ValueError, match=r"this is not the text of a trace \(.*\): store trace\.text\(\)"):
        Trace.from_text(text)


def test_lives_of_a_trace_made_by_hand():
    steps = [
        Step(0, submitted=[[0, 5, 4, 1], ["1.0", 9, 3, 2]], admitted=[0, "1.0"], ran=[[0, 5, "prefill"]]),
        Step(
            1,
            submitted=[[2, 3, 3, 1], [3, 1, 1, 1]],
            ran=[[0, 1, "decode"], ["1.0", 9, "prefill"]],
            forked=["1.1"],
        ),
        Step(2, ran=[[0, 1, "decode"]], preempted=[["1.1", 9], ["1.0", 9]], ended=[[3, "cancelled"]]),
        Step(3, ran=[["1.0", 10, "prefill"], [0, 1, "decode"]], admitted=["1.0"], ended=[[0, "length"]]),
        Step(4, ended=[["1.0", "cancelled"], ["1.1", "cancelled"]], admitted=[2], ran=[[2, 3, "prefill"]]),
        Step(5, ran=[[2, 1, "decode"]], ended=[[2, "stop"]]),
        Step(6),
    ]
    assert Trace(9, 4, 7, steps).lives() == {
        0: {0: ("prefill", 5), 1: ("decode", 1), 2: ("decode", 1), 3: ("decode", 1)},
        "1.0": {0: ("paused", 0), 1: ("prefill", 9), 2: ("waiting", 0), 3: ("prefill", 10)},
        "1.1": {2: ("waiting", 0), 3: ("waiting", 0)},
        2: {1: ("waiting", 0), 2: ("waiting", 0), 3: ("waiting", 0), 4: ("prefill", 3), 5: ("decode", 1)},
        3: {1: ("waiting", 0)},
    }


def test_tokens_and_reasons_of_a_step():
    step = Step(3, ran=[[0, 1, "decode"], [1, 1, "decode"], [2, 7, "prefill"]], because="blocks")
    assert (step.tokens, step.of("decode"), step.of("prefill")) == (9, 2, 7)
    assert step.reason == REASONS["blocks"] and Step(4).reason == ""


def test_what_is_asked_between_two_steps_is_in_the_next():
    server = engine(20)
    first, second = server.submit(prompt(5), 9), server.submit(prompt(5, 1), 9)
    server.cancel(second)
    assert server.step().ended == [[1, "cancelled"]]
    assert server.trace[0].submitted == [[0, 5, 9, 1], [1, 5, 9, 1]] and server.trace.lives().keys() == {0}
    third = server.submit(prompt(6), 2, n=3)
    server.cancel(first)
    step = server.step()
    assert step.submitted == [["2.0", 6, 2, 3]] and step.ended == [[0, "cancelled"]]
    assert (step.taken, step.freed, step.held) == (2, 2, 2) and step.forked == ["2.1", "2.2"]
    server.run()
    assert (first.steps["ended"], second.steps["ended"], third.steps["submitted"]) == (1, 0, 1)


def test_an_empty_step():
    server = engine(20)
    step = server.step()
    assert vars(step) == vars(Step(0, began=step.began, seconds=step.seconds)) and len(server.trace) == 1
