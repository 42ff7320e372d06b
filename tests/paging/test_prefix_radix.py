"""The radix tree alone: where it is cut, what grows, who goes first, paths of a million tokens."""

import re
import time

import pytest

from kvlab.paging import BlockPool
from kvlab.paging.radix import RadixTree
from tests.paging.prefix_cases import (
    a_cache,
    begun,
    everything_is_right,
    handed_in,
    locked,
    nodes,
    refuses,
    store,
    text,
)


@pytest.fixture
def tree():
    return a_cache(RadixTree)


def runs(tree):
    """The runs of the tree, one number a block, and how often each is locked."""
    step = tree.pool.block_size
    return sorted(
        (list(memoryview(node.key).cast("i"))[::step], node.locks, node.users)
        for node in nodes(tree)
        if node.key
    )


def test_a_run_is_cut_where_texts_part_and_nowhere_else(tree):
    store(tree, text(1, 2, 3))
    assert runs(tree) == [([1, 2, 3], 0, 0)]
    tree.peek(text(1, 2))
    assert runs(tree) == [([1, 2, 3], 0, 0)]
    store(tree, text(1, 2, 4))
    assert runs(tree) == [([1, 2], 0, 0), ([3], 0, 0), ([4], 0, 0)]
    tree.match(text(1, 9))
    assert runs(tree) == [([1], 0, 0), ([2], 0, 0), ([3], 0, 0), ([4], 0, 0)]


def test_locks_lie_on_both_parts_and_end_where_they_ended(tree):
    store(tree, text(1, 2, 3))
    long = locked(tree, text(1, 2, 3))
    short = locked(tree, text(1))
    assert runs(tree) == [([1], 2, 1), ([2, 3], 1, 1)]
    middle = locked(tree, text(1, 2))
    assert runs(tree) == [([1], 3, 1), ([2], 2, 1), ([3], 1, 1)]
    tree.unlock(long)
    assert runs(tree) == [([1], 2, 1), ([2], 1, 1), ([3], 0, 0)]
    tree.unlock(short)
    tree.unlock(middle)
    everything_is_right(tree)


def test_a_long_generation_is_one_run(tree):
    table, prefix = begun(tree, [])
    tokens = []
    for token in range(40):
        table.reserve(1)
        table.advance(1)
        tokens.append(token)
        prefix = handed_in(tree, tokens, table, prefix)
        assert len(nodes(tree)) == 1 + (token > 2)
        everything_is_right(tree, table)
    assert (prefix.tokens, tree.match(tokens).blocks) == (40, table.blocks)


def grown(tree, tokens, table, prefix, new, **more):
    table.reserve(len(new))
    table.advance(len(new))
    return handed_in(tree, [*tokens, *new], table, prefix, **more)


def test_where_others_end_a_generation_goes_on_in_a_run_of_its_own(tree):
    table, prefix = begun(tree, text(1))
    prefix = handed_in(tree, text(1), table, prefix)
    other = table.fork()
    tree.lock(prefix)
    ends = [grown(tree, text(1), each, prefix, text(n)) for n, each in ((2, table), (3, other))]
    assert runs(tree) == [([1], 2, 0), ([2], 1, 1), ([3], 1, 1)]
    ends[0] = grown(tree, text(1, 2), table, ends[0], text(4))
    assert runs(tree) == [([1], 2, 0), ([2, 4], 1, 1), ([3], 1, 1)]
    everything_is_right(tree, table, other)
    tree.unlock(ends[0])
    third = locked(tree, text(1, 2, 4))
    assert third.blocks == table.blocks
    everything_is_right(tree, table, other)


def test_who_has_found_a_run_that_grew_matches_again(tree):
    table, prefix = begun(tree, text(1))
    prefix = handed_in(tree, text(1), table, prefix)
    found = tree.match(text(1))
    end = grown(tree, text(1), table, prefix, text(2))
    assert runs(tree) == [([1, 2], 1, 1)]
    for stale in (found, prefix):
        for operation in (tree.lock, tree.unlock):
            refuses(tree, ValueError, "path of these 4 tokens has changed", operation, stale, tables=[table])
    assert tree.match(text(1)).blocks == found.blocks
    tree.unlock(end)


def test_an_insert_without_a_lock_never_makes_a_run_longer(tree):
    """The run's owner may let it go block by block; who found it may still lock it."""
    store(tree, text(1))
    prefix = locked(tree, text(1))
    store(tree, text(1, 2))
    assert runs(tree) == [([1], 1, 1), ([2], 0, 0)]
    assert tree.evict(9) == 1
    tree.unlock(prefix)


