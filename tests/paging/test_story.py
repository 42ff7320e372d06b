"""A story's moments are the tree: every node as it is, what each operation did, and that in words."""

import re
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.paging import BlockPool, OutOfBlocks, RadixTree, Story
from tests.paging.prefix_cases import everything, everything_is_right, nodes, store, text
from tests.paging.stories import SIZES, Teller, spell, ten

few = settings(max_examples=25, deadline=None)
seeds = given(seed=st.integers(0, 10**6), size=st.sampled_from(SIZES))


def all_of(story):
    """What a refusal may not change."""
    tables = [(name, table.blocks, table.length, table.prefix) for name, table in story.tables.items()]
    return everything(story.tree), repr(tables), repr(story.texts), len(story.moments)


def alive(moment):
    return [run for run in moment.runs if "evicted" not in run.marks]


def path(moment, run):
    """The tokens from the root to a run's end, with the namespace."""
    tokens, up = run.tokens, run.parent
    while up is not None:
        tokens, up = moment.runs[up].tokens + tokens, moment.runs[up].parent
    return (type(run.namespace), run.namespace), tokens


def blocks_of(moment, runs):
    """{(namespace, all tokens up to a block's end): block}"""
    found = {}
    for run in runs:
        home, tokens = path(moment, run)
        for back, block in enumerate(reversed(run.blocks)):
            found[home, tokens[: len(tokens) - back * moment.block_size]] = block
    return found


def truth(tree):
    """All nodes of a tree, with the tokens down to their ends."""
    found = []
    for node in nodes(tree):
        key, up = node.key, node
        while up.parent is not None:
            up = up.parent
            key = up.key + key
        numbers = node.locks, node.hits, node.used, node.priority
        found.append((up.namespace, tuple(memoryview(key).cast("i")), tuple(node.blocks), *numbers))
    return sorted(found, key=repr)


@few
@seeds
def test_a_moment_is_the_tree(seed, size):
    teller = Teller(seed, *size)
    story = teller.story
    for _ in range(30):
        now = all_of(story)
        teller.step()
        everything_is_right(story.tree, *story.tables.values())
        if len(story.moments) == now[-1]:
            assert all_of(story) == now
            continue
        moment, runs, pool = story.moments[-1], alive(story.moments[-1]), story.tree.pool
        numbers = [(r.locks, r.hits, r.used, r.priority) for r in runs]
        seen = [(*path(moment, r), r.blocks, *n) for r, n in zip(runs, numbers, strict=True)]
        assert sorted(seen, key=repr) == truth(story.tree)
        assert (moment.free, moment.held, moment.kept) == (pool.num_free, pool.num_held, pool.num_kept)
        assert moment.tables == {name: tuple(table.blocks) for name, table in story.tables.items()}
        assert all(r.words == tuple(spell(r.tokens)) for r in moment.runs)
        assert story.evictable == deepcopy(story.tree).evict(10**6)


@few
@seeds
def test_marks_are_what_changed(seed, size):
    teller = Teller(seed, *size)
    story = teller.story
    for _ in range(30):
        teller.step()
    for before, moment in zip(story.moments, story.moments[1:], strict=False):
        old, new = blocks_of(before, alive(before)), blocks_of(moment, alive(moment))
        ghosts = blocks_of(moment, [run for run in moment.runs if "evicted" in run.marks])
        assert ghosts.items() <= old.items() and old.keys() - new.keys() <= ghosts.keys()
        assert len(ghosts) == moment.evicted - before.evicted
        roots = [(type(run.namespace), run.namespace) for run in moment.runs if run.parent is None]
        assert len(roots) == len(set(roots)) == sum(not run.blocks for run in moment.runs)
        fresh = sum(run.new for run in moment.runs)
        assert fresh == len(new.keys() - (old.keys() - ghosts.keys()))
        for number, run in enumerate(moment.runs):
            assert run.parent is None or run.parent < number
            assert ("new" in run.marks) == (run.new > 0)
            parts = [other.blocks for other in alive(before)]
            stayed = run.blocks[: len(run.blocks) - run.new]
            if not ghosts and stayed:
                assert ("split" in run.marks) == (stayed not in parts)
        found = [block for run in moment.runs if "found" in run.marks for block in run.blocks]
        asks = re.match(r"(.*) asks for .*: (\d+) found", moment.said)
        if asks:
            assert len(found) * moment.block_size == int(asks[2]) == moment.found - before.found
            assert tuple(found) == moment.tables[asks[1]]


