"""Prefix caches, the tree and the hashes alike: what is stored is found, shared, and never contradicted."""

import pytest

from tests.paging.prefix_cases import (
    BOTH,
    a_cache,
    begun,
    everything_is_right,
    handed_in,
    locked,
    refuses,
    store,
    text,
)


@BOTH
def test_what_was_stored_is_found_block_by_block(make):
    cache = a_cache(make)
    tokens = text(1, 2, 3)
    blocks = store(cache, tokens)
    for n in range(len(tokens) + 1):
        for sought in (tokens[:n], [*tokens[:n], 9]):
            prefix = cache.match(sought)
            assert (prefix.tokens, prefix.blocks) == (n // 4 * 4, blocks[: n // 4])
            everything_is_right(cache)
    assert (cache.num_blocks, cache.pool.num_kept, cache.owned) == (3, 3, [])


@BOTH
@pytest.mark.parametrize("length", range(1, 18))
def test_texts_part_after_any_block(make, length):
    cache = a_cache(make, 60)
    tokens = text(*range(length))
    blocks = store(cache, tokens)
    for known in [*range(0, length, 2), *range(1, length, 2)]:
        other = [*tokens[: 4 * known], *tokens[4 * known : 4 * known + 3], 99]
        assert cache.peek([*other, 1]) == 4 * known
        assert store(cache, other)[:known] == blocks[:known]
    assert (cache.peek(tokens), cache.num_blocks) == (4 * length, 2 * length)


@BOTH
@pytest.mark.parametrize(
    ("most", "found"), [(None, 3), (12, 3), (11, 2), (8, 2), (3, 0), (0, 0), (-1, 0), (99, 3)]
)
def test_at_most_so_many_tokens_are_found(make, most, found):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2, 3))
    prefix = cache.match(text(1, 2, 3), most=most)
    assert (prefix.tokens, prefix.blocks) == (4 * found, blocks[:found])


@BOTH
def test_a_prompt_stored_whole_has_its_last_token_computed_and_the_copy_goes_back(make):
    cache = a_cache(make)
    tokens, free = text(1, 2), cache.pool.num_free
    blocks = store(cache, tokens)
    table, prefix = begun(cache, tokens, most=len(tokens) - 1)
    assert (prefix.tokens, table.length, table.blocks[0]) == (4, 8, blocks[0])
    assert table.blocks[1] != blocks[1]
    prefix = handed_in(cache, tokens, table, prefix)
    assert (prefix.tokens, table.blocks, table.owned, cache.pool.num_free) == (8, blocks, [], free - 2)
    everything_is_right(cache, table)
    cache.unlock(prefix)
    table.release()
    assert cache.pool.num_kept == 2
    everything_is_right(cache)


@BOTH
@pytest.mark.parametrize("tokens", [[], [1], [1, 1, 1]])
def test_less_than_a_block_is_neither_stored_nor_found(make, tokens):
    cache = a_cache(make)
    store(cache, text(1))
    before = cache.num_blocks
    table, prefix = begun(cache, tokens, namespace="new")
    longer = handed_in(cache, tokens, table, prefix)
    assert (prefix.tokens, prefix.blocks, longer.tokens, longer.blocks) == (0, [], 0, [])
    assert (cache.insert(tokens, [], "other").tokens, cache.num_blocks) == (0, before)
    everything_is_right(cache, table)
    cache.unlock(longer)
    table.release()
    everything_is_right(cache)


@BOTH
def test_tokens_behind_the_blocks_are_not_stored(make):
    cache = a_cache(make)
    store(cache, [*text(1), 2, 2])
    assert (cache.peek(text(1, 2)), cache.num_blocks) == (4, 1)
    blocks = store(cache, text(1, 2, 3))
    prefix = cache.insert(text(1, 2, 3), blocks[:2])
    assert (prefix.tokens, prefix.blocks) == (8, blocks[:2])
    longer = cache.insert(text(2, 3), [], after=locked(cache, text(1)))
    assert (longer.tokens, longer.blocks) == (4, [])
    cache.unlock(longer)
    everything_is_right(cache)


