"""What the tests of prefix caches have in common: texts that are stored, and refusals that change nothing."""

import re

import pytest

from kvlab.paging import BlockPool, BlockTable
from kvlab.paging.hashes import BlockHashes
from kvlab.paging.radix import RadixTree
from tests.paging.cases import state, stored

BOTH = pytest.mark.parametrize("make", [RadixTree, BlockHashes])


def a_cache(make, num_blocks=12, size=4):
    return make(BlockPool(num_blocks, size))


def text(*letters, size=4):
    """Of each letter a block: a number that repeats it."""
    return [letter for letter in letters for _ in range(size)]


def store(cache, tokens, **more):
    """Tokens that nobody uses, in the cache -> their blocks."""
    table = stored(cache.pool, len(tokens))
    blocks = table.blocks[: len(tokens) // cache.pool.block_size]
    prefix = cache.insert(tokens, blocks, **more)
    table.release()
    everything_is_right(cache)
    return prefix.blocks


def locked(cache, tokens, **more):
    prefix = cache.match(tokens, **more)
    cache.lock(prefix)
    return prefix


def begun(cache, tokens, **more):
    """A sequence that uses what is stored of its tokens, and has the others computed -> table, prefix."""
    prefix = locked(cache, tokens, **more)
    table = BlockTable(cache.pool)
    table.borrow(prefix.blocks)
    table.reserve(len(tokens) - table.length)
    table.advance(len(tokens) - table.length)
    return table, prefix


def handed_in(cache, tokens, table, prefix, **more):
    """Its full blocks go to the cache -> the longer prefix."""
    size = cache.pool.block_size
    known, full = prefix.tokens // size, table.length // size
    prefix = cache.insert(tokens[prefix.tokens :], table.blocks[known:full], after=prefix, **more)
    table.borrow(prefix.blocks)
    return prefix


def everything_is_right(cache, *tables):
    pool = cache.pool
    cache.check()
    pool.check([cache, *tables])
    assert pool.num_free + pool.num_held + pool.num_kept == pool.num_blocks
    assert cache.num_blocks == sum(map(pool.cached, range(pool.num_blocks)))


def slots(thing):
    """What is in a node or an entry, but not its neighbours."""
    names = [name for name in type(thing).__slots__ if name not in ("children", "parent")]
    return {name: getattr(thing, name) for name in names}


def nodes(cache):
    """All nodes of a radix tree, roots first."""
    found = list(cache.roots.values())
    for node in found:
        found += node.children.values()
    return found


def everything(cache, tables=()):
    """All that a refusal may not change: the cache, its pool and the tables."""
    apart = ("pool", "roots", "_heap", "_stored", "_idle")
    inside = {name: repr(value) for name, value in vars(cache).items() if name not in apart}
    if isinstance(cache, RadixTree):
        heap = [(*place, id(node)) for *place, node in cache._heap]
        more = list(cache.roots), heap, [(id(node), id(node.parent), slots(node)) for node in nodes(cache)]
    else:
        more = list(cache._idle), [(key, slots(each)) for key, each in cache._stored.items()]
    return inside, repr(more), state(cache.pool, tables)


def refuses(cache, error, says, operation, *arguments, tables=(), **more):
    before = everything(cache, tables)
    with pytest.raises(error, match=says and re.escape(says)):
        operation(*arguments, **more)
    assert everything(cache, tables) == before
