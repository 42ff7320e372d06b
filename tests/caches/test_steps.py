"""One step of many sequences, packed: each as it would be alone, room for all or for none, and only once."""

import copy
from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import NoCache, PagedStep, Pages
from kvlab.caches.paged import blocks_needed
from kvlab.paging import BlockPool, BlockTable, OutOfBlocks
from tests.caches.pages import BLOCK, IDS, TOKEN, TOLERANCE, agrees, books, break_off, filled
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model


@pytest.fixture
def model():
    return random_model()


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, windows=(3, None, 6)), ABSORBED, NAIVE])
def test_a_step_of_several_equals_each_alone(config):
    """Prompts, decode steps and a sequence that waits, packed; the second and third share two blocks."""
    model, pages = random_model(config), Pages(config, 20, 4)
    second = filled(model, 7, pages=pages)
    caches = [
        filled(model, 0, pages=pages),
        second,
        second.fork(),
        *(filled(model, n, pages=pages) for n in (9, 4)),
    ]
    held, lens = [0, 7, 7, 9, 4], [5, 1, 3, 0, 1]
    waits = books(pages, *(cache.table for cache in caches))[1][3]
    new = random_ids(10, seed=1).split(lens)
    view = PagedStep(pages, [cache.table for cache in caches], lens)
    assert view.positions(10).tolist() == [0, 1, 2, 3, 4, 7, 7, 8, 9, 4]
    got = model(torch.cat(new), view).split(lens)
    for cache, before, ids, logits in zip(caches, held, new, got, strict=True):
        everything = torch.cat([IDS[:before], ids])
        expected = model(everything, NoCache(config))[before:]
        assert (logits - expected).abs().max().item() < TOLERANCE if len(ids) else logits.shape[0] == 0
        assert cache.length == len(everything)
    assert books(pages, *(cache.table for cache in caches))[1][3] == waits
    for cache, before, ids in zip(caches, held, new, strict=True):
        agrees(model, cache, torch.cat([IDS[:before], ids]), IDS[:2])


def test_the_bill_of_a_step_of_several_is_the_sum(model):
    pages = Pages(SMALL, 20, 4)
    caches = [filled(model, n, pages=pages) for n in (9, 4, 5)]
    with kvlab.Ledger() as bill:
        model(IDS[:4], PagedStep(pages, [cache.table for cache in caches], [1, 2, 1]))
    assert (bill.kv_read, bill.kv_written) == ((10 + 6 + 6) * TOKEN, 4 * TOKEN)
    assert bill.kv_held == pages.nbytes == (3 + 2 + 2) * BLOCK


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_the_last_owner_that_writes_needs_no_copy(model, writers):
    cache = filled(model, 6, num_blocks=4)
    tables = [cache.table, cache.table.fork(), cache.table.fork()]
    steps = [(table, 1) for table in tables[:writers]] + [(table, 0) for table in tables[writers:]]
    assert blocks_needed(cache.pages.pool, steps) == min(writers, 2)
    PagedStep(cache.pages, tables, [n for _, n in steps])
    assert cache.pages.pool.num_free == 2 - min(writers, 2)
    cache.pages.pool.check(tables)


def test_a_wanted_block_is_left_to_the_prefix_cache_by_every_writer(model):
    cache = filled(model, 6, num_blocks=4)
    tables = [cache.table, cache.table.fork()]
    cache.pages.pool.keep(1)
    assert blocks_needed(cache.pages.pool, [(table, 1) for table in tables]) == 2
    PagedStep(cache.pages, tables, [1, 1])
    assert (cache.pages.pool.num_free, cache.pages.pool.num_kept) == (0, 1)


def test_a_step_has_room_for_all_or_for_none(model):
    pages = Pages(SMALL, 5, 4)
    caches = [filled(model, 6, pages=pages), filled(model, 7, pages=pages)]
    tables = [cache.table for cache in caches]
    before = books(pages, *tables)
    with pytest.raises(OutOfBlocks, match=r"2 blocks are needed and 1 of 5 are free \(4 held\)"):
        PagedStep(pages, tables, [3, 2])
    assert books(pages, *tables) == before
    PagedStep(pages, tables, [2, 2])


