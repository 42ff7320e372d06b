"""Stop tokens and strings, and texts as they are written: wherever tokens cut them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kvlab
from kvlab.engine.stopping import HALF, Stop
from tests.engine.cases import LETTERS, VOCAB, Watched, alone, engine, prompt, stopped
from tests.engine.referee import Referee


def spell(text):
    """Tokens of single letters."""
    return [LETTERS.pieces.index(bytes([byte])) for byte in text.encode()]


def scripted(server, script, new=30, stop=(), **options):
    """A request that writes these tokens, whatever the model says."""
    request, script = server.submit(prompt(5), new, stop=stop, **options), iter(script)
    request.samplers[0].pick = lambda _: next(script)
    return request


def written(script, stop_strings, new=30):
    server = engine(20, tokenizer=LETTERS)
    request = scripted(server, script, new, stop_strings=stop_strings)
    pieces = list(server.stream_text(request))
    assert "".join(pieces) == request.texts[0] and all(pieces)
    return request


def test_a_stop_token_ends_a_text_and_is_not_part_of_it():
    tokens = alone(prompt(9), 12)[0]
    last = tokens[3]
    assert tokens.index(last) == 3
    for stop in (last, [last], (tokens[11], last), {last}, iter([last]), torch.tensor(last)):
        server = engine(40)
        request = server.submit(prompt(9), 12, stop=stop)
        Referee(server).run()
        assert request.outputs == [tokens[:3]] and request.why == ["stop"]


def test_a_stop_token_that_comes_first_leaves_nothing():
    server = engine(40)
    text = Watched(server, prompt(9), 12, stop=(alone(prompt(9), 1)[0][0],))
    Referee(server).run()
    text.compare()
    assert (
        text.outputs == [[]] and text.steps["first token"] == text.steps["ended"] == 0 and text.tpot is None
    )


@pytest.mark.parametrize("script", [[0, 1, 2, 3], [13, 2, 3], [0, 15, 3]])  # a b c d, ab c d, a bc d
def test_a_stop_string_is_met_wherever_tokens_cut_it(script):
    request = written([*spell("gh"), *script, *spell("e")], "bc")
    assert request.texts == ["gha"] and request.why == ["stop"]
    assert request.outputs == [[*spell("gh"), *script[: script.index(2 if 2 in script else 15) + 1]]]


@pytest.mark.parametrize(
    ("strings", "text"),
    [
        (("de", "bc"), "a"),  # the first that is met, whichever was named first
        (("abcd", "bc"), "a"),  # and that is the one that is complete first
        (("bc", "abc"), ""),  # or both are: then what stands before both
        (("x", "e"), "abcd"),
        ((), "abcdefgabc"),
        (None, "abcdefgabc"),
        ("c", "ab"),
        (["fg", "ga"], "abcde"),
    ],
)
def test_of_several_strings_the_first_that_is_met(strings, text):
    assert written(spell("abcdefgabc"), strings, new=10).texts == [text]


def test_strings_that_one_token_completes():
    """Also then the first that is complete, read letter by letter."""
    assert written([*spell("ab"), LETTERS.pieces.index(b"cab")], ("bca", "c")).texts == ["ab"]
    stop = Stop((), ("ab", "hh"), VOCAB, LETTERS)
    assert stop.cut(spell("gabhhab")) == "g" and stop.cut(spell("hhhab")) == ""


def test_a_stop_string_at_the_last_token_is_why_it_ends():
    request = written(spell("gabc"), "bc", new=4)
    assert (request.why, request.texts) == (["stop"], ["ga"])
    request = written(spell("gabc"), "cd", new=4)
    assert (request.why, request.texts) == (["length"], ["gabc"])


def test_a_stop_string_in_the_prompt_does_not_count():
    """Nor one of which the prompt has the first half."""
    server = engine(20, tokenizer=LETTERS)
    request = server.submit(spell("bcb"), 4, stop_strings="bc")
    script = iter(spell("cabc"))
    request.samplers[0].pick = lambda _: next(script)
    Referee(server).run()
    assert request.texts == ["ca"] and request.outputs == [spell("cabc")]


def test_what_was_held_back_is_given_when_nothing_can_follow():
    server = engine(20, tokenizer=LETTERS)
    request = scripted(server, spell("gabgab"), stop_strings="abc")
    stream = server.stream_text(request)
    assert [next(stream), next(stream)] == ["g", "abg"]
    for _ in range(2):
        server.step()
    server.cancel(request)
    assert list(stream) == ["ab"] and request.texts == ["gabgab"]


def test_a_stream_ends_with_its_text_while_others_go_on():
    server = engine(20, tokenizer=LETTERS)
    options = {"n": 2, "temperature": 1.0, "stop": spell("k"), "stop_strings": "abc"}
    request = scripted(server, spell("gabk"), **options)
    request.samplers[1].pick = lambda _: 0
    assert list(server.stream_text(request)) == ["g", "ab"]
    assert (request.why, request.status, len(server.trace)) == (["stop", None], "running", 4)


def test_a_stop_token_before_a_stop_string_is_complete():
    server = engine(20, tokenizer=LETTERS)
    request = scripted(server, spell("gabc"), stop=spell("c"), stop_strings="bc")
    assert "".join(server.stream_text(request)) == "gab"
    assert request.texts == ["gab"] and request.why == ["stop"]


pieces = st.lists(st.integers(0, VOCAB - 1) | st.sampled_from([0, 1, 2, 13, 14, 15]), max_size=14)
strings = st.lists(st.text("abcé€ ", min_size=1, max_size=4), max_size=3)


@settings(max_examples=150, deadline=None)
@given(pieces, strings)
def test_what_is_sure_is_never_taken_back(tokens, strings):
    """Token by token: it grows, has no half character at its end, and nothing of a stop string."""
    stop, shown = Stop((), strings, VOCAB, LETTERS), ""
    for n in range(len(tokens) + 1):
        text = LETTERS.decode(tokens[:n])
        end = stopped(text, strings)
        assert stop.ends(tokens[:n]) == (end is not None)
        assert stop.cut(tokens[:n]) == (text if end is None else end)
        if end is not None:
            break
        sure = stop.sure(tokens[:n])
        whole = text.rstrip(HALF)
        assert sure.startswith(shown) and whole.startswith(sure)
        held_back = whole[len(sure) :]
        assert not held_back or any(string.startswith(held_back) for string in strings), "no more than that"
        shown = sure
    assert stop.cut(tokens[:n]).startswith(shown)


def test_pieces_come_as_soon_as_they_are_sure():
    server = engine(20, tokenizer=LETTERS)
    euro = [*LETTERS.pieces].index("€".encode()[:1])
    request = scripted(server, [0, euro, euro + 1, euro + 2, 1, 2, 6, 7], 8, stop_strings="bcd")
    assert list(server.stream_text(request)) == ["a", "€", "bcg", "h"]
    server = engine(20, tokenizer=LETTERS)
    request = scripted(server, [0, euro, euro + 1], 3)
    assert list(server.stream_text(request)) == ["a", HALF], "the end comes before the other half"


def test_characters_are_never_halved_with_a_real_tokenizer():
    model, tokenizer = kvlab.load("tiny-gqa")
    server = kvlab.engine.Engine(model, 20, tokenizer=tokenizer)
    tokens = tokenizer.encode("naïve 日本 🙂! stop")[1:]
    halves = [tokenizer.decode(tokens[:n]).endswith(HALF) for n in range(len(tokens))]
    assert sum(halves) >= 5
    request = scripted(server, tokens, len(tokens), stop_strings=("\n\n", "! stop"))
    shown = list(server.stream_text(request))
    assert "".join(shown) == request.texts[0] == "naïve 日本 🙂" and HALF not in "".join(shown)
    assert len(shown) > 6


def test_a_real_text_and_its_pieces():
    model, tokenizer = kvlab.load("tiny-gqa")
    ids = tokenizer.encode("Once upon a time")
    plain = tokenizer.decode(list(kvlab.generate(model, ids, 40)))
    string = plain[40:46]
    server = kvlab.engine.Engine(model, 20, tokenizer=tokenizer)
    others = [server.submit(tokenizer.encode("The cat"), 30, temperature=1.0, seed=i) for i in range(2)]
    request = server.submit(ids, 40, stop_strings=string)
    shown = list(server.stream_text(request))
    assert "".join(shown) == request.texts[0] == plain[: plain.index(string)] and len(shown) > 5
    server.run()
    assert all(other.texts for other in others)


def test_strings_and_texts_need_a_tokenizer():
    server = engine(20)
    with pytest.raises(
        ValueError, match=r"stop strings \['ab'\] need the tokens' text: make the engine with"
    ):
        server.submit(prompt(5), stop_strings="ab")
    assert server.idle and not server.requests
    request = server.submit(prompt(5), 3)
    with pytest.raises(ValueError, match="without a tokenizer has no texts: make it with tokenizer="):
        server.stream_text(request)
    server.run()
    with pytest.raises(ValueError, match="without a tokenizer has no texts"):
        _ = request.texts
    with pytest.raises(TypeError, match=r"tokenizer is int; it must have decode\(ids\)"):
        engine(20, tokenizer=5)


@pytest.mark.parametrize(
    ("strings", "error", "message"),
    [
        ("", ValueError, "a stop string is empty"),
        (["a", ""], ValueError, "a stop string is empty"),
        (["a", 3], TypeError, r"a stop string is 3; it must be a str \(token ids go to stop=\)"),
        (b"a", TypeError, "a stop string is 97"),
        (7, TypeError, "stop_strings is 7; it must be a str or several"),
    ],
)
def test_what_is_no_stop_string(strings, error, message):
    server = engine(20, tokenizer=LETTERS)
    with pytest.raises(error, match=message):
        server.submit(prompt(5), stop_strings=strings)
    assert server.idle and not server.requests
