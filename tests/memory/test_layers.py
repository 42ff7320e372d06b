"""Each kind of layer against rows kept and dropped one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlab.memory import FORMATS, Attention, Compressed, Latent, Layer, Shared, State
from kvlab.memory.layers import heads_on_rank
from tests.memory import specs
from tests.memory.specs import few

BF16 = FORMATS["bf16"]


def held(layer, tokens, form, ranks):
    """The simulation's answer: rows that it kept, times a row's bytes put together anew."""
    rows, packed = specs.alive(layer, tokens)
    index = layer.index_dim + 4 if layer.index_dim else 0
    if isinstance(layer, Compressed):
        return rows * form.row_bytes(layer.dim) + packed * (form.row_bytes(layer.dim) + index)
    if isinstance(layer, Latent):
        return rows * (form.row_bytes(layer.key_dim) + index)
    if isinstance(layer, Attention):
        heads = len(specs.heads_of(0, ranks, 16, layer.kv_heads))
        return rows * (heads * (form.row_bytes(layer.key_dim) + form.row_bytes(layer.value_dim)) + index)
    return layer.state_bytes(ranks)


@few
@given(specs.any_layer, specs.tokens, specs.formats, specs.ranks)
def test_held_bytes_are_the_rows_that_a_simulation_keeps(layer, tokens, form, ranks):
    form = FORMATS[form]
    assert layer.held_bytes(tokens, form, ranks) == held(layer, tokens, form, ranks)


@few
@given(specs.any_layer, specs.tokens, specs.formats, specs.ranks)
def test_one_more_token(layer, tokens, form, ranks):
    """slope is what it adds, and on average so where rows are compressed."""
    form = FORMATS[form]

    def now(n):
        return layer.held_bytes(n, form, ranks)

    if isinstance(layer, Compressed):
        packed = now(tokens + layer.window + 2 * 16) - now(tokens + layer.window)  # 16: whole rows of each
        exact = packed / 32
        assert exact - 1 < layer.slope(tokens + layer.window, form, ranks) <= exact
        return
    assert now(tokens + 1) - now(tokens) == layer.slope(tokens, form, ranks)
    assert now(tokens) == tokens * layer.slope(tokens, form, ranks) + layer.flat_bytes(tokens, form, ranks)
    assert layer.grows == (layer.slope(10**9, form, ranks) > 0)


def test_a_window_grows_until_it_is_full():
    layer, row = Attention(2, 64, 64, window=10), 2 * 2 * 64 * 2
    assert [layer.slope(tokens, BF16) for tokens in (0, 9, 10, 11)] == [row, row, 0, 0]
    assert [layer.flat_bytes(tokens, BF16) for tokens in (0, 9, 10, 11)] == [0, 0, 10 * row, 10 * row]


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 12])
def test_kv_heads_of_a_rank(kv_heads, ranks):
    """Those of its own query heads: shared out, or copied where ranks exceed them."""
    needed = [len(specs.heads_of(rank, ranks, 12, kv_heads)) for rank in range(ranks)]
    if kv_heads % ranks and ranks % kv_heads:
        with pytest.raises(ValueError, match=f"{kv_heads} KV heads .* over {ranks} ranks.*choose a tp"):
            heads_on_rank(kv_heads, ranks)
    else:
        assert needed == [heads_on_rank(kv_heads, ranks)] * ranks


def test_mla_is_whole_on_every_rank_and_stored_once():
    layer = Latent(1, 512 + 64, 512, naive_dims=(192, 128))
    assert [layer.held_bytes(10, BF16, ranks) for ranks in (1, 2, 16)] == [10 * 576 * 2] * 3
    assert layer.held_bytes(10, FORMATS["q8_0"], 1) == 10 * (576 // 32 * 34)


@few
@given(specs.attentions, specs.tokens, specs.formats)
def test_a_layer_that_shares_holds_nothing_and_reads_all(owner, tokens, form):
    layer, form = Shared(owner), FORMATS[form]
    assert (
        layer.held_bytes(tokens, form) == layer.row_bytes(form) == layer.padding(tokens, form, 1, 16)[0] == 0
    )
    assert layer.read_bytes(tokens, form) == owner.read_bytes(tokens, form) == owner.held_bytes(tokens, form)
    assert layer.visible(tokens) == owner.visible(tokens) and layer.row_flops(16) == owner.row_flops(16)


def test_an_indexer_reads_all_its_keys_and_few_rows():
    layer = Latent(1, 96, 64, index_dim=24, index_topk=9)
    assert layer.held_bytes(100, BF16) == 100 * (96 * 2 + 24 + 4)
    assert layer.read_bytes(100, BF16) == 9 * 96 * 2 + 100 * (24 + 4)
    assert layer.read_bytes(5, BF16) == 5 * 96 * 2 + 5 * (24 + 4)
    borrowed = Latent(1, 96, 64, index_topk=9)  # another layer's pick: rows few, and no key of its own
    assert borrowed.held_bytes(100, BF16) == 100 * 96 * 2
    assert borrowed.read_bytes(100, BF16) == 9 * 96 * 2


def test_compressed_rows_by_hand():
    layer = Compressed(64, 10, 4, index_dim=12, index_topk=3)
    assert layer.held_bytes(9, BF16) == 9 * 128 + 2 * (128 + 12 + 4)
    assert layer.held_bytes(41, BF16) == 10 * 128 + 10 * (128 + 12 + 4)
    assert layer.read_bytes(41, BF16) == (10 + 3) * 128 + 10 * (12 + 4)
    assert Compressed(64, 10).held_bytes(41, BF16) == 10 * 128


def test_a_layer_of_nothing():
    layer = Layer()
    assert layer.kind == "no attention" and not layer.grows
    assert (
        layer.held_bytes(1000, BF16)
        == layer.read_bytes(1000, BF16)
        == layer.visible(1000)
        == layer.row_flops(16)
        == 0
    )


STATE = State(6, 60, 3, 240, BF16, FORMATS["fp32"], groups=2, group_channels=14)


def test_a_state_by_hand():
    """3 columns of 60 channels and of 14 for each of 2 groups in bf16, 240 values in fp32."""
    assert STATE.state_bytes() == 3 * (60 + 2 * 14) * 2 + 240 * 4
    assert STATE.held_bytes(1, BF16) == STATE.held_bytes(10**6, FORMATS["fp8"]) == STATE.state_bytes()
    assert STATE.state_bytes(2) == 3 * (30 + 14) * 2 + 120 * 4
    assert STATE.state_bytes(3) == 3 * (20 + 14) * 2 + 80 * 4  # two groups on three ranks: one each, copied
    with pytest.raises(ValueError, match="6 heads of a recurrent state .* over 4 ranks: choose a tp"):
        STATE.state_bytes(4)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "8", None])
@pytest.mark.parametrize("name", ["kv_heads", "key_dim", "value_dim", "window"])
def test_sizes_of_attention_are_positive_whole_numbers(name, size):
    if name == "window" and size is None:
        return
    with pytest.raises((TypeError, ValueError), match=f"{name} is .*must be"):
        Attention(**{"kv_heads": 2, "key_dim": 8, "value_dim": 8} | {name: size})


@few
@given(st.integers(1, 200), st.integers(1, 60))
def test_a_window_longer_than_the_text_changes_nothing(tokens, more):
    wide, full = Attention(2, 64, 64, window=tokens + more), Attention(2, 64, 64)
    for what in ("held_bytes", "read_bytes", "slope", "flat_bytes"):
        assert getattr(wide, what)(tokens, BF16) == getattr(full, what)(tokens, BF16)
