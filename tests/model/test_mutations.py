"""Take a part out of the model, in process: the comparison with transformers and with no cache must notice.

The checks below are what the other tests rest on; each mutation here proves that they can fail.
"""

import math
from dataclasses import replace

import pytest
import torch

from kvlab.caches import GrowingCache, NoCache, base, none
from kvlab.model import attention as attention_module
from kvlab.model import config as config_module
from kvlab.model import decoder
from tests.models import SMALL, random_ids, random_model

IDS = random_ids(12)


def earlier_logits_depend_on_later_tokens(model):
    """Causality: change the last token and compare the logits before it."""
    changed = IDS.clone()
    changed[-1] = (changed[-1] + 1) % SMALL.vocab_size
    return (model(IDS, NoCache(SMALL)) - model(changed, NoCache(SMALL)))[:-1].abs().max() > 1e-9


def order_matters(model):
    """Position: exchange two early tokens and compare the last logits."""
    swapped, cache = IDS.clone(), NoCache(model.config)
    swapped[[2, 7]] = IDS[[7, 2]]
    return (model(IDS, cache) - model(swapped, cache))[-1].abs().max() > 1e-9


def chunks_differ_from_the_whole(model):
    cache = GrowingCache(SMALL)
    chunked = torch.cat([model(chunk, cache) for chunk in IDS.split([5, 4, 3])])
    return (chunked - model(IDS, NoCache(SMALL))).abs().max() > 1e-9


def scale_is_wrong():
    """Attention with one query and two keys, against the textbook formula."""
    q, k, v = torch.ones(1, 1, 4), torch.tensor([[[0.0] * 4], [[1.0] * 4]]), torch.tensor([[[0.0]], [[1.0]]])
    config = replace(SMALL, head_dim=4, num_heads=1, num_kv_heads=1)
    spec = config.layer_kv(0)
    positions = torch.arange(2)
    got = attention_module.attention(q, k, v, positions[1:], positions, spec.scale).item()
    return abs(got - 1 / (1 + math.exp(-4 / math.sqrt(4)))) > 1e-6


def test_the_sound_model_passes_every_check():
    model = random_model()
    assert not earlier_logits_depend_on_later_tokens(model)
    assert order_matters(model)
    assert not chunks_differ_from_the_whole(model)
    assert not scale_is_wrong()


def test_without_the_mask(monkeypatch):
    def all_visible(query_positions, key_positions, window=None):
        return torch.ones(len(query_positions), len(key_positions), dtype=torch.bool)

    monkeypatch.setattr(attention_module, "visible", all_visible)
    model = random_model()
    assert earlier_logits_depend_on_later_tokens(model)
    assert chunks_differ_from_the_whole(model)


def test_with_a_square_mask_built_from_the_chunk_alone(monkeypatch):
    """The field's most repeated bug: as if the chunk's first token were the first of the text."""
    sound = attention_module.visible

    def chunk_alone(query_positions, key_positions, window=None):
        return sound(query_positions - query_positions[0], key_positions, window)

    monkeypatch.setattr(attention_module, "visible", chunk_alone)
    model = random_model()
    assert not earlier_logits_depend_on_later_tokens(model)  # without a prefix it looks right
    assert chunks_differ_from_the_whole(model)


def test_without_rope(monkeypatch):
    monkeypatch.setattr(decoder, "rotate", lambda x, cos, sin: x)
    model = random_model(replace(SMALL, num_layers=1))
    assert not order_matters(model)  # one layer of attention without positions is a bag of words


def test_with_positions_that_start_over_at_each_chunk(monkeypatch):
    monkeypatch.setattr(base.Cache, "positions", lambda self, n: torch.arange(n))
    assert chunks_differ_from_the_whole(random_model())


@pytest.mark.parametrize("wrong", [lambda dim: 1.0, lambda dim: 1 / dim, lambda dim: 1 / math.sqrt(2 * dim)])
def test_without_the_right_scale(monkeypatch, wrong):
    sound = config_module.Config.layer_kv
    monkeypatch.setattr(
        config_module.Config,
        "layer_kv",
        lambda self, layer: replace(sound(self, layer), scale=wrong(self.head_dim)),
    )
    assert scale_is_wrong()


def test_a_window_off_by_one(monkeypatch):
    """Trimming the keys to the window before a chunk attends loses keys of the chunk's first query."""
    config = replace(SMALL, windows=(4, 4, 4))
    sound = base.attention

    def trimmed(q, k, v, query_positions, key_positions, scale, window, value_dim):
        return sound(q, k[-window:], v[-window:], query_positions, key_positions[-window:], scale, window)

    def differs():
        model, cache = random_model(config), GrowingCache(config)
        chunked = torch.cat([model(chunk, cache) for chunk in IDS.split([5, 4, 3])])
        return not (chunked - model(IDS, NoCache(config))).abs().max() < 1e-9  # NaN is a difference too

    assert not differs()
    monkeypatch.setattr(base, "attention", trimmed)
    assert differs()
    assert none.attention is sound