@few
@seeds
def test_what_goes_next_is_what_is_evicted_next(seed, size):
    teller = Teller(seed, *size)
    for _ in range(25):
        teller.step()
        story = deepcopy(teller.story)
        (coming,) = [run for run in story.moments[-1].runs if run.next] or [None]
        story.evict(1)
        ghosts = [run for run in story.moments[-1].runs if run.blocks and "evicted" in run.marks]
        assert bool(ghosts) == (coming is not None)
        if coming:
            assert ghosts[0].blocks == coming.blocks[-1:]
            assert (path(story.moments[-1], ghosts[0])[1])[-1] == coming.tokens[-1]


@few
@seeds
def test_locks_have_the_names_of_those_who_have_them(seed, size):
    teller = Teller(seed, *size)
    story = teller.story
    for _ in range(30):
        teller.step()
        moment = story.moments[-1]
        for run in alive(moment):
            home, tokens = path(moment, run)
            users = [
                name
                for name, table in story.tables.items()
                if tuple(story.texts[name][: table.prefix.tokens])[: len(tokens)] == tokens
                and home == root_of(table)
            ]
            assert list(run.locked) == users and run.locks == len(users)
        outside = {
            name: table.blocks[table.prefix.tokens // moment.block_size :]
            for name, table in story.tables.items()
        }
        assert {each.name: list(each.blocks) for each in moment.beside} == {
            n: b for n, b in outside.items() if b
        }


def root_of(table):
    node = table.prefix.place
    while node.parent is not None:
        node = node.parent
    return node.namespace


TOLD = """The tree is empty.
A asks for 10 tokens: 0 found, 10 to compute.
A computes 12 tokens: 4 blocks new in the tree.
B asks for 10 tokens: 6 found, 4 to compute.
B computes 7 tokens: 2 blocks new in the tree, 1 token in a block that is not full.
A ends: 2 blocks have no owner now and are kept.
C asks for 14 tokens: 12 found, 2 to compute.
C computes 5 tokens: 1 block new in the tree, 2 tokens in a block that is not full.
B ends: 2 blocks have no owner now and are kept; 1 block outside the tree is free.
D asks for 4 tokens: 0 found, 4 to compute.
D computes 4 tokens: 1 block new in the tree, 1 token in a block that is not full.
C ends: 5 blocks have no owner now and are kept; 1 block outside the tree is free.
D ends: 1 block has no owner now and is kept; 1 block outside the tree is free.
E asks for 13 tokens: 0 found, 13 to compute.
1 block evicted to make room. E computes 13 tokens: 4 blocks new in the tree, \
1 token in a block that is not full.
2 blocks evicted, from the ends of 2 runs."""


def test_every_operation_is_told():
    story = ten()
    assert [moment.said for moment in story.moments] == TOLD.splitlines()
    assert story.born == ("A", "B", "C", "D", "E") == story.moments[-1].born
    assert story.moments[3].born == ("A", "B")


def test_two_that_compute_the_same_meet_in_one_run():
    story = Story(RadixTree(BlockPool(9, 2)))
    for name in "AB":
        story.request(name, [1, 2, 3, 4, 5])
    story.store("A")
    story.store("B")
    said = "B computes 5 tokens: 0 blocks new in the tree, 2 blocks were there already"
    assert story.moments[-1].said.startswith(f"{said} (its own copy is let go), 1 token in a block")
    (run,) = [run for run in story.moments[-1].runs if run.blocks]
    assert (run.marks, run.locked, run.words) == (("found",), ("A", "B"), ("1 ", "2 ", "3 ", "4 "))
    story.end("A")
    said = "A ends: others have locked all that it had in the tree; 1 block outside the tree is free."
    assert story.moments[-1].said == said


def test_only_what_was_stored_meanwhile_is_found_by_a_store():
    story = Story(RadixTree(BlockPool(9, 2)))
    for name in "ABC":
        story.request(name, [1, 2, 3, 4, 5])
        story.store(name, [1, 2] if name == "A" else [1, 2, 3, 4])
    story.store("A", [1, 2, 3, 4])
    assert [run.marks for run in story.moments[-1].runs] == [(), (), ("found",)]


def test_what_was_evicted_hangs_on_a_run_that_grew_over_its_beginning():
    story = Story(RadixTree(BlockPool(3, 2)))
    story.request("A", [1, 2])
    story.store("A")
    story.request("B", [1, 2, 3, 4])
    story.store("B")
    story.end("B")
    story.store("A", [1, 2, 5, 6, 7, 8])
    _, run, ghost = story.moments[-1].runs
    assert (run.tokens, run.new, run.marks) == ((1, 2, 5, 6, 7, 8), 2, ("new",))
    assert (ghost.tokens, ghost.parent, ghost.marks) == ((3, 4), 1, ("evicted",))


def test_a_long_text_is_quoted_in_part():
    story = Story(RadixTree(BlockPool(9, 8)))
    story.request("A", range(10**6, 10**6 + 8))
    story.store("A")
    story.end("A")
    story.evict()
    assert story.moments[-1].said == "1 block evicted: “1000000 1000001 1000002 1000003 1000004…”."


def test_small_ends_and_evictions_are_told():
    story = Story(RadixTree(BlockPool(9, 2)))
    said = lambda: story.moments[-1].said  # noqa: E731
    assert story.evict(3) == 0 and said() == "Nothing is evicted: the tree is empty."
    story.request("A", [1])
    story.end("A")
    assert said() == "A ends: it had nothing."
    story.request("A", [1, 2, 3, 4])
    story.store("A")
    assert story.evict(3) == 0 and said() == "Nothing is evicted: all that is in the tree is locked."
    assert story.evict(0) == 0 and said() == "Nothing is to be evicted."
    story.end("A")
    assert story.evict() == 1 and said() == "1 block evicted: “3 4”."
    assert story.evict(9) == 1 and story.tree.num_blocks == 0
    (root, ghost) = story.moments[-1].runs
    assert ghost.parent == 0 and root.marks == ghost.marks == ("evicted",)


def test_the_last_token_is_computed_unless_the_reader_says_otherwise():
    story = Story(RadixTree(BlockPool(9, 2)))
    story.request("A", [1, 2, 3, 4])
    story.store("A")
    assert story.request("B", [1, 2, 3, 4]).found == 2
    assert story.request("C", [1, 2, 3, 4], most=4).found == 4
    assert story.request("D", [1, 2, 3, 4, 5]).found == 4
    assert story.request("E", [1, 2, 3, 4, 5], namespace="other").found == 0
    assert story.request("F", []).found == 0


def test_what_is_important_is_evicted_later():
    story = Story(RadixTree(BlockPool(9, 2)))
    for name, priority in (("A", 1), ("B", 0)):
        story.request(name, [ord(name)] * 4)
        story.store(name, priority=priority)
        story.end(name)
    assert [run.priority for run in story.moments[-1].runs if run.blocks] == [1, 0]
    story.evict(2)
    assert [run.tokens for run in alive(story.moments[-1]) if run.blocks] == [(65,) * 4]


@pytest.mark.parametrize("stored", [False, True])
def test_a_text_that_does_not_fit_changes_nothing(stored):
    story = Story(RadixTree(BlockPool(4, 2)))
    story.request("A", [1, 2, 3, 4])
    story.store("A")
    story.request("B", [1, 2, 9, 9, 9, 9, 9])
    if stored:
        store(story.tree, [7] * 2)
    before = all_of(story)
    with pytest.raises(OutOfBlocks, match="3 blocks are needed"):
        story.store("B")
    assert all_of(story) == before
    story.store("B", [1, 2, 9, 9, 9, 9])
    assert ("evicted to make room" in story.moments[-1].said) == stored


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda story: story.request("A", [1]), "A runs: let it end first"),
        (lambda story: story.request("B", [1, 1.5, 2]), "tokens are ids"),
        (lambda story: story.store("B"), "no request B runs; there are A"),
        (lambda story: story.end("B"), "no request B runs; there are A"),
        (lambda story: story.store("A", [2] * 9), "A has 4 tokens already, and this text has others"),
        (lambda story: story.store("A", [1] * 3), "A has 4 tokens already, and this text has others"),
        (lambda story: story.evict(-1), "-1 blocks cannot be evicted"),
    ],
)
def test_what_makes_no_sense_is_refused_and_not_recorded(wrong, said):
    story = Story(RadixTree(BlockPool(4, 2)))
    story.request("A", [1] * 4)
    story.store("A")
    before = all_of(story)
    with pytest.raises(ValueError, match=said):
        wrong(story)
    assert all_of(story) == before


def test_a_tree_that_has_something_begins_with_it_and_its_locks_are_others():
    tree = RadixTree(BlockPool(9, 4))
    store(tree, text(1, 2))
    tree.lock(tree.match(text(1)))
    story = Story(tree)
    assert story.moments[0].said == "There is a tree of 2 blocks."
    assert [(run.locks, run.locked) for run in story.moments[0].runs] == [(1, ()), (1, ()), (0, ())]
    with pytest.raises(ValueError, match="spell gives 1 texts for 4 tokens"):
        Story(tree, lambda tokens: ["one"] * bool(tokens))
