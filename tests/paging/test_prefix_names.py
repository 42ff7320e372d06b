"""Tokens and namespaces of a prefix cache: which ones are the same, and which never meet."""

from array import array

import numpy as np
import pytest

from kvlab.paging.prefix import packed
from kvlab.paging.radix import RadixTree
from tests.paging.prefix_cases import BOTH, a_cache, nodes, refuses, store, text

KINDS = [list, tuple, np.array, lambda tokens: array("q", tokens), lambda tokens: [*map(np.int64, tokens)]]


@BOTH
@pytest.mark.parametrize("kind", [*KINDS, bytes, bytearray])
@pytest.mark.parametrize("size", [1, 4])
def test_any_sequence_of_ids_will_do(make, kind, size):
    cache = a_cache(make, size=size)
    tokens = text(1, 2, size=size)
    blocks = store(cache, kind(tokens))
    assert cache.match(kind(tokens)).blocks == cache.match(tokens).blocks == blocks
    assert cache.peek(kind(tokens)) == 2 * size


@BOTH
def test_blocks_are_kept_as_plain_numbers(make):
    cache = a_cache(make)
    prefix = cache.insert(text(1, 2), np.array([cache.pool.allocate(), cache.pool.allocate()]))
    assert {type(block) for block in [*prefix.blocks, *cache.match(text(1)).blocks]} == {int}


def test_only_whole_blocks_are_looked_at():
    for n, whole in ((0, 0), (3, 0), (4, 4), (7, 4), (8, 8)):
        assert packed(range(n), 4) == array("i", range(whole)).tobytes()


@BOTH
@pytest.mark.parametrize("token", [2**31, -(2**31) - 1, 1.0, "1", None])
def test_tokens_are_ids(make, token):
    cache = a_cache(make)
    store(cache, text(1))
    tokens, block = [*text(1), token, 1, 1, 1], cache.pool.allocate()
    for operation in (cache.match, cache.peek):
        refuses(cache, ValueError, "whole numbers of 31 bits", operation, tokens)
    refuses(cache, ValueError, "whole numbers of 31 bits", cache.insert, tokens, [block, block])


@BOTH
def test_ids_of_all_sizes_are_told_apart(make):
    cache = a_cache(make, size=1)
    ids = [0, 1, 256, 2**16, 2**24, -1, -(2**31), 2**31 - 1]
    blocks = {token: store(cache, [token]) for token in ids}
    assert {token: cache.match([token, 0]).blocks for token in ids if token} == {
        token: blocks[token] for token in ids if token
    }


NAMES = [
    None,
    "x",
    ("adapter", "x"),
    ("salt", "x"),
    0,
    1,
    True,
    1.0,
    b"\1\0\0\0",
    (1, 1, 1, 1),
    (type(None), None),
]


@BOTH
def test_namespaces_never_meet(make):
    cache = a_cache(make)
    blocks = [store(cache, text(1), namespace=name) for name in NAMES]
    assert [cache.match(text(1, 1), name).blocks for name in NAMES] == blocks
    assert len({block for (block,) in blocks}) == len(NAMES)
    assert cache.match(text(1), "X").tokens == cache.peek(text(1), 2) == 0


@BOTH
def test_a_namespace_that_looks_like_the_text_before_is_not_it(make):
    cache = a_cache(make)
    first = array("i", text(1)).tobytes()
    store(cache, text(1, 2))
    for name in (first, (None, first), ((type(None), None), first), 0, (int, 0), tuple(text(1))):
        assert cache.peek(text(2), name) == cache.peek(text(1, 2), name) == 0


@BOTH
def test_a_namespace_has_a_hash(make):
    cache = a_cache(make)
    store(cache, text(1))
    for operation in (cache.match, cache.peek):
        refuses(cache, TypeError, None, operation, text(1), [])


@pytest.mark.parametrize("end", ["match", "lock", "evict", "nothing", "refused"])
def test_a_tree_forgets_a_namespace_that_is_empty(end):
    cache = a_cache(RadixTree)
    for name in range(3):
        if end == "refused":
            with pytest.raises(ValueError, match="no owner"):
                cache.insert(text(1), [0], name)
        elif end == "nothing":
            cache.insert([], [], name)
        elif end == "evict":
            store(cache, text(1), namespace=name)
        else:
            prefix = cache.match(text(1), name)
        if end == "lock":
            cache.lock(prefix)
            assert len(nodes(cache)) == 1
            cache.unlock(prefix)
    cache.evict(3)
    assert cache.roots == {}