def test_a_namespace_in_use_is_not_forgotten(tree):
    prefixes = [locked(tree, text(1), namespace="x") for _ in range(2)]
    store(tree, text(2), namespace="x")
    tree.unlock(prefixes[0])
    tree.evict(1)
    assert len(tree.roots) == 1
    everything_is_right(tree)
    tree.unlock(prefixes[1])
    assert tree.roots == {}


def test_what_was_used_last_goes_last(tree):
    for n in (1, 2, 3, 4):
        store(tree, text(n))
    tree.match(text(2))
    store(tree, text(1))
    tree.peek(text(3))
    for left in ({1, 2, 4}, {1, 2}, {1}, set()):
        tree.evict(1)
        assert {n for n in (1, 2, 3, 4) if tree.peek(text(n))} == left


@pytest.mark.parametrize("important", [False, True])
def test_whoever_wants_the_end_of_a_text_wants_its_beginning(tree, important):
    store(tree, text(1, 2))
    tree.match(text(1))
    store(tree, text(3), priority=int(important))
    prefix = locked(tree, text(3))
    store(tree, text(1, 2), priority=2 * important)
    tree.match(text(3 * important))
    assert (tree.evict(1), tree.peek(text(1, 2))) == (1, 4)
    tree.unlock(prefix)
    assert (tree.evict(1), tree.peek(text(1)), tree.peek(text(3))) == (1, 4, 0)


def test_what_is_more_important_goes_later_however_old(tree):
    store(tree, text(1), priority=2)
    store(tree, text(2), priority=1)
    store(tree, text(3))
    store(tree, text(4), priority=-1)
    store(tree, text(2), priority=-2)
    for left in ({1, 2, 3}, {1, 2}, {1}, set()):
        tree.evict(1)
        assert {n for n in (1, 2, 3, 4) if tree.peek(text(n))} == left


def test_whoever_wants_the_beginning_wants_it_after_the_end_is_gone(tree):
    store(tree, text(1, 2), priority=1)
    store(tree, text(1), priority=2)
    store(tree, text(3), priority=1)
    tree.match(text(1))
    store(tree, text(4), priority=2)
    for found in ((4, 4, 4), (4, 0, 4), (0, 0, 4)):
        tree.evict(1)
        assert tuple(tree.peek(text(n)) for n in (1, 3, 4)) == found


def test_a_beginning_that_was_used_since_goes_later(tree):
    store(tree, text(1, 2))
    store(tree, text(3))
    tree.match(text(1))
    for found in ((4, 4), (4, 0), (0, 0)):
        tree.evict(1)
        assert (tree.peek(text(1)), tree.peek(text(3))) == found


def test_what_is_said_to_be_important_is_more_so_than_the_rest(tree):
    store(tree, text(1), priority=1)
    store(tree, text(2))
    assert (tree.evict(1), tree.peek(text(1))) == (1, 4)


def test_what_follows_is_as_important_as_it_is_said_to_be(tree):
    table, prefix = begun(tree, text(1))
    prefix = handed_in(tree, text(1), table, prefix, priority=1)
    prefix = grown(tree, text(1), table, prefix, text(2), priority=0)
    tree.unlock(tree.insert([], [], after=prefix, priority=-1))
    table.release()
    store(tree, text(3))
    for found in ((4, 4), (4, 0), (0, 0)):
        tree.evict(1)
        assert (tree.peek(text(1, 2)), tree.peek(text(3))) == found
    table, prefix = begun(tree, text(1))
    prefix = handed_in(tree, text(1), table, prefix)
    tree.unlock(grown(tree, text(1), table, prefix, text(2), priority=2))
    assert runs(tree) == [([1, 2], 0, 0)]
    store(tree, text(3), priority=1)
    assert (tree.evict(1), tree.peek(text(1, 2))) == (1, 8)


def test_hits_count_who_came_along_each_run(tree):
    store(tree, text(1, 2))
    for tokens in (text(1, 2), text(1, 2), text(1), text(3)):
        tree.match(tokens)
        tree.peek(tokens)
    upper, lower = nodes(tree)[1:]
    assert (upper.hits, lower.hits) == (3, 2)


