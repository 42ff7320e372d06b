"""The doctor's table, on this machine and on others."""

import importlib.util

import torch

from kvlab import machine


def test_every_row_says_something():
    table = machine.doctor()
    names = [row[0] for row in table.rows]
    assert names == ["Python", "torch", "cores", "memory", "GPU", "Triton", "SmolLM2"]
    assert all(row[1] for row in table.rows)


def test_triton_has_three_modes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert machine.triton_mode()[0] == "compiled"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.triton_mode()[0] == "interpreter"
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "triton" else find(name)
    )
    assert machine.triton_mode() == ("missing", "the kernel lessons use the torch reference instead")


def test_a_missing_model_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path))
    assert "python3 -m kvlab setup" in repr(machine.doctor())
