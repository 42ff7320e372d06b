"""The models and devices that the calculator knows by name; models.json and devices.json say where from."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvlab.memory.errors import UnknownName, known


def models():
    """{name: row of models.json}, in the file's order; the rows are the caller's own.

    ``also``                    further Hugging Face ids of the same model, such as its name after a rename
    ``parameters``              as transformers' class of the model has them, without layers for MTP: exact
                                (tests/reference/test_parameters.py), unless the next field is there
    ``parameters_rounded``      why they are a rounded figure instead, as ``active_parameters`` always are
    ``expert_parameters``       those in the matrices of routed experts, counted likewise
    """
    return {row["name"]: row for row in json.loads(_text("models.json"))}


@cache
def devices():
    """{name: Device}, in the file's order."""
    rows = json.loads(_text("devices.json"))
    return {row["name"]: Device(**row) for row in rows}


def published():
    """What papers, engines and calculators printed -> list of rows, in published.json's order.

    ``said`` is the statement, ``exact_bytes`` what it should have been, where it is bytes; ``verdict`` is
    "agrees", "agrees if ..." or "wrong", and ``why`` says why. tests/memory/test_published.py has the rest.
    """
    return json.loads(_text("published.json"))


@cache
def _text(name):
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Device:
    """One accelerator. ``memory_bytes`` is what software sees, ``bandwidth`` in bytes a second, ``flops`` the
    dense rate of matrix products per format and second, None where unknown."""

    name: str
    memory_bytes: int
    bandwidth: int
    flops: dict
    memory_from: str = ""
    memory_type: str = ""
    source: str = ""
    note: str = ""

    def ridge(self, form="bf16"):
        """FLOPs a byte at which arithmetic takes as long as reading: the roofline's ridge.

        Raises ValueError where the device's rate is not known.
        """
        if not self.flops.get(form):
            raise ValueError(f"no {form} rate is known for {self.name}; known: {', '.join(self.rates())}")
        return self.flops[form] / self.bandwidth

    def rates(self):
        """The formats whose rate is known."""
        return [form for form, rate in self.flops.items() if rate]


def model(name):
    """The catalogue's row for a name or a Hugging Face id, in any case. Raises UnknownName."""
    rows = models()
    ids = {each: row for row in rows.values() for each in (row["hf_id"], *row.get("also", ())) if each}
    return _find(name, rows, ids, "model")


def device(name):
    """The Device of a name, or of a part that only one has, such as "H100 SXM". Raises UnknownName."""
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise TypeError(f"a device is a name or a Device, and not {type(name).__name__}")
    words = _plain(name).split()
    hits = [each for each in devices() if words and set(words) <= set(_plain(each).split())]
    exact = [each for each in hits if _plain(each) == _plain(name)]
    if len(exact or hits) > 1:
        raise UnknownName(f"device {name!r} is not the only one: {', '.join(hits)}")
    return _find((exact or hits or [name])[0], devices(), {}, "device")


def _find(name, rows, others, kind):
    if not isinstance(name, str):
        raise TypeError(f"a {kind} is asked for by its name, and not by {type(name).__name__}")
    for names in (rows, others):
        for each, row in names.items():
            if _plain(each) == _plain(name):
                return row
    raise UnknownName(f"unknown {kind} {name!r}; {known([*rows, *others], name)}")


def _plain(name):
    """'NVIDIA  H100 SXM' -> 'nvidia h100 sxm'"""
    return re.sub(r"[\s_]+", " ", name.strip().lower())
