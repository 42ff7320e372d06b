"""Stepping through a story of a radix tree and evicting more of it; how much is found of a workload."""

import re
from html import unescape

import pytest

from kvlab.engine.users import agents, chat, few_shot, talk
from kvlab.paging import BlockHashes, BlockPool, OutOfBlocks, RadixTree, Replay, Story
from kvlab.viz.prefix import stops
from kvlab.viz.prefix.words import described
from kvlab.widgets import prefix
from kvlab.widgets.prefix import CACHES, POOLS, HitRateExplorer, RadixStepper, beginnings, hits
from tests.paging.prefix_cases import everything_is_right
from tests.paging.stories import ten, told
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")


def drawn(page):
    """What an answer's picture says to a screen reader."""
    return unescape(re.search("<svg.*?<title>(.*?)</title>", page).group(1))


def shows(widget, moment):
    return drawn(field(widget, "kv-answer").value) == described(moment)


def test_the_slider_shows_a_moment():
    story = ten()
    widget, first = live(RadixStepper(story))
    assert drawn(first) == described(story.moments[0]) and "kv-radix-stepper" in widget._dom_classes
    slider = field(widget, "kv-moment")
    assert (slider.min, slider.max) == (0, 15)
    pages = set()
    for number in reversed(range(16)):
        slider.value = number
        pages.add(field(widget, "kv-answer").value)
        assert shows(widget, story.moments[number])
    assert len(pages) == 16
    _, page = live(RadixStepper(story, at=4))
    assert drawn(page) == described(story.moments[4])


def test_buttons_go_one_on_and_one_back_and_stop_at_the_ends():
    story = ten()
    widget, _ = live(RadixStepper(story, at=14))
    slider = field(widget, "kv-moment")
    field(widget, "kv-next").click()
    assert slider.value == 15 and field(widget, "kv-next").disabled
    for _ in range(15):
        field(widget, "kv-previous").click()
    assert slider.value == 0 and field(widget, "kv-previous").disabled and shows(widget, story.moments[0])


def test_the_drawing_does_not_become_less_high():
    page = RadixStepper(ten())
    heights = [
        int(re.search(r'<svg[^>]* height="(\d+)', page.page(number)).group(1)) for number in (3, 14, 1)
    ]
    assert heights[1] == heights[2] > heights[0]


@pytest.mark.parametrize("seed", [None, 3, 4])
def test_the_button_goes_on_with_the_story_until_nothing_can_be_evicted(seed):
    story = ten() if seed is None else told(seed)
    count, pool = len(story.moments), story.tree.pool
    widget, _ = live(RadixStepper(story, at=2))
    button, slider = field(widget, "kv-evict"), field(widget, "kv-moment")
    for left in range(story.evictable, 0, -1):
        assert not button.disabled and field(widget, "kv-evictable").value == f"{left} can go"
        before = story.moments[-1]
        button.click()
        count += 1
        moment = story.moments[-1]
        assert slider.value == slider.max == len(story.moments) - 1 == count - 1
        assert shows(widget, moment) and field(widget, "kv-play").max == slider.max
        assert (
            moment.said.startswith("1 block evicted: “") and moment.free == before.free + 1 == pool.num_free
        )
        everything_is_right(story.tree, *story.tables.values())
    assert button.disabled and story.evictable == 0
    why = "all that is in the tree is locked" if story.tree.num_blocks else "the tree is empty"
    assert field(widget, "kv-evictable").value == f"none can go: {why}"


def test_an_empty_tree_has_nothing_to_evict():
    widget, page = live(RadixStepper(Story(RadixTree(BlockPool(4, 4)))))
    assert field(widget, "kv-evict").disabled and "The tree is empty" in drawn(page)
    assert "the tree is empty" in field(widget, "kv-evictable").value and field(widget, "kv-next").disabled


def test_what_was_told_after_the_widget_was_made_is_there_after_the_button():
    story = ten()
    widget, _ = live(RadixStepper(story))
    story.end("E")
    field(widget, "kv-evict").click()
    assert field(widget, "kv-moment").value == 17 and shows(widget, story.moments[17])


def test_without_a_kernel_there_are_a_table_and_a_picture():
    story = ten()
    page = RadixStepper(story)
    data, _ = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == page.text() and "<svg" not in data["text/html"]
    for still in (" ".join(page.text().split()), words(page.html())):
        assert "The first 10 of 15 operations on a radix tree in a pool of 12 blocks of 3 slots" in still
        for number, moment in enumerate(story.moments):
            counts = f"{moment.asked} {moment.found} {moment.held} {moment.kept} {moment.free}"
            assert (f"{number} {moment.said} {counts}" in still) == (number <= 10)
    alt = page.static_figure().alt
    assert all(described(story.moments[number]) in alt for number in stops(story))


def test_a_short_story_is_told_whole():
    story = ten()
    del story.moments[9:]
    text = " ".join(RadixStepper(story).text().split())
    assert "8 operations on a radix tree" in text and "first" not in text.partition("tree")[0]
    assert all(moment.said in text for moment in story.moments)


@pytest.mark.parametrize("at", [16, -1])
def test_a_moment_that_is_none_fails_where_it_is_written(at):
    with pytest.raises(ValueError, match=f"there is no moment {at}: the story has moments 0 to 15"):
        RadixStepper(ten(), at)


