"""What cannot be served is refused at once, with what was wrong and what to do; nothing has changed then."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from kvlab.engine import Engine
from kvlab.paging import RadixTree
from tests.engine.cases import LETTERS, MODEL, PLAIN, VOCAB, Watched, engine, lively, prompt
from tests.engine.referee import Referee


def state(server):
    """All that a refusal must leave as it was."""
    pool, scheduler = server.pool, server.scheduler
    return deepcopy(
        (
            [id(request) for request in server.requests],
            [vars(request) | dict.fromkeys(("samplers", "sequences", "stop")) for request in server.requests],
            [(id(each), each.tokens, each.stored, each.ended) for each in scheduler.running],
            [(id(each), each.tokens) for each in scheduler.waiting],
            [each.table.blocks for each in scheduler.running],
            (pool.num_free, pool.num_held, pool.most_held),
            server.trace.text(),
            vars(server._record),
        )
    )


@pytest.fixture(scope="module")
def busy():
    """Some run, some wait, one has ended, one was cancelled."""
    server = engine(12, max_batch_tokens=6, tokenizer=LETTERS)
    texts = [Watched(server, prompt(n, n), new) for n, new in ((3, 2), (9, 9), (9, 5), (9, 8), (20, 9))]
    referee = Referee(server)
    for _ in range(4):
        referee.step()
    texts[3].cancel()
    return server, referee, texts


REFUSED = [
    (
        [prompt(48), 2],
        {},
        "48 and 2 new tokens need 49 slots, but the pool has 48: shorten the prompt, ask for",
    ),
    ([prompt(5), 45], {}, "49 slots, but the pool has 48"),
    ([prompt(5), 0], {}, "max_new_tokens is 0; it must be an integer of 1 or more"),
    ([prompt(5), -3], {}, "max_new_tokens is -3"),
    ([prompt(5), True], {}, "max_new_tokens is True"),
    ([prompt(5), 3.0], {}, "max_new_tokens is 3.0; it must be an integer"),
    ([prompt(5), None], {}, "max_new_tokens is None"),
    ([[]], {}, "the prompt is empty"),
    (["abc"], {}, "prompt_ids is text; encode it first"),
    ([None], {}, "prompt_ids is None; a prompt is a flat list of int"),
    ([[1, VOCAB]], {}, f"token id {VOCAB} at position 1 is outside the vocabulary: 0 to {VOCAB - 1}"),
    ([[1, -1]], {}, "token id -1 at position 1"),
    ([[1, 2.0]], {}, r"prompt_ids\[1\] is 2.0"),
    ([torch.tensor([[1, 2]])], {}, r"prompt_ids\[0\] is \[1, 2\]"),
    ([torch.tensor(3)], {}, "a prompt is a flat list of int"),
    ([prompt(5)], {"n": 0}, "n is 0; it must be an integer of 1 or more"),
    ([prompt(5)], {"n": True}, "n is True"),
    ([prompt(5)], {"n": 2.0}, "n is 2.0"),
    ([prompt(5)], {"n": 7}, "n is 7 texts, but a step has room for 6 tokens: ask for fewer, or raise max_b"),
    ([prompt(5)], {"n": 10**12}, "n is 1000000000000 texts"),
    ([prompt(5)], {"temperature": -1}, "temperature is -1"),
    ([prompt(5)], {"temperature": "1"}, "temperature is '1'"),
    ([prompt(5)], {"top_k": 0, "temperature": 1}, "top_k is 0"),
    ([prompt(5)], {"top_p": 0.0, "temperature": 1}, "top_p is 0.0"),
    ([prompt(5)], {"top_k": 2}, "give a temperature"),
    ([prompt(5)], {"seed": -1}, "seed is -1"),
    ([prompt(5)], {"seed": 1.5, "n": 2}, "seed is 1.5"),
    ([prompt(5)], {"stop": VOCAB}, f"stop id {VOCAB} is outside the vocabulary: 0 to {VOCAB - 1}"),
    ([prompt(5)], {"stop": [3, -1]}, "a stop id is -1"),
    ([prompt(5)], {"stop": "a"}, "stop is 'a'; it takes token ids"),
    ([prompt(5)], {"stop": [True]}, "a stop id is True"),
    ([prompt(5)], {"stop_strings": ["a", ""]}, "a stop string is empty"),
    ([prompt(5)], {"stop_strings": [1]}, "a stop string is 1"),
    ([prompt(5)], {"salt": 3}, "salt is 3; it must be a string, or None"),
    ([prompt(5)], {"salt": b"a"}, "salt is b'a'"),
]


@pytest.mark.parametrize(("arguments", "options", "message"), REFUSED, ids=[case[2][:30] for case in REFUSED])
def test_refused_at_submit(busy, arguments, options, message):
    server, _, _ = busy
    before = state(server)
    with pytest.raises((ValueError, TypeError), match=message):
        server.submit(*([arguments[0], 3] if len(arguments) == 1 else arguments), **options)
    assert state(server) == before


def test_longer_than_the_model():
    server = Engine(lively(replace(PLAIN, max_positions=20)), 20, 4)
    before = state(server)
    with pytest.raises(
        ValueError, match="15 and 7 new tokens need 21 positions, but the model has 20: shorten"
    ):
        server.submit(prompt(15), 7)
    assert state(server) == before
    longest = server.submit(prompt(15), 6)
    server.run()
    assert len(longest.outputs[0]) == 6


def test_refused_to_be_cancelled(busy):
    server, _, texts = busy
    other = engine(9).submit(prompt(5))
    for request, message in {
        texts[0].request: "request 0 has ended already: it is finished",
        texts[3].request: "request 3 has ended already: it is cancelled",
        other: "request 0 is not of this engine: give what its submit returned",
        3: "3 is not of this engine",
        None: "None is not of this engine",
    }.items():
        before = state(server)
        with pytest.raises(ValueError, match=message):
            server.cancel(request)
        assert state(server) == before


def test_after_all_refusals_everything_is_served(busy):
    _, referee, texts = busy
    referee.run()
    for each in texts:
        each.compare()


SIZES = "num_blocks", "block_size", "max_batch_tokens", "spare_blocks", "overtaking"


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_an_engine(name):
    least = 0 if name in SIZES[-2:] else 1
    for value, error in {least - 1: ValueError, True: ValueError, 2.0: TypeError, None: TypeError}.items():
        with pytest.raises(error, match=f"{name} is {value}; it must be an integer"):
            Engine(MODEL, **({"num_blocks": 9} | {name: value}))
    assert Engine(MODEL, **({"num_blocks": 9} | {name: least})).idle


@pytest.mark.parametrize("kind", ["lru", "", True, RadixTree, ["radix"]])
def test_what_is_no_prefix_cache(kind):
    with pytest.raises(ValueError, match="prefix_cache is .*; it is 'radix', 'hash' or None"):
        Engine(MODEL, 9, prefix_cache=kind)


def test_overtaking_needs_a_prefix_cache():
    with pytest.raises(ValueError, match="overtaking is 2, and there is no prefix cache to go by: give one"):
        Engine(MODEL, 9, overtaking=2)


def test_what_is_no_model():
    with pytest.raises(TypeError, match="model is tuple; kvlab.load gives two things: model, tokenizer"):
        Engine((MODEL, LETTERS), 9)
