"""Kernels in plain Python: started like Triton's, watched like them, in their place where it is missing."""

import pytest
import torch

from kvlab.kernels import backend
from kvlab.kernels import plain as module
from kvlab.kernels.language import jit, tl
from kvlab.kernels.plain import instead, load, plain, store
from kvlab.kernels.watch import OutsideAccess, watch


@plain
def add_plain(place, x, y, out, n, TILE):
    offsets = place * TILE + torch.arange(TILE)
    mask = offsets < n
    store(out, offsets, load(x, offsets, mask) + load(y, offsets, mask), mask)


@jit
def add(x, y, out, n, TILE: tl.constexpr):
    offsets = tl.program_id(0) * TILE + tl.arange(0, TILE)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


def vectors(n):
    return torch.arange(float(n)), torch.full([n], 0.5), torch.full([n], -1.0)


@pytest.mark.parametrize("n", [1, 4, 10])
def test_it_does_and_touches_what_the_same_kernel_in_triton_does(n):
    records = []
    for kernel in (add_plain, add):
        x, y, out = vectors(n)
        with watch(x=x, y=y, out=out) as seen:
            kernel[(-(-n // 4),)](x, y, out, n, TILE=4)
        assert torch.equal(out, x + y)
        records.append([(*each[:3], each.offsets.tolist()) for each in seen])
    assert records[0] == records[1]
    assert len(records[0]) == 3 * -(-n // 4)


def test_a_grid_has_one_to_three_sides():
    seen = []
    plain(lambda place, mark: seen.append((place, mark)))[(2,)]("a")
    plain(lambda place, mark: seen.append((place, mark)))[2, 1, 2]("b")
    assert seen == [
        (0, "a"),
        (1, "a"),
        ((0, 0, 0), "b"),
        ((0, 0, 1), "b"),
        ((1, 0, 0), "b"),
        ((1, 0, 1), "b"),
    ]


def test_offsets_are_those_of_memory_and_masked_places_have_other():
    x = torch.arange(6).view(2, 3)
    assert load(
        x, torch.tensor([[5, 0], [9, 2]]), torch.tensor([[True, True], [False, True]]), 7
    ).tolist() == [
        [5, 0],
        [7, 2],
    ]
    assert load(x, 4).item() == 4
    store(x, torch.tensor([0, 100]), torch.tensor([8, 9]), torch.tensor([True, False]))
    store(x, torch.tensor([1, 2]), 3)
    assert x.tolist() == [[8, 3, 3], [3, 4, 5]]


def test_a_columns_mask_holds_for_whole_rows():
    x = torch.arange(6)
    found = load(x, torch.tensor([[0, 1], [2, 3]]), torch.tensor([[True], [False]]), -1)
    assert found.tolist() == [[0, 1], [-1, -1]]


def test_it_is_stopped_beyond_the_end_before_anything_is_stored():
    x, y, out = vectors(10)

    @plain
    def careless(place, out):
        store(out, place * 4 + torch.arange(4), 0.0)

    with pytest.raises(OutsideAccess, match=r"program \(2, 0, 0\) would store 2 numbers .* offset 10 of out"):  # noqa: SIM117
        with watch(out=out):
            careless[(3,)](out)
    assert out.tolist() == [0.0] * 8 + [-1.0] * 2


def test_a_broken_program_does_not_leave_its_place_behind():
    @plain
    def broken(place):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        broken[(2,)]()
    assert module._running == []


def test_a_kernel_stays_itself_where_triton_is(capsys):
    assert instead(add_plain)(add) is add


def test_the_twin_runs_where_triton_is_missing_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(module, "installed", lambda: False)
    kernel = instead(add_plain)(add)
    x, y, out = vectors(6)
    kernel[(2,)](x, y, out, 6, TILE=4)
    assert torch.equal(out, x + y)
    assert "Triton is not installed: add_plain runs in place of the kernel" in capsys.readouterr().out
    assert backend.installed()
