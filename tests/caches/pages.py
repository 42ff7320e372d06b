"""What the tests of pages have in common."""

import pytest
import torch

from kvlab.caches import NoCache, PagedCache
from tests.models import SMALL, random_ids

TOKEN = 2 * SMALL.num_layers * SMALL.num_kv_heads * SMALL.head_dim * 8  # K and V, float64
BLOCK = 4 * TOKEN
IDS = random_ids(20)
TOLERANCE = 1e-10


def filled(model, n, ids=IDS, **more):
    cache = PagedCache(model.config, **(more if "pages" in more else {"block_size": 4} | more))
    if n:
        model(ids[:n], cache)
    return cache


def agrees(model, cache, before, new):
    """The model goes on in the cache by new tokens as it would after reading everything anew."""
    expected = model(torch.cat([before, new]), NoCache(model.config))[-len(new) :]
    assert (model(new, cache) - expected).abs().max() < TOLERANCE


def books(pages, *tables):
    pages.pool.check(tables)
    return pages.pool.num_free, [(table.length, list(table.blocks)) for table in tables]


class Broken(RuntimeError):
    pass


def break_off(model, cache, ids):
    """A step that ends in layer 1, after layer 0 has stored its keys."""

    def stop(module, arguments):
        raise Broken

    hook = model.layers[1].self_attn.register_forward_pre_hook(stop)
    with pytest.raises(Broken):
        model(ids, cache)
    hook.remove()
