"""What latent attention keeps of a token, to scale."""

from dataclasses import replace

import pytest

from kvlab.model.config import LatentSizes
from kvlab.training.variants import VARIANTS
from kvlab.viz.latent import WIDE, anatomy, latent_anatomy
from kvlab.viz.sheet import Box
from kvlab.viz.show import BLUE, GREY, ORANGE
from tests.viz.sheets import faults

TINY = VARIANTS["tiny-mla"]


def boxes(config, *fills):
    return [thing for thing in anatomy(config).things if isinstance(thing, Box) and thing.fill in fills]


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        replace(TINY, latent=LatentSizes(700, 32, 16, 64)),
        replace(TINY, num_heads=128, num_kv_heads=128),
    ],
    ids=["tiny", "a wide latent", "many heads"],
)
def test_all_is_written_beside_and_not_over_each_other(config):
    assert not faults(anatomy(config))


def test_lengths_are_to_scale():
    (vector,), (latent,) = boxes(TINY, GREY), boxes(TINY, BLUE)
    first, *others = boxes(TINY, ORANGE)
    assert vector.width / TINY.hidden_size == pytest.approx(latent.width / 48)
    assert vector.width / TINY.hidden_size == pytest.approx(first.width / 16)
    assert len(others) == TINY.num_heads and all(other.width == first.width for other in others)
    assert max(box.x + box.width for box in boxes(TINY, ORANGE, BLUE, GREY)) <= WIDE + vector.x


def test_the_words_count_what_is_kept():
    kv = replace(TINY, absorbed=True).layer_kv(0)
    assert f"{kv.key_dim} numbers, which are cached" in latent_anatomy(TINY).alt


def test_a_model_without_a_latent_is_refused():
    with pytest.raises(ValueError, match="no latent"):
        latent_anatomy(VARIANTS["tiny-gqa"])
