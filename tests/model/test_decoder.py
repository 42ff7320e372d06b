"""The decoder alone: refusals, and the parts whose loss must not go unnoticed."""

import pytest
import torch

from kvlab.caches import GrowingCache, NoCache
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model


@pytest.fixture
def model():
    return random_model()


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        (torch.tensor([], dtype=torch.int64), ValueError, "at least one token"),
        (torch.tensor([[1, 2]]), ValueError, r"shape \[1, 2\]; it must be \[N\]"),
        (torch.tensor([1, 37]), ValueError, "token id 37 is outside the vocabulary: 0 to 36"),
        (torch.tensor([-1, 3]), ValueError, "token id -1 is outside the vocabulary: 0 to 36"),
        (torch.tensor([1.0]), TypeError, "torch.float32; it must be a tensor of int64"),
        (torch.tensor([1], dtype=torch.int32), TypeError, "torch.int32; it must be a tensor of int64"),
        ([1, 2], TypeError, "token_ids is list"),
    ],
)
def test_bad_token_ids(model, ids, error, says):
    with pytest.raises(error, match=says):
        model(ids, NoCache(SMALL))


def test_rows(model):
    ids = random_ids(5)
    whole = model(ids, NoCache(SMALL))
    assert whole.shape == (5, SMALL.vocab_size)
    last = model(ids, NoCache(SMALL), rows="last")
    assert last.shape == (1, SMALL.vocab_size)
    assert (last[0] - whole[-1]).abs().max() < 1e-12
    with pytest.raises(ValueError, match="rows is 'first'"):
        model(ids, NoCache(SMALL), rows="first")


def test_positions_end_where_the_model_ends(model):
    with pytest.raises(ValueError, match="position 300 is past the model's 300 positions"):
        model(random_ids(301), NoCache(SMALL))
    cache = GrowingCache(SMALL)
    model(random_ids(300), cache)
    with pytest.raises(ValueError, match="past the model's 300 positions"):
        model(random_ids(1), cache)
    assert cache.length == 300


@pytest.mark.parametrize("config", [SMALL, ABSORBED, NAIVE])
def test_nothing_is_computed_below_the_inputs_dtype(config):
    """Every floating tensor that an operation makes is float64 (indices and masks aside)."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    seen.add(tensor.dtype)
            return out

    model = random_model(config)
    with Watch():
        model(random_ids(5), NoCache(config))
    assert seen == {torch.float64}


def test_16_bit_weights_do_not_round_the_rotary_frequencies(model):
    before = model.frequencies.clone()
    model.to(torch.bfloat16)
    assert torch.equal(model.frequencies, before)
    assert model(random_ids(4), NoCache(SMALL)).dtype == torch.bfloat16
