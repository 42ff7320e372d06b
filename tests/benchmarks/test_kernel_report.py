"""What the kernel's benchmark says: goals, shares, names of devices, and its picture."""

import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

from kvlab.benchmarks.kernel import cases, gpu, picture, report
from kvlab.benchmarks.kernel.cases import Case
from kvlab.benchmarks.kernel.gpu import Timing
from kvlab.memory import device, devices


def timed(section, case, seconds):
    return {"section": section, "case": case._asdict(), "seconds": seconds}


def test_goals_are_reached_or_missed():
    lone, many = cases.LONE, cases.MANY
    bar = many.bytes / 0.85 / 1e9
    best = {"the measured copy": 1e9, "the data sheet": 2e9}

    def said(*records):
        return [(goal["value"], goal["conditions"]) for goal in report.goals(records, best)]

    fast = [timed("decode", many, bar * 0.999), timed("decode", lone, lone.bytes / 0.6501 / 2e9)]
    slow = [timed("decode", many, bar * 1.001), timed("decode", lone, lone.bytes / 0.6499 / 2e9)]
    assert said(*fast) == [("0.85", "reached"), ("0.65", "reached"), ("", "not measured")]
    assert said(*slow) == [("0.85", "missed"), ("0.65", "missed"), ("", "not measured")]
    peer = [timed("peer", case, seconds) for case in (lone, many) for seconds in (1.0, 2.0)]
    for ours, verdict in (((1.09, 1.1), "reached"), ((1.11, 0.9), "missed"), ((0.9, 1.11), "missed")):
        records = [timed("decode", case, each) for case, each in zip((lone, many), ours, strict=True)]
        assert said(*records, *peer)[2] == (f"{max(ours):.2f}", verdict)
        assert said(*records, *peer[:2])[2] == ("", "not measured")
    assert [goal["conditions"] for goal in report.goals(fast, {})] == ["not measured"] * 3
    assert [(goal["what"], goal["unit"]) for goal in report.goals([*fast, *peer], best)] == [
        ("64 x 8,192, at least 85% of the measured copy", "of the measured copy"),
        ("1 x 32,768, at least 65% of the data sheet", "of the data sheet"),
        ("1 x 32,768 and 64 x 8,192, at most 1.1 times the seconds of the best peer", "times"),
    ]
    assert (report.OF_COPY, report.OF_SHEET, report.OF_PEERS) == (0.85, 0.65, 1.1)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40GB SXM"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA RTX 3090"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "NVIDIA RTX 5090"),
        ("Tesla T4", "NVIDIA T4"),
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 SXM2 32GB"),
        ("AMD Instinct MI300X", "AMD MI300X"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H100", None),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_the_data_sheet_of_a_device_is_found_by_its_name(name, known):
    found = gpu.catalogued(name)
    assert found is None if known is None else found.name == known


def test_names_lead_to_the_catalogue():
    assert set(gpu.CATALOGUE.values()) <= set(devices())
    assert report.slug("NVIDIA A100-SXM4-80GB") == "nvidia-a100-sxm4-80gb"
    assert report.slug(" AMD  Instinct MI300X (x) ") == "amd-instinct-mi300x-x"


def test_speed_is_said_in_decimal_units():
    made = report.speed(Timing(2e-3, 9, "CUDA graph"), 4_000_000_000, {"a": 1e12, "b": 4e12})
    assert (made["value"], made["unit"]) == ("2000", "GB/s, 200% of a, 50% of b")
    assert made["conditions"] == "2 ms, median of 9, CUDA graph"
    assert (made["seconds"], made["runs"], made["bytes"]) == (2e-3, 9, 4_000_000_000)


def test_arithmetic_is_said_beside_the_bytes():
    case = Case(1, 16, heads=128, kv_heads=1, key_dim=576, value_dim=512, latent=True)
    made = report.arithmetic(Timing(1e-6, 5, "x"), case, device("NVIDIA H100 SXM"))
    share = case.flops / 1e-6 / 989e12
    assert made["value"] == f"{case.flops / 1e6:.1f}" and made["flops"] == case.flops
    assert made["unit"] == f"TFLOP/s, {share:.0%} of the data sheet, {case.bytes / 1e3:.0f} GB/s"
    assert (
        report.arithmetic(Timing(1e-6, 5, "x"), case, None)["unit"] == f"TFLOP/s, {case.bytes / 1e3:.0f} GB/s"
    )


MADE_UP = {1: [(128, 1e11), (1024, 9e11)], 4: [(128, 4e11), (1024, 1.5e12)], 256: [(128, 2e12)]}
LINES = {"the measured copy": 3e12, "the measured read": 3.1e12, "the data sheet": 3.35e12}


def test_curves_are_the_decode_steps_that_were_timed():
    case = Case(4, 1024)
    steps = [
        timed("decode", case, 2.0) | {"bytes": 10},
        timed("decode", case._replace(context=128), 1.0) | {"bytes": 3},
        timed("decode", Case(1, 128), 4.0) | {"bytes": 8},
        timed("option", Case(1, 256), 1.0) | {"bytes": 1},
        {"section": "decode", "unit": "failed"},
    ]
    found = report.by_batch(steps)
    assert list(found.items()) == [(1, [(128, 2.0)]), (4, [(128, 3.0), (1024, 5.0)])]


def test_the_picture_has_every_number(monkeypatch):
    drawn = []
    monkeypatch.setattr(picture, "Picture", lambda figure, alt: drawn.append((figure, alt)))
    before = dict(plt.rcParams)
    picture.bandwidths("Nobody's GPU", LINES, MADE_UP)
    assert dict(plt.rcParams) == before
    ((figure, alt),) = drawn
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == [*LINES, "batch 1", "batch 4", "batch 256"]
    for name, rate in LINES.items():
        assert set(lines[name].get_ydata()) == {rate / 1e9}
    for batch, points in MADE_UP.items():
        x, y = lines[f"batch {batch}"].get_data()
        assert list(zip(x, y, strict=True)) == [(context, rate / 1e9) for context, rate in points]
    looks = {(to_hex(line.get_color()), line.get_marker(), line.get_linestyle()) for line in lines.values()}
    assert len(looks) == len(lines)
    assert axes.get_title(loc="left") == "Nobody's GPU" and axes.get_ylabel() == "GB/s"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["128", "1,024"]
    assert axes.get_ylim()[0] == 0 and axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines)
    assert alt.startswith("Paged decode attention on Nobody's GPU, in GB/s: batch 1 reaches 900; ")
    assert "; batch 4 reaches 1500; " in alt and alt.endswith("; the data sheet is 3350.")
    plt.close(figure)


def test_there_are_looks_for_all_batches_and_lines():
    assert len(picture.LOOKS) == len(set(picture.LOOKS)) == len(cases.BATCHES)
    assert len(set(picture.DASHES)) == len(LINES)


@pytest.mark.parametrize("by_batch", [MADE_UP, {}])
def test_it_is_the_same_each_time(by_batch):
    first, again = (picture.bandwidths("x", LINES, by_batch).png for _ in range(2))
    assert first == again and first.startswith(b"\x89PNG")
