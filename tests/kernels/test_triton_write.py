"""The kernel that writes pages: PyTorch's numbers, no others touched, and what attention makes of them."""

import math

import pytest
import torch

from kvlab.kernels import triton_launch, write_pages
from kvlab.kernels.watch import watch
from tests.kernels.cases import EIGHT_BITS, assert_exact, attend, untouched

BLOCKS, BLOCK, HEADS, KEY_DIM, VALUE_DIM = 5, 4, 2, 20, 7
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SCALES = {"number": 0.25, "head": torch.tensor([0.25, 0.02]), "each": torch.zeros(BLOCKS, BLOCK, HEADS)}


def numbers(dtype, width, seed=0):
    """[7, HEADS, width] with a row of zeros, one that is all but 0, and too large ones."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(7, HEADS, width, generator=random) * 3
    x[0, 0] = 0
    x[1] *= 1e-6
    x[2, 1, :3] = torch.tensor([6e4, -6e4, 1e-7])
    x[3] = (x[3] * 4).round() / 8 + 0.125  # middles, where the scale is 0.25
    return x.to(dtype)


def pages(dtype, width):
    """Some bytes, so that it is seen where others are written."""
    random = torch.Generator().manual_seed(1)
    count = BLOCKS * BLOCK * HEADS * width * dtype.itemsize
    return (
        torch.randint(100, [count], generator=random, dtype=torch.uint8)
        .view(dtype)
        .view(BLOCKS, BLOCK, HEADS, width)
    )


def bits(x):
    return x.contiguous().flatten().view(torch.uint8)


def copied(scale):
    return scale.clone() if isinstance(scale, torch.Tensor) else scale


def written(backend, k, v, stored, slots, kind=None):
    """-> (k_pages, v_pages, k_scale, v_scale) after the call."""
    arguments = [pages(stored, KEY_DIM), None if v is None else pages(stored, VALUE_DIM)]
    scales = [copied(SCALES.get(kind)), None if v is None else copied(SCALES.get(kind))]
    given = {"k_pages": arguments[0], "v_pages": arguments[1]}
    with watch(**{name: x for name, x in given.items() if x is not None}):
        write_pages(k, v, **given, slots=slots, k_scale=scales[0], v_scale=scales[1], backend=backend)
    return *arguments, *scales


def same(one, other):
    """Equal numbers; 0 may be -0."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one.float(), other.float())
    return one == other


KINDS = [(dtype, kind) for dtype in EIGHT_BITS for kind in SCALES]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("stored", "kind"), [(None, None), *KINDS])
def test_it_writes_what_pytorch_writes_and_nothing_else(dtype, stored, kind):
    slots = torch.tensor([13, 2, 19, 0, 7, 12, 6])
    given = numbers(dtype, KEY_DIM), numbers(dtype, VALUE_DIM), stored or dtype, slots, kind
    right, got = (written(backend, *given) for backend in ("reference", "interpreter"))
    for one, other in zip(right, got, strict=True):
        assert same(one, other)
    others = [slot for slot in range(BLOCKS * BLOCK) if slot not in slots.tolist()]
    for now, width in zip(got, (KEY_DIM, VALUE_DIM), strict=False):
        before = pages(stored or dtype, width)
        assert torch.equal(bits(now.flatten(0, 1)[others]), bits(before.flatten(0, 1)[others]))
    if kind == "each":
        for scale in got[2:]:
            assert (scale.flatten(0, 1)[others] == 0).all() and scale.flatten(0, 1)[13, 0] == 1


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("stored", EIGHT_BITS)
def test_every_number_of_a_dtype_every_middle_and_what_lies_beside_it(stored, scale):
    known = torch.arange(-128, 128, dtype=torch.int8).view(stored).float()
    known = known[known.isfinite()].unique()  # sorted
    middles = (known[1:] + known[:-1]) / 2  # float32 has them all
    infinity = torch.tensor(math.inf)
    beside = [middles.nextafter(infinity), middles.nextafter(-infinity)]
    k = torch.cat([known, middles, *beside, torch.tensor([1e30, -1e30, math.inf])])[None, None]
    k *= scale
    found = []
    for backend in ("reference", "interpreter"):
        room = torch.zeros(1, 1, 1, k.shape[2]).to(stored)
        write_pages(k, None, room, None, torch.tensor([0]), k_scale=scale, backend=backend)
        found.append(room.float().flatten())
    assert torch.equal(*found)
    largest = 127 if stored == torch.int8 else torch.finfo(stored).max
    assert torch.equal(found[0][: len(known)], known.clamp(-largest, largest))