@BOTH
def test_texts_that_part_share_their_beginning(make):
    cache = a_cache(make)
    first = store(cache, text(1, 2, 3))
    second = store(cache, text(1, 2, 4))
    assert second[:2] == first[:2] and second[2] != first[2]
    assert (cache.num_blocks, cache.pool.num_kept) == (4, 4)
    assert cache.match(text(1, 2, 5)).blocks == first[:2]
    assert store(cache, text(1))[0] == first[0]


@BOTH
@pytest.mark.parametrize("most", [0, 4])
def test_two_compute_the_same_in_one_step_and_one_copy_stays(make, most):
    cache = a_cache(make)
    store(cache, text(1))
    tokens = text(1, 2, 3)
    pairs = [begun(cache, tokens, most=most) for _ in range(2)]
    held = [table.blocks for table, _ in pairs]
    ends = [handed_in(cache, tokens, table, prefix) for table, prefix in pairs]
    everything_is_right(cache, *(table for table, _ in pairs))
    assert pairs[0][0].blocks == pairs[1][0].blocks
    assert pairs[0][0].blocks[1:] == held[0][1:]
    assert (cache.num_blocks, cache.pool.num_held) == (3, 3)
    for (table, _), prefix in zip(pairs, ends, strict=True):
        table.release()
        cache.unlock(prefix)
    everything_is_right(cache)
    assert (cache.pool.num_held, cache.pool.num_kept) == (0, 3)


@BOTH
def test_a_block_that_two_tables_own_is_the_caches_once(make):
    """Forked before it was handed in: both hand in the same block."""
    cache = a_cache(make)
    table, prefix = begun(cache, text(1, 2))
    other = table.fork()
    cache.lock(prefix)
    ends = [handed_in(cache, text(1, 2), each, prefix) for each in (table, other)]
    assert table.blocks == other.blocks
    assert [cache.pool.count(block) for block in table.blocks] == [1, 1]
    everything_is_right(cache, table, other)
    for each, end in zip((table, other), ends, strict=True):
        cache.unlock(end)
        each.release()
    assert (cache.pool.num_held, cache.pool.num_kept) == (0, 2)


@BOTH
def test_what_contradicts_is_refused(make):
    cache = a_cache(make)
    blocks = store(cache, text(1, 2, 3))
    table, prefix = begun(cache, text(1, 5, 6))
    mine, free = table.owned, cache.pool._free[-1]
    for tokens, given, says in (
        (text(7), blocks[:1], "block 0 is kept already"),
        (text(7), blocks[2:], "block 2 has no owner"),
        (text(7), [free], "has no owner"),
        (text(7, 8), [mine[0], mine[0]], "comes twice"),
        (text(7, 8), [mine[0], -1], "there is no block -1"),
        (text(7, 8), [mine[0], 12], "there is no block 12"),
        (text(7)[:3], mine[:1], "3 tokens do not fill 1 blocks of 4"),
        ([], mine[:1], "0 tokens do not fill"),
    ):
        for namespace in (None, "new"):
            refuses(cache, ValueError, says, cache.insert, tokens, given, namespace, tables=[table])
    for tokens, given in ((text(1, 7), [blocks[0]] * 2), (text(1, 2, 7), [*blocks[:2], free])):
        refuses(cache, ValueError, None, cache.insert, tokens, given, tables=[table])
    for given, says in (
        ([free, mine[1]], "has no owner"),
        ([mine[0]] * 2, "twice"),
        (mine * 2, "do not fill"),
    ):
        refuses(cache, ValueError, says, cache.insert, text(5, 6), given, after=prefix, tables=[table])
    handed_in(cache, text(1, 5, 6), table, prefix)
    everything_is_right(cache, table)


@BOTH
def test_two_caches_on_one_pool_never_store_the_same_block(make):
    first = a_cache(make)
    second = make(first.pool)
    table, prefix = begun(first, text(1))
    handed_in(first, text(1), table, prefix)
    refuses(second, ValueError, "is kept already", second.insert, text(1), table.blocks, tables=[table])
    other, prefix = begun(second, text(1))
    handed_in(second, text(1), other, prefix)
    assert table.blocks != other.blocks
    for cache in (first, second):
        cache.check()
    first.pool.check([first, second, table, other])
