"""The second tier when something goes wrong: what is lost or altered is not served, and all else is."""

import pytest

from tests.caches.tiers import (
    BLOCK,
    SIZE,
    Stepped,
    arrived,
    brought,
    computed,
    counted,
    counts,
    flip,
    some_pages,
    stored,
    text,
)

ABC = text(1, 2, 3)


@pytest.fixture
def tier():
    with Stepped(some_pages(), 8) as tier:
        yield tier


@pytest.mark.parametrize("bit", [0, 8 * BLOCK - 1, 4321])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bit_is_enough(tier, place, bit):
    """That block and what is behind it are not served; once it was computed again, all of them are."""
    stored(tier, ABC)
    home = tier.index.match(ABC).blocks[place]
    flip(tier.rows[home], bit)
    assert brought(tier, ABC) == place
    assert counted(tier) == counts(stored=3, loaded=place, corrupt=1)
    assert tier.bytes_in == (place + 1) * BLOCK
    assert tier.find(ABC) == place * SIZE
    assert brought(tier, ABC) == place and tier.corrupt == 1, "it is not read a second time"
    assert brought(tier, ABC, start=(place + 1) * SIZE) == 2 - place, "what is behind it is right"
    assert stored(tier, ABC) == 1
    assert brought(tier, ABC) == 3 and tier.pool.num_kept == 3


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("no"), MemoryError()])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_read_that_fails_is_a_miss(tier, place, error):
    stored(tier, ABC)
    home = tier.index.match(ABC).blocks[place]

    def spoil(source, target):
        if source.data_ptr() == tier.rows[home].data_ptr():
            raise error

    tier.spoil = spoil
    assert brought(tier, ABC) == place
    assert counted(tier) == counts(stored=3, loaded=place, failed=1) and tier.error is error
    assert tier.bytes_in == place * BLOCK and tier.find(ABC) == place * SIZE
    tier.spoil = None
    assert stored(tier, ABC) == 1 and brought(tier, ABC) == 3


def test_a_write_that_fails_is_never_found(tier):
    def spoil(source, target):
        if tier.stored == 1 and not tier.failed:
            raise OSError("full")

    tier.spoil = spoil
    assert stored(tier, ABC) == 3
    assert counted(tier) == counts(stored=2, failed=1) and tier.bytes_out == 2 * BLOCK
    assert tier.find(ABC) == brought(tier, ABC) * SIZE == 4
    assert stored(tier, ABC) == 1 and brought(tier, ABC) == 3


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_link_that_alters_what_it_carries(tier, way):
    """The checksum is of what was on the pages' side, so that it covers the link, both ways."""
    tier.spoil = (lambda source, target: flip(target, 99)) if way == "out" else None
    stored(tier, ABC)
    tier.spoil = (lambda source, target: flip(target, 99)) if way == "in" else None
    assert brought(tier, ABC) == 0 and tier.corrupt == 1


def test_two_loads_of_a_corrupt_block(tier):
    """The second does not read it again, whether somebody has offered it meanwhile or not."""
    stored(tier, ABC)
    flip(tier.rows[tier.index.match(ABC).blocks[1]])
    one, other = tier.fetch(ABC), tier.fetch(ABC)
    tier.step(2)
    assert one.done and (tier.corrupt, tier.bytes_in) == (1, 2 * BLOCK)
    assert tier.offer(ABC, computed(tier.pages, ABC).blocks) == 1
    tier.check()
    tier.wait()
    assert (arrived(one, ABC), arrived(other, ABC), tier.corrupt) == (1, 1, 1)
    assert brought(tier, ABC) == 3


def test_a_corrupt_block_is_evicted_like_others_and_its_place_is_clean(tier):
    stored(tier, ABC)
    flip(tier.rows[tier.index.match(ABC).blocks[0]])
    brought(tier, ABC)
    assert stored(tier, text(*range(10, 18))) == 8
    assert tier.find(ABC) == 0 and brought(tier, text(*range(10, 18))) == 8