@pytest.mark.parametrize(("stored", "kind"), KINDS)
def test_there_and_back_is_within_half_a_step(stored, kind):
    k = numbers(torch.float32, KEY_DIM).clamp(-2.5, 2.5)
    slots = torch.arange(7) * 2
    k_pages, _, scale, _ = written("interpreter", k, None, stored, slots, kind)
    unit = torch.as_tensor(scale)[..., None]
    unit = unit.flatten(0, 1)[slots] if kind == "each" else unit
    step = unit
    if stored.is_floating_point:
        limits = torch.finfo(stored)
        step = unit * (2 ** (k / unit).abs().clamp(min=limits.smallest_normal).log2().floor()) * limits.eps
    distance = (k_pages.flatten(0, 1)[slots].float() * unit - k).abs()
    assert (distance <= step * 0.5001).all() and distance.max() > 0
    if kind == "each":  # all of the range is in use
        most = k_pages.flatten(0, 1)[slots].float().abs().amax(dim=-1)
        assert ((most == (127 if stored == torch.int8 else limits.max)) == (k.abs().amax(dim=-1) > 0)).all()


@pytest.mark.parametrize(("stored", "kind"), [(None, None), *KINDS])
def test_attention_over_what_was_written(stored, kind):
    dtype = torch.float16
    k, v = numbers(dtype, KEY_DIM).clamp(-3, 3), numbers(dtype, VALUE_DIM).clamp(-3, 3)
    slots = torch.tensor([12, 4, 6, 14, 7, 5, 13])  # all of block 1, and of block 3 all but the last
    empty = torch.nan if stored is None or stored.is_floating_point else -128
    k_pages, v_pages = (
        torch.full((BLOCKS, BLOCK, HEADS, width), empty).to(stored or dtype) for width in (KEY_DIM, VALUE_DIM)
    )
    scales = {} if kind is None else {"k_scale": copied(SCALES[kind]), "v_scale": copied(SCALES[kind])}
    write_pages(k, v, k_pages, v_pages, slots, **scales, backend="interpreter")
    given = {
        "q": numbers(dtype, KEY_DIM, seed=2)[4:],
        "k_pages": k_pages,
        "v_pages": v_pages,
        "block_tables": torch.tensor([[1, 3]]),
        "context_lens": torch.tensor([7]),
        "query_lens": torch.tensor([3]),
    }
    options = {"scale": 0.2, **scales}
    assert_exact(attend(given, options, num_splits=2), given, options)


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_pages_beyond_two_to_the_31(integers):
    k = numbers(torch.float32, 16)[:2, :1]
    room = torch.empty(2**27 + 3, 1, 1, 16, dtype=torch.int8)
    slots = torch.tensor([2**27 + 2, 2**27], dtype=integers)
    small = torch.zeros(2, 1, 1, 16, dtype=torch.int8)
    write_pages(k, None, small, None, torch.arange(2), k_scale=0.25, backend="reference")
    room[2**27 + 1] = 55
    with untouched(), watch(pages=room) as seen:
        write_pages(k, None, room, None, slots, k_scale=0.25, backend="interpreter")
    assert torch.equal(room[slots.long()], small) and (room[2**27 + 1] == 55).all()
    assert min(x.offsets.min() for x in seen if x.name == "pages") >= 2**31


