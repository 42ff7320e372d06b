"""The second tier: what it has, what it lets go, what does not fit, and what goes wrong on the way."""

import pytest
import torch

from kvlab import Ledger
from kvlab.caches import PagedCache, Pages
from kvlab.caches.host import HostTier
from kvlab.paging import BlockTable
from tests.caches.pages import IDS, agrees
from tests.caches.tiers import (
    BLOCK,
    SIZE,
    Gated,
    Stepped,
    arrived,
    brought,
    computed,
    counted,
    counts,
    scribble,
    some_pages,
    stored,
    text,
)
from tests.models import ABSORBED, NAIVE, SMALL, random_model

ABC = text(1, 2, 3)


@pytest.fixture
def tier():
    with Stepped(some_pages(), 8) as tier:
        yield tier


# ---- out and back


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("config", [SMALL, NAIVE, ABSORBED], ids=["gqa", "two widths", "latents"])
def test_what_comes_back_is_what_went_out(config, dtype):
    """To the last bit, from blocks that hold something else by now, into others; all bytes are counted."""
    pages = some_pages(config=config, dtype=dtype)
    taken = [pages.pool.allocate() for _ in range(6)]
    pages.pool.release_all([taken[1], taken[4], taken[2]])  # blocks come in no order
    with HostTier(pages, 5) as tier:
        assert stored(tier, ABC) == 3 and tier.find(ABC) == len(ABC)
        assert pages.pool.num_held == 3
        assert brought(tier, ABC) == brought(tier, ABC, start=0) == 3
        assert brought(tier, ABC, start=4) == 2
        assert counted(tier) == counts(stored=3, loaded=8)
        assert (tier.bytes_out, tier.bytes_in) == (3 * pages.block_bytes, 8 * pages.block_bytes)
        assert tier.rows.shape == (5, pages.block_bytes)


def test_a_model_goes_on_from_what_was_loaded():
    model, pages = random_model(), Pages(SMALL, 12, SIZE)
    cache, again = PagedCache(SMALL, pages=pages), PagedCache(SMALL, pages=pages)
    model(IDS[:10], cache)
    with HostTier(pages, 8) as tier:
        assert tier.offer(IDS[:8].tolist(), cache.table.blocks[:2]) == 2
        scribble(pages, cache.table)
        assert tier.wait(10)
        load = tier.fetch(IDS.tolist())
        again.table.reserve(8)
        assert load.wait(10)
        load.into(again.table.blocks)
        again.table.advance(8)
    agrees(model, again, IDS[:8], IDS[8:])


def test_blocks_may_be_reused_as_soon_as_offer_returns():
    with Gated(some_pages(), 8) as tier:
        table = computed(tier.pages, ABC)
        assert tier.offer(ABC, table.blocks) == 3
        tier.reached()
        scribble(tier.pages, table)
        tier.let.release(99)
        assert tier.wait(10) and brought(tier, ABC) == 3


def test_a_block_is_found_when_it_is_complete(tier):
    table = computed(tier.pages, ABC)
    tier.offer(ABC, table.blocks)
    for n in range(4):
        assert (tier.find(ABC), tier.stored) == (n * SIZE, n)
        tier.check()
        if n < 3:
            tier.step()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_what_is_here_or_on_its_way_is_not_sent_again(tier, steps):
    table = computed(tier.pages, text(1, 2, 3, 4))
    assert tier.offer(ABC, table.blocks[:3]) == 3
    tier.step(steps)
    assert tier.offer(ABC, table.blocks[:3]) == 0
    assert tier.offer(text(1, 2), table.blocks[:2]) == 0
    assert tier.offer(text(1, 2, 3, 4), table.blocks) == 1
    assert tier.offer(text(1, 2, 3, 4), table.blocks) == 0
    tier.wait()
    assert counted(tier) == counts(stored=4)
    assert brought(tier, text(1, 2, 3, 4)) == 4


def test_texts_that_begin_alike_share_their_beginning(tier):
    stored(tier, ABC)
    assert stored(tier, text(1, 2, 9)) == 1
    assert tier.pool.num_kept == 4
    assert [tier.find(text(*end)) for end in ((1, 2, 3), (1, 2, 9, 9), (1, 9), (9,), ())] == [12, 12, 4, 0, 0]


