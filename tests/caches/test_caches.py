"""What caches promise beyond equality: sizes, refusals, and nothing left behind."""

from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import CacheOverflow, GrowingCache, NoCache, PagedCache, StaticCache
from tests.models import SMALL, random_ids, random_model

KV_BYTES = 2 * SMALL.num_layers * SMALL.num_kv_heads * SMALL.head_dim * 8  # K and V, float64, one token
STORING = [GrowingCache, StaticCache, PagedCache]
ALL = [NoCache, *STORING]


@pytest.fixture
def model():
    return random_model()


def test_bytes_count_kv_heads_and_not_query_heads(model):
    growing, static = GrowingCache(SMALL), StaticCache(SMALL, capacity=50)
    for cache in (growing, static):
        model(random_ids(7), cache)
    assert growing.nbytes == 7 * KV_BYTES
    assert static.nbytes == 50 * KV_BYTES
    growing.truncate(3)
    assert growing.nbytes == 3 * KV_BYTES


def test_a_decode_step_hands_one_token_to_the_model(model):
    seen = []
    model.embed_tokens.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    list(kvlab.generate(model, random_ids(9), max_new_tokens=5))
    assert seen == [9, 1, 1, 1, 1]


def test_no_cache_stores_nothing(model):
    cache = NoCache(SMALL)
    model(random_ids(7), cache)
    assert (cache.length, cache.nbytes) == (0, 0)


def test_rows_are_independent_texts(model):
    """Training's packed rows: each row's logits are those of the row alone."""
    ids = random_ids(15)
    together = model(ids, NoCache(SMALL, rows=3))
    alone = torch.cat([model(row, NoCache(SMALL)) for row in ids.split(5)])
    assert (together - alone).abs().max() < 1e-12
    with pytest.raises(ValueError, match="15 tokens cannot be 4 rows"):
        model(ids, NoCache(SMALL, rows=4))
    with pytest.raises(ValueError, match="rows is 0"):
        NoCache(SMALL, rows=0)


@pytest.mark.parametrize("cache_type", ALL)
def test_no_cache_in_the_state_dict_and_none_in_the_model(model, cache_type):
    before = set(model.state_dict())
    model(random_ids(4), cache_type(SMALL))
    assert set(model.state_dict()) == before
    first = model(random_ids(4), cache_type(SMALL))
    assert torch.equal(first, model(random_ids(4), cache_type(SMALL)))  # nothing carried over between caches


def test_overflow_names_the_sizes_and_stores_nothing(model):
    cache = StaticCache(SMALL, capacity=10)
    model(random_ids(8), cache)
    with pytest.raises(CacheOverflow, match="8 tokens stored and 3 new ones make 11, but .* room for 10"):
        model(random_ids(3), cache)
    assert cache.length == 8
    got = model(random_ids(2, seed=1), cache)
    expected = model(torch.cat([random_ids(8), random_ids(2, seed=1)]), NoCache(SMALL))[-2:]
    assert (got - expected).abs().max() < 1e-10


@pytest.mark.parametrize("capacity", [0, -1])
def test_capacity_must_hold_a_token(capacity):
    with pytest.raises(ValueError, match="at least one token"):
        StaticCache(SMALL, capacity=capacity)


@pytest.mark.parametrize("cache_type", ALL)
def test_truncate_refuses_to_invent_tokens(model, cache_type):
    cache = cache_type(SMALL)
    model(random_ids(4), cache)
    for n in (-1, cache.length + 1):
        with pytest.raises(ValueError, match=f"cannot keep {n} tokens"):
            cache.truncate(n)


def shaped(n=2, heads=SMALL.num_kv_heads, dim=SMALL.head_dim, dtype=torch.float64):
    return torch.zeros(n, heads, dim, dtype=dtype)


@pytest.mark.parametrize("cache_type", ALL)
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("q", shaped(heads=SMALL.num_kv_heads)),
        ("k", shaped(heads=SMALL.num_heads)),
        ("k", shaped(dim=4)),
        ("v", shaped(n=3)),
        ("v", shaped(dim=4)),
    ],
)
def test_wrong_shapes_are_named(cache_type, name, wrong):
    right = {"q": shaped(heads=SMALL.num_heads), "k": shaped(), "v": shaped()}
    cache = cache_type(SMALL)
    with pytest.raises(ValueError, match=rf"{name} has shape \[.*\]; this layer's is \["):
        cache.attend(0, **(right | {name: wrong}))
    assert cache.nbytes == 0


@pytest.mark.parametrize("cache_type", ALL)
def test_one_dtype_for_queries_keys_and_values(cache_type):
    q, k, v = shaped(heads=SMALL.num_heads), shaped(), shaped(dtype=torch.float32)
    with pytest.raises(TypeError, match="v is torch.float32 and k is torch.float64"):
        cache_type(SMALL).attend(0, q, k, v)


