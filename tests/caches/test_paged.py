"""Pages: their bytes and their bill, many sequences in one memory, and what may not happen to a neighbour."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import kvlab
from kvlab.caches import CacheOverflow, GrowingCache, NoCache, PagedCache, PagedStep, Pages
from kvlab.model.decoder import Decoder
from tests.caches.pages import BLOCK, IDS, TOKEN, agrees, books, break_off, filled
from tests.models import ABSORBED, NAIVE, SMALL, random_model


@pytest.fixture
def model():
    return random_model()


def test_bytes_are_whole_blocks(model):
    cache = filled(model, 0)
    assert (cache.nbytes, cache.pages.nbytes, cache.pages.block_bytes) == (0, 0, 0)
    for n, blocks in ((1, 1), (3, 1), (1, 2), (8, 4)):
        model(IDS[:n], cache)
        assert cache.nbytes == cache.pages.nbytes == blocks * BLOCK
    cache.truncate(5)
    assert cache.nbytes == cache.pages.nbytes == 2 * BLOCK
    cache.truncate(0)
    assert cache.nbytes == cache.pages.nbytes == 0


def test_a_shared_block_is_in_the_pages_once(model):
    cache = filled(model, 6)
    forks = [cache.fork(), cache.fork()]
    assert [each.nbytes for each in (cache, *forks)] == [2 * BLOCK] * 3
    assert cache.pages.nbytes == 2 * BLOCK
    model(IDS[:1], forks[0])
    assert cache.pages.nbytes == 3 * BLOCK
    cache.pages.pool.keep(cache.table.blocks[0])
    for each in (cache, *forks):
        each.release()
    assert cache.pages.nbytes == BLOCK


def test_default_sizes():
    cache = PagedCache(SMALL)
    pool = cache.pages.pool
    assert (pool.block_size, pool.num_blocks, cache.capacity) == (16, 2 * 19, 300)
    assert PagedCache(SMALL, block_size=7).pages.pool.num_blocks == 2 * 43
    assert PagedCache(SMALL, block_size=7, num_blocks=5).capacity == 35


@pytest.mark.parametrize(
    ("sizes", "error", "says"),
    [
        ({"block_size": 0}, ValueError, "block_size is 0; a pool has at least one block of"),
        ({"block_size": -4}, ValueError, "block_size is -4"),
        ({"num_blocks": 0}, ValueError, "num_blocks is 0"),
        ({"block_size": 2.5}, TypeError, None),
        ({"num_blocks": "9"}, TypeError, None),
        ({"pages": Pages(ABSORBED, 3)}, ValueError, "made for a model of another shape"),
    ],
)
def test_sizes_that_cannot_be(sizes, error, says):
    with pytest.raises(error, match=says):
        PagedCache(SMALL, **sizes)


def test_the_bill_of_a_decode_step(model):
    """What is read is what a growing cache reads; a block is held whole; blocks in a row are not copied."""
    paged, growing = filled(model, 9), GrowingCache(SMALL)
    model(IDS[:9], growing)
    with kvlab.Ledger() as plain:
        model(IDS[9:10], growing)
    with kvlab.Ledger() as bill:
        model(IDS[9:10], paged)
    assert (bill.kv_read, bill.kv_written, bill.flops) == (plain.kv_read, plain.kv_written, plain.flops)
    assert (bill.kv_read, bill.kv_written, bill.kv_held, bill.copied) == (10 * TOKEN, TOKEN, 3 * BLOCK, 0)


def test_scattered_blocks_are_gathered_and_that_is_on_the_bill(model):
    pages = Pages(SMALL, 8, 4)
    first, second = filled(model, 4, pages=pages), filled(model, 4, pages=pages)
    model(IDS[4:5], first)
    assert first.table.blocks == [0, 2]
    with kvlab.Ledger() as bill:
        model(IDS[5:6], first)
    assert bill.kv_read == bill.copied == 6 * TOKEN
    agrees(model, first, IDS[:6], IDS[6:9])
    agrees(model, second, IDS[:4], IDS[:3])


@pytest.mark.parametrize(
    ("config", "one_token"), [(SMALL, TOKEN), (ABSORBED, 3 * 16 * 8), (NAIVE, 3 * 6 * 21 * 8)]
)
def test_a_fork_is_free_and_the_first_write_copies_one_block(config, one_token):
    model = random_model(config)
    cache = filled(model, 6, num_blocks=9)
    with kvlab.Ledger() as forking:
        fork = cache.fork()
    assert (forking.copied, forking.kv_held) == (0, 8 * one_token)
    with kvlab.Ledger() as writing:
        view = PagedStep(cache.pages, [fork.table], [1])
    assert writing.copied == 4 * one_token
    model(IDS[6:7], view)
    with kvlab.Ledger() as again:
        PagedStep(cache.pages, [fork.table], [1])
        PagedStep(cache.pages, [cache.table], [2])
    assert again.copied == 0
    agrees(model, cache, IDS[:6], IDS[:3])
    agrees(model, fork, IDS[:7], IDS[7:9])


def test_the_first_write_after_a_fork_at_a_blocks_end_copies_nothing(model):
    cache = filled(model, 8)
    fork = cache.fork()
    with kvlab.Ledger() as bill:
        PagedStep(cache.pages, [fork.table], [3])
    assert bill.copied == 0


def test_truncating_costs_nothing_until_it_is_written_into_a_shared_block(model):
    cache = filled(model, 8)
    fork = cache.fork()
    with kvlab.Ledger() as bill:
        fork.truncate(6)
        cache.truncate(8)
    assert (bill.copied, cache.pages.nbytes) == (0, 2 * BLOCK)
    with kvlab.Ledger() as bill:
        PagedStep(cache.pages, [fork.table], [1])
    assert bill.copied == BLOCK
    agrees(model, fork, IDS[:6], IDS[:5])
    agrees(model, cache, IDS[:8], IDS[:5])


def test_a_bill_by_blocks_of_one_is_torchs_own_count(model):
    """With no padding, the products on the bill are those that torch counts."""
    counter = FlopCounterMode(display=False)
    cache = filled(model, 5, block_size=1)
    with kvlab.Ledger() as bill, counter:
        model(IDS[5:8], cache)
    assert bill.flops == counter.get_total_flops()


def test_a_pool_too_small_says_so_and_stores_nothing(model):
    cache = filled(model, 8, num_blocks=3)
    stored = copy.deepcopy(cache.pages.layers)
    with pytest.raises(CacheOverflow, match="8 tokens stored and 5 new ones make 13, but .* room for 12"):
        model(IDS[8:13], cache)
    other = filled(model, 0, pages=cache.pages)
    before = books(cache.pages, cache.table, other.table)
    with pytest.raises(CacheOverflow, match=r"2 blocks are needed and 1 of 3 are free \(2 held\): release"):
        model(IDS[:5], other)
    assert books(cache.pages, cache.table, other.table) == before
    for layer, was in zip(cache.pages.layers, stored, strict=True):
        assert all(
            torch.equal(x[cache.table.blocks], y[cache.table.blocks]) for x, y in zip(layer, was, strict=True)
        )
    agrees(model, cache, IDS[:8], IDS[8:12])


def test_generation_says_before_it_starts_that_the_pool_is_too_small(model):
    with pytest.raises(ValueError, match="the cache has room for 12"):
        kvlab.generate(model, IDS[:8].tolist(), 6, cache=PagedCache(SMALL, block_size=4, num_blocks=3))
    cache = PagedCache(SMALL, block_size=4, num_blocks=3)
    assert list(kvlab.generate(model, IDS[:8].tolist(), 5, cache=cache)) == list(
        kvlab.generate(model, IDS[:8].tolist(), 5)
    )


@pytest.mark.parametrize("first", ["the cache", "its fork"])
@pytest.mark.parametrize("n", [1, 3, 5])
def test_a_step_that_failed_half_way_is_repeated_or_abandoned(model, first, n):
    """Whatever it reserved and wrote, the cache and a fork made afterwards go on as if it had never been."""
    cache = filled(model, 6)
    break_off(model, cache, IDS[-n:])
    assert cache.length == 6
    fork = cache.fork()
    assert fork.nbytes == 2 * BLOCK
    for each in (cache, fork) if first == "the cache" else (fork, cache):
        agrees(model, each, IDS[:6], IDS[6:9])
    cache.pages.pool.check([cache.table, fork.table])


def test_a_step_that_failed_is_abandoned_by_truncating_or_releasing(model):
    cache = filled(model, 6)
    break_off(model, cache, IDS[6:12])
    assert cache.nbytes == 3 * BLOCK
    cache.truncate(6)
    assert cache.nbytes == 2 * BLOCK
    break_off(model, cache, IDS[6:12])
    cache.release()
    assert cache.pages.nbytes == 0


@pytest.mark.parametrize("operation", ["run", "truncate", "fork", "release"])
def test_a_released_cache_does_nothing(model, operation):
    cache = filled(model, 6)
    cache.release()
    assert (cache.length, cache.nbytes) == (0, 0)
    run = {"run": lambda: model(IDS[:1], cache), "truncate": lambda: cache.truncate(0)}
    with pytest.raises(RuntimeError, match="this table was released"):
        run.get(operation, getattr(cache, operation, None))()
    cache.pages.pool.check([])


def test_a_cache_of_another_dtype_does_not_touch_its_neighbours(model):
    cache = filled(model, 6)
    other = filled(model, 0, pages=cache.pages)
    before = books(cache.pages, cache.table, other.table)
    with pytest.raises(TypeError, match="these pages hold torch.float64 and the new keys are torch.float32"):
        random_model(dtype=torch.float32)(IDS[:3], other)
    assert books(cache.pages, cache.table, other.table) == before
    agrees(model, cache, IDS[:6], IDS[:3])
    cache.pages.pool.keep(0)
    cache.release()
    with pytest.raises(TypeError, match="these pages hold torch.float64"):
        random_model(dtype=torch.float32)(IDS[:3], PagedStep(other.pages, [other.table], [3]))
    cache.pages.pool.drop(0)
    random_model(dtype=torch.float32)(IDS[:3], other)
    assert other.pages.nbytes == BLOCK // 2


def test_a_change_of_dtype_that_fails_half_way_can_be_repeated_or_taken_back(model):
    single, cache = random_model(dtype=torch.float32), filled(model, 3)
    cache.truncate(0)
    break_off(single, cache, IDS[:3])
    agrees(model, cache, IDS[:0], IDS[:3])
    cache.truncate(0)
    break_off(single, cache, IDS[:3])
    single(IDS[:3], cache)
    assert {x.dtype for layer in cache.pages.layers for x in layer} == {torch.float32}


def test_bfloat16_is_kept_as_it_is_and_follows_the_growing_cache():
    model = random_model(dtype=torch.bfloat16)
    paged, growing = filled(model, 7), GrowingCache(SMALL)
    expected = model(IDS[:7], growing)
    assert paged.nbytes == 2 * BLOCK // 4
    got = model(IDS[7:9], paged)
    expected = model(IDS[7:9], growing)
    assert got.dtype == torch.bfloat16
    assert (got - expected).abs().max() < 0.05 * expected.abs().max()


def test_windows_read_what_is_seen(model):
    config = replace(SMALL, windows=(4, None, 4))
    model, cache = random_model(config), PagedCache(config, block_size=4)
    model(IDS[:10], cache)
    with kvlab.Ledger() as bill:
        model(IDS[10:12], cache)
    assert bill.kv_read == (5 + 12 + 5) * TOKEN // 3
    agrees(model, cache, IDS[:12], IDS[12:])


def test_latents_are_kept_once():
    cache = filled(random_model(ABSORBED), 5)
    assert [len(layer) for layer in cache.pages.layers] == [1, 1, 1]
    assert cache.nbytes == 2 * 4 * 3 * (12 + 4) * 8


def test_free_slots_may_hold_anything(model):
    """What an earlier owner left, even NaN, is never seen by the next."""
    cache = filled(model, 6)
    for layer in cache.pages.layers:
        for pages in layer:
            pages.flatten(0, 1)[6:] = torch.nan
    agrees(model, cache, IDS[:6], IDS[6:8])
    agrees(model, cache.fork(), IDS[:8], IDS[8:11])


def test_numbers_are_kept_and_not_how_they_came_about():
    """A model that could be trained fills pages without growing a graph in them."""
    model = Decoder(SMALL)
    pages = Pages(SMALL, 8, 4)
    first, _ = filled(model, 4, pages=pages), filled(model, 4, pages=pages)
    got = model(IDS[4:6], first)
    assert not any(x.requires_grad for layer in pages.layers for x in layer)
    assert (got - model(IDS[:6], NoCache(SMALL))[4:]).abs().max() < 1e-5


@pytest.mark.parametrize("again", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copied_cache_has_pages_of_its_own(model, again):
    cache = filled(model, 6)
    other = again(cache)
    agrees(model, other, IDS[:6], IDS[:7])
    assert (cache.pages.pool.num_held, other.pages.pool.num_held) == (2, 4)
    agrees(model, cache, IDS[:6], IDS[6:8])


@pytest.mark.parametrize("sizes", [{"block_size": 4}, {"num_blocks": 8}])
def test_pages_have_their_sizes_already(sizes):
    with pytest.raises(ValueError, match="pages have their sizes already"):
        PagedCache(SMALL, pages=Pages(SMALL, 8, 4), **sizes)