def test_every_number_is_stored_once():
    k, slots = numbers(torch.float32, KEY_DIM), torch.tensor([3, 1, 0, 9, 4, 18, 5])
    room, scale = pages(torch.int8, KEY_DIM), torch.zeros(BLOCKS, BLOCK, HEADS)
    with watch(k_pages=room, k_scale=scale) as seen:
        write_pages(k, None, room, None, slots, k_scale=scale, backend="interpreter")
    for name, width in (("k_pages", HEADS * KEY_DIM), ("k_scale", HEADS)):
        stored = sorted(n for x in seen if (x.kind, x.name) == ("store", name) for n in x.offsets.tolist())
        assert stored == sorted(slot * width + n for slot in slots.tolist() for n in range(width))


@pytest.mark.parametrize("backend", ["reference", "interpreter"])
def test_no_tokens_are_no_change(backend, monkeypatch):
    monkeypatch.setattr(triton_launch, "store", None)  # a grid of no programs is an error on a GPU
    nothing = torch.empty(0, HEADS, KEY_DIM)
    got = written(backend, nothing, None, torch.int8, torch.empty(0, dtype=torch.int64), "each")
    assert torch.equal(got[0], pages(torch.int8, KEY_DIM))


@pytest.mark.parametrize("backend", ["reference", "interpreter"])
def test_pages_know_nothing_of_gradients(backend):
    k = numbers(torch.float32, KEY_DIM).requires_grad_()
    for stored, kind in ((torch.float32, None), (torch.int8, "each")):
        k_pages, _, scale, _ = written(backend, k, None, stored, torch.arange(7), kind)
        assert not k_pages.requires_grad and not (kind and scale.requires_grad)


def spread(x):
    """The same numbers, with others between them: a view of memory twice as wide."""
    return torch.stack([x, x], dim=-1)[..., 0]


@pytest.mark.parametrize("backend", ["reference", "interpreter"])
def test_what_is_written_need_not_lie_in_one_piece(backend):
    k, slots = numbers(torch.float32, KEY_DIM), torch.tensor([3, 1, 0, 9, 4, 18, 5])
    right = written("reference", k, None, torch.int8, slots, "each")
    got = written(backend, spread(k), None, torch.int8, spread(slots), "each")
    assert same(right[0], got[0]) and same(right[2], got[2])


@pytest.mark.parametrize("backend", [None, "reference"])
def test_pages_need_not_lie_in_one_piece_for_the_reference(backend):
    """Keys and values side by side in each block, and scales with them: as some engines have them."""
    k, slots = numbers(torch.float32, KEY_DIM), torch.tensor([3, 1, 0, 9, 4, 18, 5])
    right, _, right_scale, _ = written("reference", k, None, torch.int8, slots, "each")
    before = pages(torch.int8, KEY_DIM)
    room, scale = torch.stack([before, before], dim=1)[:, 0], spread(torch.zeros(BLOCKS, BLOCK, HEADS))
    write_pages(k, None, room, None, slots, k_scale=scale, backend=backend)
    assert same(room, right) and same(scale, right_scale)