def test_the_queue_holds_no_leaf_twice(tree):
    store(tree, text(1))
    store(tree, text(2))
    for _ in range(99):
        tree.match(text(1))
        tree.unlock(locked(tree, text(2)))
        store(tree, text(1))
    assert len(tree._heap) == 2


@pytest.mark.parametrize("size", [1, 16])
def test_a_path_of_a_million_tokens(size):
    n = 1_000_000
    tree = RadixTree(BlockPool(n // size + 1, size))
    tokens = list(range(n))
    start = time.perf_counter()
    table, prefix = begun(tree, tokens)
    prefix = handed_in(tree, tokens, table, prefix)
    table.release()
    tree.unlock(prefix)
    assert tree.peek(tokens) == n
    assert tree.match(tokens[: n // 2]).tokens == n // 2
    prefix = locked(tree, tokens, most=n - 1)
    assert (tree.evict(3), prefix.tokens) == (1, n - size)
    tree.unlock(prefix)
    assert (tree.evict(n // size // 2), tree.peek(tokens)) == (n // size // 2, n // 2 - size)
    tree.check()
    tree.pool.check([tree])
    tree.evict(n)
    assert tree.pool.num_free == tree.pool.num_blocks
    assert time.perf_counter() - start < 15, "it takes a second or two"


def test_a_path_of_thousands_of_runs():
    """More than functions may call themselves: nothing here does."""
    n = 3000
    tree = RadixTree(BlockPool(n + 1, 1))
    blocks = store(tree, list(range(n)))
    for end in range(n - 1, 0, -1):
        tree.match(range(end))
    assert len(nodes(tree)) == n + 1
    prefix = locked(tree, range(n))
    assert prefix.blocks == blocks
    prefix = tree.insert([n], [tree.pool.allocate()], after=prefix)
    everything_is_right(tree)
    assert (len(tree.owned), tree.evict(1)) == (n + 1, 0)
    tree.unlock(prefix)
    assert (tree.evict(n), tree.peek(range(n))) == (n, 1)
    everything_is_right(tree)


def broken(tree, field, value):
    """Of the lower of two runs."""
    node = nodes(tree)[2]
    setattr(node, field, value(node))


BROKEN = {
    "a key too short": (("key", lambda node: node.key[:-4]), "a run's tokens do not fill its blocks"),
    "other tokens": (("key", lambda node: b"????" + node.key[4:]), "a child stands under other tokens"),
    "another parent": (("parent", lambda node: node), "a child has another parent"),
    "another end": (("end", lambda node: node.end + 1), "a run ends elsewhere than it says"),
    "more locks": (("locks", lambda node: 2), "a lock does not reach the root"),
    "a lock of nobody": (("users", lambda node: 0), "a lock does not reach the root"),
    "a block twice": (
        ("blocks", lambda node: node.blocks[:1] * 2),
        "a block stands in the tree twice, or not",
    ),
    "a free block": (("blocks", lambda node: [4, 5]), "a locked run has blocks without an owner"),
    "a block of others": (("blocks", lambda node: [node.blocks[0], 3]), "block 3 is in the tree, and"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_check_names_what_is_broken(tree, what):
    (field, value), says = BROKEN[what]
    store(tree, text(1, 2, 3))
    tree.match(text(1))
    locked(tree, text(1, 2, 3))
    assert tree.pool.allocate() == 3
    tree.check()
    broken(tree, field, value)
    with pytest.raises(AssertionError, match=re.escape(says)):
        tree.check()


def test_check_finds_a_block_that_stands_there_twice(tree):
    blocks = store(tree, text(1, 2))
    node = nodes(tree)[1]
    node.key, node.blocks, node.end = node.key + bytes(16), [*blocks, blocks[0]], 3
    with pytest.raises(AssertionError, match="a block stands in the tree twice, or not"):
        tree.check()


def test_check_misses_nothing_that_is_idle(tree):
    store(tree, text(1))
    nodes(tree)[1].queued = False
    with pytest.raises(AssertionError, match="a leaf that nobody has locked cannot be evicted"):
        tree.check()
    nodes(tree)[1].queued = True
    tree.num_blocks = 2
    with pytest.raises(AssertionError, match="a block stands in the tree twice, or not"):
        tree.check()
    tree.num_blocks = 1
    nodes(tree)[0].blocks = [0]
    with pytest.raises(AssertionError, match="a run's tokens do not fill its blocks"):
        tree.check()
    nodes(tree)[0].key = bytes(16)
    with pytest.raises(AssertionError, match="a run is empty, or a root is not"):
        tree.check()