@pytest.mark.parametrize("cache_type", STORING)
def test_a_cache_keeps_the_dtype_of_its_first_tokens(cache_type):
    cache = cache_type(SMALL)
    random_model(dtype=torch.float64)(random_ids(3), cache)
    with pytest.raises(TypeError, match="holds torch.float64 .* torch.float32"):
        random_model(dtype=torch.float32)(random_ids(3), cache)


@pytest.mark.parametrize("cache_type", ALL)
def test_attend_refuses_no_tokens_and_unknown_layers(cache_type):
    cache = cache_type(SMALL)
    with pytest.raises(ValueError, match="at least one"):
        cache.attend(0, shaped(0, SMALL.num_heads), shaped(0), shaped(0))
    with pytest.raises(IndexError, match="layer 3 of a model with layers 0 to 2"):
        cache.attend(3, shaped(heads=SMALL.num_heads), shaped(), shaped())


@pytest.mark.parametrize("cache_type", ALL)
@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"v": None}, TypeError, "v is NoneType; it must be a tensor"),
        ({"k": [[1.0]]}, TypeError, "k is list"),
        (
            {"q": shaped(heads=SMALL.num_heads).long()},
            TypeError,
            "q is torch.int64; it must be a tensor of fl",
        ),
        ({"k": torch.tensor(1.0)}, ValueError, r"k has shape \[\]; it must be \[tokens, heads, size\]"),
        ({"k": shaped().to("meta")}, ValueError, "on cpu and k on meta: one device for all three"),
    ],
)
def test_what_is_no_tensor_of_numbers_is_named(cache_type, wrong, error, says):
    right = {"q": shaped(heads=SMALL.num_heads), "k": shaped(), "v": shaped()}
    with pytest.raises(error, match=says):
        cache_type(SMALL).attend(0, **(right | wrong))


@pytest.mark.parametrize("cache_type", STORING)
def test_advance_counts_what_was_stored_and_nothing_else(cache_type):
    cache = cache_type(SMALL)
    with pytest.raises(ValueError, match="cannot advance by 3: 0 new tokens"):
        cache.advance(3)
    cache.attend(0, shaped(heads=SMALL.num_heads), shaped(), shaped())
    with pytest.raises(ValueError, match="cannot advance by 3: 2 new tokens"):
        cache.advance(3)
    cache.advance(2)
    with pytest.raises(ValueError, match="0 new tokens"):
        cache.advance(2)
    assert cache.length == 2


@pytest.mark.parametrize("cache_type", STORING)
def test_a_cache_owns_its_tensors(cache_type):
    """What the caller does with its keys afterwards changes neither the cache nor its forks."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, 8, generator=generator, dtype=torch.float64)
    expected = cache_type(SMALL).attend(0, q, k, v)
    cache = cache_type(SMALL)
    for layer in range(SMALL.num_layers):
        cache.attend(layer, q, k, v)
    cache.advance(2)
    fork, again = cache.fork(), k.clone()
    k.zero_()
    v_was = v.clone()
    v.zero_()
    for each in (cache, fork):
        each.truncate(1)
        assert (each.attend(0, q[1:], again[1:], v_was[1:]) - expected[1:]).abs().max() < 1e-12


@pytest.mark.parametrize("cache_type", STORING)
def test_an_emptied_cache_takes_another_dtype(cache_type):
    cache = cache_type(SMALL)
    random_model(dtype=torch.float64)(random_ids(3), cache)
    cache.truncate(0)
    logits = random_model(dtype=torch.float32)(random_ids(3), cache)
    expected = random_model(dtype=torch.float32)(random_ids(3), NoCache(SMALL))
    assert logits.dtype == torch.float32 and (logits - expected).abs().max() < 1e-5


@pytest.mark.parametrize("n", [2.5, "2", None])
def test_truncate_takes_whole_numbers(model, n):
    cache = StaticCache(SMALL)
    model(random_ids(4), cache)
    with pytest.raises(TypeError):
        cache.truncate(n)
    assert cache.length == 4


@pytest.mark.parametrize("capacity", [301, 10**12])
def test_no_more_room_than_the_model_can_use(capacity):
    with pytest.raises(ValueError, match=f"capacity is {capacity}; .* at most for the model's 300"):
        StaticCache(SMALL, capacity=capacity)


@pytest.mark.parametrize("cache_type", ALL)
def test_a_cache_is_made_from_a_config(cache_type, model):
    with pytest.raises(TypeError, match="built from a model's config, and not from Decoder"):
        cache_type(model)


def test_a_cache_of_another_model_is_refused(model):
    other = replace(SMALL, windows=(4, None, 4))
    with pytest.raises(ValueError, match="made for a model of another shape"):
        model(random_ids(3), GrowingCache(other))
    with pytest.raises(TypeError, match="cache is NoneType; give one of kvlab.caches"):
        model(random_ids(3), None)
    model(random_ids(3), GrowingCache(replace(SMALL)))  # an equal config will do