K, V, SLOTS = numbers(torch.float32, KEY_DIM), numbers(torch.float32, VALUE_DIM), torch.arange(7)
GOOD = {"k": K, "v": V, "k_pages": torch.float32, "v_pages": torch.float32, "slots": SLOTS}
INTEGERS = {"k_pages": torch.int8, "v_pages": torch.int8, "k_scale": 0.25, "v_scale": 0.25}
BAD = {
    "no values for pages of values": ({"v": None}, "v and v_pages go together"),
    "no pages for values": ({"v_pages": None}, "v and v_pages go together"),
    "flat keys": ({"k": K.flatten(1)}, r"k has shape \[7, 40\]"),
    "narrow keys": ({"k": K[..., :-1]}, r"k has shape \[7, 2, 19\] and k_pages"),
    "one head": ({"v": V[:, :1]}, r"v has shape \[7, 1, 7\] and v_pages"),
    "fewer values": ({"v": V[1:]}, "k has 7 tokens and v 6"),
    "fewer slots": ({"slots": SLOTS[1:]}, r"slots is torch.int64 of shape \[6\]"),
    "slots that are fractions": ({"slots": SLOTS.float()}, "slots is torch.float32"),
    "slots that are marks": ({"slots": SLOTS > 3}, "slots is torch.bool"),
    "a slot below": ({"slots": SLOTS - 1}, "slots has -1; these pages have 0 to 19"),
    "a slot above": ({"slots": SLOTS + 14}, "slots has 20; these pages have 0 to 19"),
    "fewer pages of values": ({"v_pages": pages(torch.float32, VALUE_DIM)[1:]}, "v_pages"),
    "whole numbers without a scale": (
        {"k_pages": torch.int8},
        "k_pages is torch.int8 and k torch.float32: give k_scale",
    ),
    "keys of another dtype": ({"k": K.half()}, "k_pages is torch.float32 and k torch.float16: give k_scale"),
    "a scale for nothing": ({"v_scale": 0.5}, "v_scale is given, and v_pages is torch.float32"),
    "scales of other heads": (INTEGERS | {"k_scale": torch.ones(3)}, r"k_scale has shape \[3\]"),
    "scales of 16 bits": (INTEGERS | {"v_scale": SCALES["each"].half()}, "v_scale is torch.float16"),
    "a backend": ({"backend": "cuda"}, "backend is 'cuda'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_named_before_anything_is_written(what):
    more, message = BAD[what]
    given = GOOD | more
    for name, width in (("k_pages", KEY_DIM), ("v_pages", VALUE_DIM)):
        if isinstance(given[name], torch.dtype):
            given[name] = pages(given[name], width)
    before = [bits(given[name]).clone() for name in ("k_pages", "v_pages") if given[name] is not None]
    with pytest.raises((ValueError, TypeError), match=message):
        write_pages(**given)
    after = [bits(given[name]) for name in ("k_pages", "v_pages") if given[name] is not None]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


UNKNOWN = {
    "float64": (
        {"v": V.double(), "v_pages": torch.float64},
        TypeError,
        "v is torch.float64; Triton takes float16, bfloat16, float32",
    ),
    "pages in pieces": (
        {"v_pages": spread(pages(torch.float32, VALUE_DIM))},
        ValueError,
        "v_pages does not lie in one piece",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_triton_cannot_take_is_named_and_left_to_the_reference(what, monkeypatch):
    more, error, message = UNKNOWN[what]
    given = GOOD | more
    for name, width in (("k_pages", KEY_DIM), ("v_pages", VALUE_DIM)):
        if isinstance(given[name], torch.dtype):
            given[name] = pages(given[name], width)
    before = bits(given["k_pages"]).clone()
    with pytest.raises(error, match=message):
        write_pages(**given, backend="interpreter")
    assert torch.equal(bits(given["k_pages"]), before)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    write_pages(**given)
    for name in ("k", "v"):
        assert same(given[f"{name}_pages"].flatten(0, 1)[SLOTS], given[name])


def test_scales_in_pieces_are_named_where_triton_would_write_them(monkeypatch):
    scale, slots = spread(torch.zeros(BLOCKS, BLOCK, HEADS)), torch.arange(7)
    room = pages(torch.int8, KEY_DIM)
    with pytest.raises(ValueError, match="k_scale does not lie in one piece"):
        write_pages(K, None, room, None, slots, k_scale=scale, backend="interpreter")
    assert torch.equal(room, pages(torch.int8, KEY_DIM))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    write_pages(K, None, room, None, slots, k_scale=scale)
    right = written("reference", K, None, torch.int8, slots, "each")
    assert same(room, right[0]) and same(scale, right[2])


@pytest.mark.parametrize("stored", EIGHT_BITS)
@pytest.mark.parametrize("backend", ["reference", "interpreter"])
def test_numbers_too_small_for_a_scale_become_zeros(backend, stored):
    k = torch.zeros(1, HEADS, KEY_DIM)
    k[0, 0, 3], k[0, 1, 0] = 1e-44, -2.0
    room, scale = torch.zeros(1, 1, HEADS, KEY_DIM).to(stored), torch.zeros(1, 1, HEADS)
    write_pages(k, None, room, None, torch.arange(1), k_scale=scale, backend=backend)
    assert (room.float()[..., 0, :] == 0).all() and scale[..., 0] == 1
    assert room.float()[0, 0, 1, 0] * scale[0, 0, 1] == pytest.approx(-2)
