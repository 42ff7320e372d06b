"""Texts as they are written, while anything else is asked of the engine between two tokens."""

import pytest

from tests.engine.cases import LETTERS, Watched, alone, engine, prompt
from tests.engine.referee import Referee


def test_each_token_comes_with_the_step_that_writes_it():
    server = engine(40)
    other, request = server.submit(prompt(5), 3), server.submit(prompt(9, 1), 8)
    for number, token in enumerate(server.stream(request)):
        assert len(server.trace) == number + 1 and request.outputs[0][-1] == token
    assert request.outputs[0] == alone(prompt(9, 1), 8)[0]
    assert other.status == "finished" and len(server.trace) == 8


def test_a_text_that_has_ended_is_given_at_once_and_again():
    server = engine(40)
    request = server.submit(prompt(9), 8)
    server.run()
    for _ in range(2):
        assert list(server.stream(request)) == request.outputs[0]
    assert len(server.trace) == 8


def test_nothing_is_done_before_the_first_token_is_asked_for():
    server = engine(40)
    stream = server.stream(server.submit(prompt(9), 8))
    assert len(server.trace) == 0
    next(stream)
    assert len(server.trace) == 1


@pytest.mark.parametrize("text", [False, True])
def test_two_streams_by_turns_lose_nothing(text):
    server = engine(9, tokenizer=LETTERS)
    first, second = Watched(server, prompt(5), 19), Watched(server, prompt(4, 1), 21)
    stream = server.stream_text if text else server.stream
    streams, got = [stream(first.request), stream(second.request)], [[], []]
    for i in [0, 1, 1, 0, 0, 0, 1, 0, 1] * 5:
        got[i] += [piece for piece in [next(streams[i], None)] if piece is not None]
    for i, each in enumerate((first, second)):
        got[i] += streams[i]
        each.compare()
        assert ("".join(got[i]) == each.texts[0]) if text else (got[i] == each.outputs[0])
    assert second.preempted and server.idle


def test_n_texts_by_turns():
    server = engine(40)
    request = Watched(server, prompt(5), 6, n=3, temperature=0.9, seed=1)
    for tokens in zip(*(server.stream(request.request, i) for i in range(3)), strict=True):
        assert len(tokens) == 3
    assert len(server.trace) == 6
    request.compare()


def test_submitting_and_cancelling_between_two_tokens():
    server, more = engine(9), []
    request = server.submit(prompt(5), 15)
    for number, _ in enumerate(server.stream(request)):
        server.check()
        if number % 3 == 0:
            more.append(Watched(server, prompt(4 + number, number), 5))
        if number == 7:
            more[1].cancel()
    Referee(server).run()
    assert request.outputs[0] == alone(prompt(5), 15)[0]
    for each in more:
        each.compare()


@pytest.mark.parametrize("text", [False, True])
def test_cancelled_between_two_tokens_it_ends(text):
    server = engine(9, tokenizer=LETTERS)
    request, got = server.submit(prompt(5), 15), []
    for piece in (server.stream_text if text else server.stream)(request):
        got.append(piece)
        if len(got) == 4:
            server.cancel(request)
            steps = len(server.trace)
    assert len(server.trace) == steps, "nobody is left to make a step for"
    assert ("".join(got) == request.texts[0]) if text else (got == request.outputs[0])
    assert request.why == ["cancelled"] and server.idle


def test_of_one_that_was_cancelled_before_anything_was_written():
    server = engine(9)
    request = server.submit(prompt(5), 15, n=2)
    server.cancel(request)
    assert list(server.stream(request)) == list(server.stream(request, 1)) == [] and len(server.trace) == 0


def test_a_step_that_fails_inside_a_stream_can_be_made_again():
    server = engine(9)
    request = server.submit(prompt(5), 6)
    stream, step = server.stream(request), server.step
    next(stream)

    def failing():
        raise KeyboardInterrupt

    server.step = failing
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    server.step = step
    assert list(server.stream(request)) == alone(prompt(5), 6)[0]


@pytest.mark.parametrize("stream", ["stream", "stream_text"])
def test_what_cannot_be_streamed_is_refused_at_the_call(stream):
    server, other = engine(9, tokenizer=LETTERS), engine(9, tokenizer=LETTERS)
    request = server.submit(prompt(5), 6, n=2)
    stream = getattr(server, stream)
    with pytest.raises(ValueError, match="there is no text 2 of request 0: it has 2, numbered from 0"):
        stream(request, 2)
    with pytest.raises(ValueError, match="index is -1; it must be an integer of 0 or more"):
        stream(request, -1)
    with pytest.raises(TypeError, match="index is 0.0"):
        stream(request, 0.0)
    with pytest.raises(ValueError, match="request 0 is not of this engine: give what its submit returned"):
        stream(other.submit(prompt(5)))
    with pytest.raises(ValueError, match="0 is not of this engine"):
        stream(0)
    assert len(server.trace) == 0 and request.status == "waiting"
