"""The bill is exact: cases computed by hand, and the products against torch's own counter."""

import gc
import threading
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import kvlab
from kvlab.caches import GrowingCache, NoCache, StaticCache
from kvlab.model.attention import attention
from tests.models import SMALL, random_ids, random_model

TOKEN = SMALL.num_layers * SMALL.num_kv_heads * 2 * SMALL.head_dim * 8  # bytes of K and V, float64


def test_attention_by_hand():
    """3 queries in 4 heads, 5 keys in 2 heads, keys 6 wide and values 7 wide, in float32."""
    q, k, v = torch.randn(3, 4, 6), torch.randn(5, 2, 6), torch.randn(5, 2, 7)
    with kvlab.Ledger() as bill:
        attention(q, k, v, torch.arange(2, 5), torch.arange(5), scale=1.0)
    assert bill.flops == 2 * (4 * 3 * 5 * 6) + 2 * (4 * 3 * 5 * 7)
    assert (
        bill.kv_read == 5 * 2 * (6 + 7) * 4
    )  # once per KV head, whatever the 4 query heads and 3 queries do
    assert (bill.kv_written, bill.kv_held, bill.copied) == (0, 0, 0)


def test_model_by_hand():
    model, config = random_model(), SMALL
    n = 5
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    projections = config.hidden_size * (2 * q_size + 2 * kv_size)
    mlp = 3 * config.hidden_size * config.mlp_size
    attend = 2 * config.num_heads * config.head_dim * n
    head = config.hidden_size * config.vocab_size
    with kvlab.Ledger() as bill:
        model(random_ids(n), GrowingCache(config))
    assert bill.flops == 2 * n * (config.num_layers * (projections + mlp + attend) + head)
    with kvlab.Ledger() as last:
        model(random_ids(n), GrowingCache(config), rows="last")
    assert bill.flops - last.flops == 2 * (n - 1) * head


@pytest.mark.parametrize("cache_type", [NoCache, GrowingCache, StaticCache])
def test_flops_equal_torchs_count_of_the_products(cache_type):
    model, cache = random_model(), cache_type(SMALL)
    for n in (9, 1, 4):
        with kvlab.Ledger() as bill, FlopCounterMode(display=False) as counter:
            model(random_ids(n), cache)
        assert bill.flops == counter.get_total_flops()


def test_written_and_read_over_a_generation():
    model, cache = random_model(), StaticCache(SMALL, capacity=40)
    with kvlab.Ledger() as bill:
        list(kvlab.generate(model, random_ids(7), max_new_tokens=4, cache=cache))
    assert bill.kv_written == (7 + 3) * TOKEN  # the last new token is never fed back
    assert bill.kv_read == (7 + 8 + 9 + 10) * TOKEN
    assert bill.kv_held == 40 * TOKEN
    assert bill.copied == 0


def test_a_growing_cache_pays_for_its_copies():
    model, cache = random_model(), GrowingCache(SMALL)
    with kvlab.Ledger() as bill:
        list(kvlab.generate(model, random_ids(7), max_new_tokens=4, cache=cache))
    assert bill.copied == (7 + 8 + 9) * TOKEN
    assert bill.kv_held == 10 * TOKEN


def test_a_window_reads_only_what_is_seen():
    config = replace(SMALL, windows=(4, None, 4))
    model, cache = random_model(config), GrowingCache(config)
    model(random_ids(10), cache)
    with kvlab.Ledger() as bill:
        model(random_ids(2), cache)
    # Positions 10 and 11 with a window of 4 see 7 to 11: five keys. The middle layer reads all 12.
    assert bill.kv_read == (5 + 12 + 5) * TOKEN // 3


def test_forks_share_or_copy():
    model = random_model()
    for cache, copied in ((GrowingCache(SMALL), 0), (StaticCache(SMALL), 6 * TOKEN)):
        model(random_ids(6), cache)
        with kvlab.Ledger() as bill:
            cache.fork()
        assert bill.copied == copied


def test_ledgers_nest_and_end():
    model = random_model()
    with kvlab.Ledger() as outer:
        model(random_ids(3), NoCache(SMALL))
        with kvlab.Ledger() as inner:
            model(random_ids(3), NoCache(SMALL))
    model(random_ids(3), NoCache(SMALL))
    assert inner.flops > 0
    assert outer.flops == 2 * inner.flops
    with pytest.raises(ZeroDivisionError), kvlab.Ledger() as failed:
        raise ZeroDivisionError
    model(random_ids(3), NoCache(SMALL))
    assert failed.flops == 0


def test_what_was_held_stays_on_the_bill_when_the_cache_is_gone():
    model, cache = random_model(), GrowingCache(SMALL)
    with kvlab.Ledger() as bill:
        model(random_ids(3), cache)
    del cache
    gc.collect()
    assert bill.kv_held == 3 * TOKEN


def test_every_figure_is_an_int():
    model = random_model()
    with kvlab.Ledger() as bill:
        model(random_ids(3), GrowingCache(SMALL))
    for name in ("flops", "kv_read", "kv_written", "kv_held", "copied"):
        assert type(getattr(bill, name)) is int
        assert name in repr(bill)


def test_another_threads_work_is_not_on_the_bill():
    model = random_model()

    def work():
        for _ in range(20):
            model(random_ids(3), NoCache(SMALL))

    with kvlab.Ledger() as alone:
        model(random_ids(3), NoCache(SMALL))
    thread = threading.Thread(target=work)
    with kvlab.Ledger() as bill:
        thread.start()
        model(random_ids(3), NoCache(SMALL))
        thread.join()
    assert bill.flops == alone.flops


def test_a_ledger_is_open_once():
    with kvlab.Ledger() as bill, pytest.raises(RuntimeError, match="open already"), bill:
        pass
    with bill:  # closed, it can be opened again and goes on counting
        random_model()(random_ids(3), NoCache(SMALL))
    assert bill.flops > 0


def test_forks_are_held_and_truncation_copies_what_it_keeps():
    model, cache = random_model(), GrowingCache(SMALL)
    with kvlab.Ledger() as bill:
        model(random_ids(6), cache)
        fork = cache.fork()
        assert bill.kv_held == 2 * 6 * TOKEN
        cache.truncate(4)
        assert bill.kv_held == (4 + 6) * TOKEN
    assert bill.copied == 4 * TOKEN
    assert fork.length == 6