def test_a_text_in_parts(tier):
    """Whole blocks, from a block's beginning on, up to the most that is asked for."""
    stored(tier, text(1, 2, 3, 4))
    for start in (0, 4, 12, 16, 20):
        for most in (None, 16, 15, 8, 7, 0, -1):
            wanted = max(0, (16 if most is None else most) // SIZE * SIZE - start)
            assert tier.find(text(1, 2, 3, 4, 5), start=start, most=most) == wanted
            load = tier.fetch(text(1, 2, 3, 4, 5), start=start, most=most)
            assert load.done == (wanted == 0)
            tier.wait()
            assert arrived(load, text(1, 2, 3, 4, 5), start=start, most=most) == wanted // SIZE
    assert tier.find([*ABC, 4, 4, 4]) == 12, "the last of these blocks is not full"


@pytest.mark.parametrize("start", [-4, 1, 6])
def test_a_start_within_a_block_is_refused(tier, start):
    stored(tier, ABC)
    for ask in (tier.find, tier.fetch):
        with pytest.raises(ValueError, match=f"start is {start}; blocks begin at multiples of 4"):
            ask(ABC, start=start)


def test_namespaces_do_not_meet(tier):
    names = [None, "x", ("salt", "x"), 1, True, 1.0]
    for name in names[:-1]:
        stored(tier, text(1), name)
    assert [tier.find(text(1), name) for name in names] == [4] * 5 + [0]
    assert [brought(tier, text(1), name) for name in names] == [1] * 5 + [0]


def test_the_bill_has_what_the_caller_copies(tier):
    """A copy of each block on the way out, and one on the way in; what the thread does is its own."""
    table = computed(tier.pages, ABC)
    with Ledger() as bill:
        tier.offer(ABC, table.blocks)
        tier.offer(ABC, table.blocks)
    assert bill.copied == 3 * BLOCK
    tier.wait()
    load = tier.fetch(ABC)
    tier.wait()
    with Ledger() as bill:
        load.into(table.blocks[1:])
    assert bill.copied == 2 * BLOCK


# ---- room


def test_the_caller_never_waits_for_a_link():
    """Two blocks are on their way, and the link is stuck: what does not fit is not stored."""
    with Gated(some_pages(), 8, queue=2) as tier:
        table, other = computed(tier.pages, text(1, 2, 3, 4)), computed(tier.pages, text(7))
        assert tier.offer(text(1, 2, 3, 4), table.blocks) == 2
        tier.reached()
        assert tier.offer(text(7), other.blocks) == 0
        assert counted(tier) == counts(skipped=3)
        tier.check()
        tier.let.release()
        tier.reached()  # one is stored, and the thread is at the next
        assert tier.offer(text(1, 2, 3, 4), table.blocks) == 1
        tier.let.release(99)
        assert tier.wait(10) and counted(tier) == counts(stored=3, skipped=4)
        assert brought(tier, text(1, 2, 3, 4)) == 3


def test_what_was_used_longest_ago_makes_room(tier):
    for name in range(4):
        stored(tier, text(name, name))  # 8 blocks: full
    assert brought(tier, text(0, 0)) == 2
    stored(tier, text(1, 1))  # there already, and used again
    assert stored(tier, text(9)) == 1
    assert [tier.find(text(name, name)) for name in range(4)] == [8, 8, 4, 8], "the end of a text goes first"
    assert stored(tier, text(8, 8)) == 2
    assert [tier.find(text(name, name)) for name in range(4)] == [8, 8, 0, 4]
    assert (tier.skipped, tier.pool.num_free) == (0, 0)
    for name in (0, 1, 3, 8):
        brought(tier, text(name, name))


def test_looking_is_no_use(tier):
    for name in range(4):
        stored(tier, text(name, name))
    tier.find(text(0, 0))
    stored(tier, text(9))
    assert tier.find(text(0, 0)) == 4


def test_of_a_text_that_is_too_long_the_beginning_is_stored():
    with Stepped(some_pages(), 3) as tier:
        stored(tier, text(7, 7))
        assert stored(tier, text(1, 2, 3, 4, 5)) == 3
        assert counted(tier) == counts(stored=5, skipped=2)
        assert (tier.find(text(7)), brought(tier, text(1, 2, 3, 4, 5))) == (0, 3)
        assert stored(tier, text(1, 2, 3, 4, 5)) == 0 and tier.skipped == 4


def test_a_text_does_not_make_room_by_its_own_beginning():
    with Stepped(some_pages(), 4) as tier:
        stored(tier, ABC)
        stored(tier, text(7))
        assert stored(tier, text(1, 2, 3, 4, 5)) == 1
        assert brought(tier, text(1, 2, 3, 4, 5)) == 4


def test_what_is_on_its_way_stays():
    """In either direction; and what is let go of in between is not given away twice."""
    with Stepped(some_pages(), 4) as tier:
        table = computed(tier.pages, text(1, 2))
        tier.offer(text(1, 2), table.blocks)
        assert tier.offer(text(7, 7, 7), computed(tier.pages, text(7, 7, 7)).blocks) == 2
        assert tier.offer(text(8), computed(tier.pages, text(8)).blocks) == 0
        tier.check()
        tier.wait()
        load = tier.fetch(text(1, 2))
        assert tier.offer(text(8, 8, 8), computed(tier.pages, text(8, 8, 8)).blocks) == 2
        tier.check()
        tier.wait()
        assert arrived(load, text(1, 2)) == 2
        assert [tier.find(text(*two)) for two in ((1, 2), (7, 7), (8, 8))] == [8, 0, 8]
        assert counted(tier) == counts(stored=6, loaded=2, skipped=3)


def test_who_waits_comes_first(tier):
    """A load overtakes stores, but not an earlier load."""
    stored(tier, text(1))
    stored(tier, text(2))
    tier.offer(text(3, 3), computed(tier.pages, text(3, 3)).blocks)
    tier.step()
    first, second = tier.fetch(text(1)), tier.fetch(text(2))
    tier.step()
    assert first.done and not second.done
    tier.step()
    assert second.done and tier.find(text(3, 3)) == 4
    tier.step()
    assert tier.find(text(3, 3)) == 8


# ---- refusals


def test_before_the_first_token_there_is_nothing_to_store():
    pages = Pages(SMALL, 12, SIZE)
    with Stepped(pages, 8) as tier:
        table = BlockTable(pages.pool)
        table.reserve(8)
        assert tier.offer(text(1, 2), table.blocks) == 0
        assert (tier.find(text(1)), tier.fetch(text(1)).done, tier.rows) == (0, True, None)
        pages.layers[0] = some_pages().layers[0]  # a step that ended after the first layer
        assert tier.offer(text(1, 2), table.blocks) == 0
        assert counted(tier) == counts()
        tier.check()


def test_offers_are_checked(tier):
    table = computed(tier.pages, ABC)
    free = next(block for block in range(12) if block not in table.blocks)
    for tokens, blocks, says in (
        (ABC[:-1], table.blocks, "11 tokens do not fill 3 blocks of 4"),
        (text(1, 2), [table.blocks[0], free], f"block {free} is free"),
        (text(1, 2), [table.blocks[0], 12], "no block 12"),
        (text(1, 2), [table.blocks[0], -1], "no block -1"),
        (["a"] * 4, table.blocks[:1], "tokens are ids"),
    ):
        with pytest.raises(ValueError, match=says):
            tier.offer(tokens, blocks)
    with pytest.raises(TypeError, match="unhashable"):
        tier.offer(ABC, table.blocks, namespace=[])
    tier.check()
    assert tier.offer(ABC[:3], []) == 0 and counted(tier) == counts()
    assert tier.offer([*ABC, None], table.blocks[:2]) == 2, "what stands behind the blocks does not matter"


def test_blocks_that_a_prefix_cache_keeps_are_offered_too(tier):
    table = computed(tier.pages, ABC)
    tier.pages.pool.keep_all(table.blocks)
    blocks = list(table.blocks)
    table.release()
    assert tier.offer(ABC, blocks) == 3


def test_what_arrives_is_written_once_it_is_there_where_nobody_reads(tier):
    stored(tier, text(1, 2))
    load, table = tier.fetch(text(1, 2)), computed(tier.pages, text(7, 8))
    before = [each.clone() for layer in tier.pages.layers for each in layer]
    blocks = list(table.blocks)

    def refused(error, says, blocks):
        with pytest.raises(error, match=says):
            load.into(blocks)
        after = [each for layer in tier.pages.layers for each in layer]
        assert all(map(torch.equal, before, after))

    refused(RuntimeError, "still on their way", blocks)
    tier.wait()
    refused(ValueError, "2 blocks have arrived, and not 3", [*blocks, 0])
    refused(ValueError, "no block 12", [blocks[0], 12])
    fork = table.fork()
    refused(ValueError, f"block {blocks[0]} has no owner, or others read it", blocks)
    fork.release()
    table.release()
    refused(ValueError, f"block {blocks[0]} has no owner, or others read it", blocks)
    load.into([])
    assert arrived(load, text(1, 2)) == 2 and arrived(load, text(1, 2)) == 2, "it may be written again"


def test_pages_of_another_dtype_ask_for_another_tier(tier):
    stored(tier, ABC)
    load = tier.fetch(ABC)
    tier.wait()
    table = BlockTable(tier.pages.pool)
    table.reserve(12)
    for layers in (some_pages(dtype=torch.float16).layers, some_pages(dtype=torch.float64).layers):
        tier.pages.layers = layers
        for call in (lambda: load.into(table.blocks), lambda: tier.offer(ABC, table.blocks)):
            with pytest.raises(TypeError, match="float32, and the pages were made anew: make a new tier"):
                call()
    tier.pages.layers = [None] * 3
    with pytest.raises(TypeError, match="made anew"):
        load.into(table.blocks)
    tier.check()


@pytest.mark.parametrize(
    "wrong",
    [{"num_blocks": 0}, {"queue": 0}, {"link_bytes_per_second": 0}, {"link_bytes_per_second": float("nan")}],
)
def test_sizes_are_checked_before_a_thread_begins(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
        HostTier(some_pages(), **{"num_blocks": 4} | wrong)