FEW = {"workload": "few-shot", "users": 4, "turn": 20, "block_size": 16, "slots": 2048, "cache": "radix"}


def requests(workload, users, turn):
    makers = {
        "few-shot": lambda: few_shot(4 * users, sets=8, question=turn),
        "chat": lambda: chat(users, turn=turn),
        "agents": lambda: agents(users, step=turn),
    }
    return talk(makers[workload]())


def by_hand(workload, users, turn, block_size, slots, cache):
    """-> (tokens asked for, saved, blocks evicted). Raises OutOfBlocks."""
    texts = requests(workload, users, turn)
    replay = Replay(
        BlockPool(slots // block_size, block_size), {"hash": BlockHashes}.get(cache, RadixTree), 4
    )
    if cache == "priority":
        replay.run([(tokens, (), 1) for tokens in beginnings([prompt for prompt, _ in texts])])
    before = replay.asked - sum(replay.found)
    replay.found.clear()
    replay.run(texts)
    return sum(len(prompt) for prompt, _ in texts), sum(replay.found) - before, replay.evicted


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("workload", ["few-shot", "chat", "agents"])
def test_what_is_found_is_what_a_replay_finds(workload, cache):
    for slots in (*POOLS, 700):
        for block_size in (16, 128):
            setting = workload, 4, 40, block_size, slots, cache
            try:
                found = by_hand(*setting)
            except OutOfBlocks:
                assert hits(*setting) is None
            else:
                assert (hits(*setting).asked, hits(*setting).saved, hits(*setting).evicted) == found


@pytest.mark.parametrize(
    ("key", "value", "asked"),
    [
        ("kv-workload", "chat", {"workload": "chat"}),
        ("kv-workload", "agents", {"workload": "agents"}),
        ("kv-users", 8, {"users": 8}),
        ("kv-turn", 80, {"turn": 80}),
        ("kv-block-size", 64, {"block_size": 64}),
        ("kv-slots", 1024, {"slots": 1024}),
        ("kv-cache", "priority", {"cache": "priority"}),
    ],
)
def test_each_field_asks_again(key, value, asked):
    widget, before = live(HitRateExplorer(**FEW))
    assert "kv-hit-rate" in widget._dom_classes
    field(widget, key).value = value
    page, setting = words(field(widget, "kv-answer").value), FEW | asked
    total, saved, _ = by_hand(**setting)
    assert f"{saved / total:.1%} of {total:,} prompt tokens found: {saved:,} saved, " in page
    assert f" {total - saved:,} computed." in page
    assert page != words(before) and "Not computed" not in page
    assert f"{setting['slots']:,} slots {saved / total:.1%}" in drawn(field(widget, "kv-answer").value)
    for cache, (name, *_) in CACHES.items():
        total, saved, evicted = by_hand(**setting | {"cache": cache})
        assert f"{name} {saved / total:.1%} {saved:,} {total - saved:,} {evicted:,}" in page


def test_what_was_asked_before_is_not_replayed(monkeypatch):
    widget, first = live(HitRateExplorer(**FEW))
    field(widget, "kv-slots").value = 1024
    monkeypatch.setattr(prefix, "Replay", None)
    field(widget, "kv-slots").value = 2048
    assert field(widget, "kv-answer").value == first and "Not computed" not in first


def test_a_pool_too_small_is_refused_and_the_last_answer_stays():
    shown = HitRateExplorer("chat", 4, 80, slots=2048)
    widget, first = live(shown)
    field(widget, "kv-slots").value = 512
    page = words(field(widget, "kv-answer").value)
    longest = max(len(prompt) + len(answer) for prompt, answer in requests("chat", 4, 80))
    assert f"the longest of these texts has {longest:,} tokens, and the pool 32 blocks of 16" in page
    assert words(shown.below(*shown.asked)) in page and longest > 512
    field(widget, "kv-slots").value = 2048
    assert field(widget, "kv-answer").value == first


def test_what_is_stored_beforehand_counts_as_computed():
    small = hits("few-shot", 2, 40, 16, 1024, "priority")
    assert small.saved < 0 and small.rate < 0
    _, page = live(HitRateExplorer("few-shot", 2, 40, slots=1024, cache="priority"))
    assert f"{small.rate:.1%} of" in words(page)


def test_beginnings_are_what_several_have_in_common():
    assert beginnings([[1, 2, 3], [1, 2, 4], [5, 6], [1, 2, 3, 9], [7], [7, 8]]) == [[1, 2], [7]]


def test_without_a_kernel_there_are_the_same_numbers():
    shown = HitRateExplorer(**FEW)
    total, saved, _ = by_hand(**FEW)
    said = f"{saved / total:.1%} of {total:,} prompt tokens found"
    for still in (shown.text(), words(shown.html())):
        assert said in still and "2,048 slots in blocks of 16" in still
    data, _ = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data and "<svg" not in data["text/html"]
    assert f"2,048 slots {saved / total:.1%}" in shown.static_figure().alt


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workload": "poetry"}, "'poetry' is not known: few-shot, chat, agents"),
        ({"cache": "lfu"}, "'lfu' is not known: radix, priority, hash"),
        ({"slots": 64}, "take more slots"),
    ],
)
def test_a_wrong_setting_fails_where_it_is_written(wrong, said):
    with pytest.raises(ValueError, match=said):
        HitRateExplorer(**FEW | wrong)
