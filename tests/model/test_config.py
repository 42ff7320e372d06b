"""A configuration that cannot be is refused when it is made."""

import math
from dataclasses import replace

import pytest

from kvlab.model.config import LatentSizes, RopeScaling
from tests.models import ABSORBED, NAIVE, SMALL

YARN = RopeScaling("yarn", 40.0, original_max_positions=4096, mscale=0.707, mscale_all_dim=0.707)


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
        ({"rope_scaling": YARN, "rope_theta": 1.0}, "rope_theta is 1.0; YaRN needs .* above 1"),
        (
            {"latent": ABSORBED.latent},
            "num_kv_heads is num_heads 6 and head_dim nope_dim .* 14; they are 2 and 8",
        ),
    ],
)
def test_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_kv_heads": 1}, "with a latent, num_kv_heads is num_heads 6"),
        ({"head_dim": 16}, "head_dim nope_dim .* 14; they are 6 and 16"),
        ({"qk_norm": True}, "with a latent there is no qk_norm"),
        ({"qkv_bias": True}, "no qkv_bias"),
        ({"output_bias": True}, "no output_bias"),
    ],
)
def test_refused_with_a_latent(change, says):
    with pytest.raises(ValueError, match=says):
        replace(ABSORBED, **change)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8"])
@pytest.mark.parametrize("name", ["rank", "nope_dim", "rope_dim", "value_dim", "query_rank"])
def test_sizes_of_a_latent_are_positive_integers(name, value):
    sizes = replace(ABSORBED.latent, **{name: value})
    with pytest.raises(ValueError, match=f"latent.{name} is .*; it must be a positive integer"):
        replace(ABSORBED, latent=sizes)


def test_only_queries_may_go_unsqueezed_and_pairs_are_whole():
    assert replace(ABSORBED, latent=replace(ABSORBED.latent, query_rank=None)).latent.query_rank is None
    with pytest.raises(ValueError, match="latent.rank is None"):
        replace(ABSORBED, latent=replace(ABSORBED.latent, rank=None))
    odd = LatentSizes(rank=12, nope_dim=10, rope_dim=5, value_dim=7)
    with pytest.raises(ValueError, match="latent.rope_dim is 5; .* even"):
        replace(ABSORBED, head_dim=15, latent=odd)
    even = LatentSizes(rank=12, nope_dim=9, rope_dim=4, value_dim=7)
    assert replace(ABSORBED, head_dim=13, latent=even).rope_dim == 4  # only what is turned comes in pairs


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"factor": 0.0}, "factor is 0.0"),
        ({"original_max_positions": 0}, "original_max_positions is 0; YaRN needs it above 0"),
        ({"beta_slow": 0.0}, "beta_slow 0.0 must be above 0"),
        ({"beta_slow": 33.0}, "beta_slow 33.0 must be .* not above beta_fast 32.0"),
        ({"beta_fast": math.nan}, "not above beta_fast nan"),
        ({"mscale": -1.0}, "mscale is -1.0 .* neither is below 0"),
        ({"mscale_all_dim": math.nan}, "mscale_all_dim nan; neither is below 0"),
    ],
)
def test_a_yarn_that_cannot_be(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(YARN, **changes)


def test_how_much_yarn_sharpens():
    """0.1 x strength x ln(factor) + 1, by cos and sin or by the scores (Peng et al. 2023, equation 22)."""
    plain = replace(YARN, mscale=0.0, mscale_all_dim=0.0)
    assert plain.amplitude == pytest.approx(0.1 * math.log(40) + 1)
    assert plain.score_factor == 1.0
    assert YARN.amplitude == 1.0  # DeepSeek-V2 and V3: all of it is in the scores
    assert YARN.score_factor == pytest.approx((0.0707 * math.log(40) + 1) ** 2)
    assert replace(YARN, mscale=1.0).amplitude == pytest.approx(
        (0.1 * math.log(40) + 1) / (0.0707 * math.log(40) + 1)
    )
    for scaling in (RopeScaling(), RopeScaling("linear", 4.0), replace(YARN, factor=1.0)):
        assert (scaling.amplitude, scaling.score_factor) == (1.0, 1.0)


def test_each_layer_tells_the_cache_what_it_hands_over():
    config = replace(SMALL, windows=(None, 5, None))
    spec = config.layer_kv(1)
    assert (spec.num_kv_heads, spec.key_dim, spec.value_dim, spec.window) == (2, 8, 8, 5)
    assert spec.scale == 1 / math.sqrt(8)
    assert config.layer_kv(0).window is None


def test_a_latent_layer_tells_the_cache_what_it_hands_over():
    """Absorbed: one latent and its rope key, in which the values are. The scale is the original heads'."""
    spec = ABSORBED.layer_kv(1)
    assert (spec.num_kv_heads, spec.key_dim, spec.value_dim, spec.values_in_keys) == (1, 16, 12, True)
    naive = NAIVE.layer_kv(1)
    assert (naive.num_kv_heads, naive.key_dim, naive.value_dim, naive.values_in_keys) == (6, 14, 7, False)
    assert spec.scale == naive.scale == 1 / math.sqrt(14)
    sharper = replace(ABSORBED, rope_scaling=YARN, windows=(None, 5, None)).layer_kv(1)
    assert sharper.scale == pytest.approx(YARN.score_factor / math.sqrt(14))
    assert sharper.window == 5