def test_a_cache_notices_that_a_step_of_several_advanced_it(model):
    """It had made room itself before, in a step that failed; that room now holds another step's tokens."""
    cache = filled(model, 6)
    break_off(model, cache, IDS[:1])
    model(IDS[6:7], PagedStep(cache.pages, [cache.table], [1]))
    assert cache.length == 7
    agrees(model, cache, IDS[:7], IDS[7:8])


def elsewhere(model, cache):
    """As many tokens as before, in other blocks: somebody came in between."""
    length, blocks = cache.length, list(cache.table.blocks)
    cache.truncate(2)
    between = filled(model, 1, pages=cache.pages)
    model(IDS[: length - 2], cache)
    between.release()
    assert cache.length == length and cache.table.blocks != blocks


CHANGES = {
    "run": lambda model, cache, other, view: model(IDS[:2], view),
    "truncated": lambda model, cache, other, view: cache.truncate(5),
    "grown": lambda model, cache, other, view: model(IDS[:1], cache),
    "in other blocks": lambda model, cache, other, view: elsewhere(model, cache),
    "released": lambda model, cache, other, view: other.release(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_is_for_one_run_of_the_tables_as_they_were(model, change):
    pages = Pages(SMALL, 9, 4)
    cache, other = filled(model, 6, pages=pages), filled(model, 3, pages=pages)
    tables = [cache.table, other.table]
    view = PagedStep(pages, tables, [1, 1])
    CHANGES[change](model, cache, other, view)
    before, stored = books(pages, *tables), copy.deepcopy(pages.layers)
    k = torch.ones(2, SMALL.num_kv_heads, SMALL.head_dim, dtype=torch.float64)
    for run in (lambda: model(IDS[:2], view), lambda: view.attend(0, k.repeat(1, 3, 1), k, k)):
        with pytest.raises(RuntimeError, match="its tables have changed since this step was made"):
            run()
    assert books(pages, *tables) == before
    for now, was in zip(pages.layers[0], stored[0], strict=True):
        assert torch.equal(now.nan_to_num(), was.nan_to_num())  # NaN may lie in free slots


def test_a_step_takes_the_tokens_that_it_was_made_for(model):
    cache = filled(model, 6)
    view = PagedStep(cache.pages, [cache.table], [2])
    with pytest.raises(ValueError, match=r"3 tokens came; this step was made for \[2\]"):
        model(IDS[:3], view)
    k = torch.ones(1, SMALL.num_kv_heads, SMALL.head_dim, dtype=torch.float64)
    with pytest.raises(ValueError, match="1 tokens came"):
        view.attend(0, k.repeat(1, 3, 1), k, k)
    assert cache.length == 6
    agrees(model, cache, IDS[:6], IDS[:3])


def test_a_step_survives_a_fork_of_its_table(model):
    cache = filled(model, 6)
    view = PagedStep(cache.pages, [cache.table], [1])
    fork = cache.fork()
    model(IDS[6:7], view)
    agrees(model, fork, IDS[:6], IDS[:3])
    agrees(model, cache, IDS[:7], IDS[7:9])


def test_steps_that_cannot_be(model):
    cache = filled(model, 6)
    pages, table = cache.pages, cache.table
    stranger, gone = BlockTable(BlockPool(9, 4)), BlockTable(pages.pool)
    gone.release()
    before = books(pages, table)
    for tables, lens, error, says in (
        ([table], [1, 1], ValueError, "1 tables and 2 query_lens"),
        ([table, table], [1, 1], ValueError, "a table comes twice"),
        ([table, stranger], [1, 1], ValueError, "of another pool"),
        ([table], [0], ValueError, "no new tokens"),
        ([], [], ValueError, "no new tokens"),
        ([table], [-1], ValueError, "-1 tokens cannot be stored"),
        ([table], [1.0], TypeError, None),
        ([table], ["1"], TypeError, None),
        ([table, gone], [1, 1], RuntimeError, "was released"),
        ([table], [10**9], OutOfBlocks, "blocks are needed"),
    ):
        with pytest.raises(error, match=says):
            PagedStep(pages, tables, lens)
        assert books(pages, table) == before
    view = PagedStep(pages, [table], torch.tensor([1]))
    with pytest.raises(NotImplementedError, match="truncate their tables"):
        view.truncate(3)
    with pytest.raises(NotImplementedError):
        view.fork()
