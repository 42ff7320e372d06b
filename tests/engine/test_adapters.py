"""Adapters in one batch, and in one prefix cache: each text is what its adapter writes alone."""

from dataclasses import replace
from random import Random

import pytest
import torch

import kvlab
from kvlab.engine import Engine
from kvlab.model.lora import Adapter, adapted
from tests.engine.cases import MODEL, PLAIN, engine, prompt


def adapter(seed, config=PLAIN):
    """One with large changes."""
    made = Adapter(config, rank=2).to(torch.float64)
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return made


ADAPTERS = [None, adapter(1), adapter(2)]


def alone(ids, new, which):
    with adapted(MODEL, which):
        return list(kvlab.generate(MODEL, ids, new))


def test_three_adapters_write_three_texts():
    assert len({tuple(alone(prompt(13), 8, which)) for which in ADAPTERS}) == 3


@pytest.mark.parametrize("kind", [None, "radix", "hash"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_may_mix_them_and_none_is_served_what_another_made(kind, seed):
    choose, asked = Random(seed), []
    server = engine(30, max_batch_tokens=choose.choice([5, 16, 64]), prefix_cache=kind)
    for _ in range(30):
        which, ids = choose.choice(ADAPTERS), prompt(13)[: choose.randint(1, 13)] + prompt(2, 5)
        asked.append((server.submit(ids, choose.randint(1, 6), adapter=which), which))
        for _ in range(choose.randint(0, 4)):
            server.step()
        server.check()
    server.run()
    for request, which in asked:
        assert request.outputs[0] == alone(request.prompt, request.max_new_tokens, which)
    assert (server.metrics().found > 0) == (kind is not None)


@pytest.mark.parametrize("kind", ["radix", "hash"])
def test_each_finds_its_own(kind):
    server, found = engine(60, prefix_cache=kind), []
    for which in (*ADAPTERS, *ADAPTERS, adapter(1)):  # the last one is equal, and another
        request = server.submit(prompt(13), 4, adapter=which)
        server.run()
        found.append(request.cached_tokens)
    assert found == [0, 0, 0, 12, 12, 12, 0]


def test_what_would_be_served_without_the_namespace(monkeypatch):
    """The same requests: without it the second adapter goes on from the first one's keys and values."""
    monkeypatch.setattr("kvlab.engine.request.Request.namespace", None)
    server = engine(60, prefix_cache="radix")
    server.submit(prompt(13), 8, adapter=ADAPTERS[1])
    server.run()
    wrong = server.submit(prompt(13), 8, adapter=ADAPTERS[2])
    server.run()
    assert wrong.cached_tokens == 12 and wrong.outputs[0] != alone(prompt(13), 8, ADAPTERS[2])


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        (adapter(1, replace(PLAIN, num_layers=3)), ValueError, "adapter was made for a model of another"),
        (Adapter(PLAIN), TypeError, "adapter is torch.float32 and the model torch.float64"),
        ("pirate", TypeError, "adapter is str"),
    ],
)
def test_one_that_does_not_fit_is_refused_when_it_is_asked_for(which, error, message):
    server = Engine(MODEL, 9)
    with pytest.raises(error, match=message):
        server.submit(prompt(5), adapter=which)
    assert server.idle and not server.requests


def test_a_model_that_is_adapted_outside_is_refused():
    """Else its keys would be stored as those of the model alone."""
    server = engine(60, prefix_cache="radix")
    request = server.submit(prompt(13), 4)
    with adapted(MODEL, ADAPTERS[1]), pytest.raises(ValueError, match="give the adapter to submit"):
        server.step()
    server.run()
    assert request.outputs[0] == alone(prompt(13), 4, None)
