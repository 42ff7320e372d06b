"""A configuration that cannot be is refused when it is made."""

import math
from dataclasses import replace

import pytest

from kvlab.model.config import RopeScaling
from tests.models import SMALL


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_kv_heads": 4}, "6 query heads cannot share 4 KV heads"),
        ({"head_dim": 7}, "head_dim is 7; .* even"),
        ({"num_layers": 0}, "num_layers is 0; it must be a positive integer"),
        ({"vocab_size": 3.5}, "vocab_size is 3.5"),
        ({"num_heads": True}, "num_heads is True; it must be a positive integer"),
        ({"windows": (4, 2.0, None)}, "a window holds .* whole tokens"),
        ({"windows": (4, True, None)}, "a window holds .* whole tokens"),
        ({"windows": (4,)}, "1 windows for 3 layers"),
        ({"windows": (4, 0, None)}, "a window holds at least the token itself"),
    ],
)
def test_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("scaling", "says"),
    [
        (("linear", 0.0), "factor is 0.0; it must be above 0"),
        (("linear", math.nan), "factor is nan; it must be above 0"),
        (("llama3", 8.0, 4.0, 4.0, 8192), "low_freq_factor 4.0 must be below its high_freq_factor 4.0"),
    ],
)
def test_a_scaling_that_cannot_be(scaling, says):
    with pytest.raises(ValueError, match=says):
        RopeScaling(*scaling)


def test_each_layer_tells_the_cache_what_it_hands_over():
    config = replace(SMALL, windows=(None, 5, None))
    spec = config.layer_kv(1)
    assert (spec.num_kv_heads, spec.key_dim, spec.value_dim, spec.window) == (2, 8, 8, 5)
    assert spec.scale == 1 / math.sqrt(8)
    assert config.layer_kv(0).window is None
