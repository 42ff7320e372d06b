"""KV heads over ranks: a slider redraws, and the bytes are those of kvlab.memory."""

import re
from itertools import product

import pytest

from kvlab import memory
from kvlab.viz.heads import heads_over_ranks
from kvlab.widgets import HeadsOverRanks
from tests.viz.sheets import faults
from tests.widgets.live import field, live, words

pytestmark = pytest.mark.filterwarnings("error")
DIVISORS = [1, 2, 4, 8, 16, 32]


def spec(kv_heads, layers=32, head_dim=128, query_heads=32):
    return memory.ModelSpec.uniform(
        layers=layers, kv_heads=kv_heads, head_dim=head_dim, query_heads=query_heads
    )


def drawn(page):
    """What an answer's picture says to a screen reader."""
    return re.search("<svg.*?<title>(.*?)</title>", page).group(1)


def test_moving_a_slider_draws_the_ranks_and_tells_their_bytes():
    widget, _ = live(HeadsOverRanks())
    heads, ranks = field(widget, "kv-kv-heads"), field(widget, "kv-ranks")
    assert (heads.options, ranks.options) == (tuple(DIVISORS), tuple(DIVISORS))
    for kv_heads, many in product(DIVISORS, DIVISORS):
        heads.value, ranks.value = kv_heads, many
        page = field(widget, "kv-answer").value
        assert heads_over_ranks(32, kv_heads, many).title in drawn(page)
        token, text = (memory.cost(spec(kv_heads), tokens, tp=many) for tokens in (1, 4096))
        once = memory.cost(spec(kv_heads), 4096)
        copies = text.bytes_total - once.bytes_total
        copied = token.bytes_total - once.bytes_per_token
        rows = {
            "on one rank": (token.bytes_per_token, text.bytes_per_rank),
            "on all ranks together": (token.bytes_total, text.bytes_total),
            "of these, copies": (copied, copies),
        }
        for name, (each, all_tokens) in rows.items():
            assert f"{name} {each:,} {all_tokens:,} {memory.size(all_tokens)}" in words(page)
        assert (copies == 0) == (many <= kv_heads)


def test_copies_are_said_in_words():
    widget, page = live(HeadsOverRanks(kv_heads=2, ranks=8))
    assert "8 ranks for 2 KV heads: each KV head is kept 4 times" in words(page)
    field(widget, "kv-ranks").value = 1
    assert "1 rank for 2 KV heads: no KV head is kept twice" in words(field(widget, "kv-answer").value)


def test_what_does_not_fit_is_said_and_the_last_answer_stays_marked():
    widget, good = live(HeadsOverRanks(query_heads=24, kv_heads=3, ranks=6))
    field(widget, "kv-ranks").value = 4
    page = field(widget, "kv-answer").value
    assert "3 KV heads" in words(page) and 'class="kv-stale"' in page and drawn(page) == drawn(good)
    field(widget, "kv-kv-heads").value = 4
    assert 'class="kv-fresh"' in field(widget, "kv-answer").value


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kv_heads": 5}, "32 query heads cannot share 5 KV heads"),
        ({"ranks": 3}, "tp 3 does not divide the 32 query heads"),
        ({"query_heads": 24, "kv_heads": 3, "ranks": 4}, "3 KV heads can be neither"),
        ({"layers": 0}, "layers is 0"),
        ({"tokens": -1}, "tokens is -1"),
    ],
)
def test_a_wrong_argument_fails_where_it_is_written(wrong, said):
    with pytest.raises(ValueError, match=said):
        HeadsOverRanks(**wrong)


def test_without_a_kernel_there_are_a_table_and_a_picture():
    page = HeadsOverRanks(query_heads=12, kv_heads=2, ranks=6, layers=5, head_dim=7, tokens=11)
    data, _ = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == page.text() and "<svg" not in data["text/html"]
    total = memory.kv_bytes(spec(2, 5, 7, 12), 11, tp=6)
    for still in (page.text(), words(page.html())):
        assert "6 ranks for 2 KV heads: each KV head is kept 3 times." in still and f"{total:,}" in still
        assert "5 layers, heads of 7 numbers, in bf16" in still and "bytes at 11 tokens" in still
    picture = page.static_figure()
    assert faults(page.sheet(2, 6)) == [] and "12 query heads and 2 KV heads over 6 ranks" in picture.alt
