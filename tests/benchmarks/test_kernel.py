"""The kernel's benchmark where there is no GPU, and how it would go with one."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from kvlab.benchmarks import kernel as package
from kvlab.benchmarks.kernel import cases, checks, kernel, peers, report, run
from kvlab.benchmarks.kernel.cases import Case
from kvlab.commands import bench
from kvlab.commands import run as command
from kvlab.kernels import backend, language
from kvlab.paths import ROOT
from tests.benchmarks.pretended import Pretended

needs_triton = pytest.mark.skipif(not backend.installed(), reason="Triton is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
SECTIONS = ["check", "yardstick", "decode", "peer", "option", "parts", "tiling", "goal", "written"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cases, "BATCHES", (1, 2))
    monkeypatch.setattr(cases, "CONTEXTS", (128, 256))
    monkeypatch.setattr(cases, "LONE", Case(1, 256))
    monkeypatch.setattr(cases, "MANY", Case(2, 128))
    monkeypatch.setattr(cases, "tilings", lambda case: [case.tiling._replace(warps=2)])
    monkeypatch.setattr(cases, "tiled", lambda free, float8: [cases.LONE])
    monkeypatch.setattr(run, "YARDSTICK", 2**12)
    monkeypatch.setattr(checks, "CHECKS", [checks.CHECKS[1], checks.CHECKS[3]])


def rows_of(section, rows):
    return [row for row in rows if row[0].startswith(f"{section}: ")]


def test_without_a_gpu_there_is_one_row_that_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(package, "MEASURED", tmp_path)
    monkeypatch.setattr(bench.setup, "ready", lambda: type("Environment", (), {"is_current": True}))
    said = []
    ((what, value, unit, why),) = kernel(said.append)
    assert (what, value, unit) == ("paged attention on a GPU", "", "not measured") and why
    assert said == [(what, value, unit, why)]
    assert command(["bench", "kernel"]) == 0
    assert why in capsys.readouterr().out
    assert command(["bench", "kernel", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel"][0]["conditions"] == why
    assert list(tmp_path.iterdir()) == []


@needs_triton
def test_a_process_that_interprets_measures_nothing(monkeypatch):
    monkeypatch.setattr(package, "mode", lambda: backend.Mode("triton", "there is one"))
    assert language.interpreted and "to interpret" in package.obstacle()
    monkeypatch.setattr(language, "interpreted", False)
    assert package.obstacle() is None


@needs_triton
def test_pytorch_and_triton_are_enough():
    program = """
import sys
REFUSED = "numpy", "matplotlib", "safetensors", "tokenizers", "psutil", "gguf", "ipywidgets"
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
import runpy
runpy.run_module("kvlab.benchmarks.kernel", run_name="__main__")
import kvlab.benchmarks.kernel.run
from kvlab.benchmarks.kernel import report
from pathlib import Path
try:
    report.draw(Path(), {"device": "x"}, {}, [])
except ImportError as error:
    print("no picture:", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "paged attention on a GPU  not measured  " in done.stdout
    assert "no picture: " in done.stdout


@needs_triton
def test_a_whole_run(small, tmp_path):
    said = []
    rows = run.Run(Pretended(), tmp_path, said.append).rows()
    assert rows_of("written", rows)[1][3] == str(tmp_path / "nvidia-h100-80gb-hbm3.png")
    assert rows == said and len(set(row[0] for row in rows)) == len(rows)
    assert list(dict.fromkeys(row[0].split(": ")[0] for row in rows)) == SECTIONS
    assert not [row for row in rows if row[2] == "failed" or "left out" in row[3]]
    assert [row[0] for row in rows_of("decode", rows)] == [
        f"decode: {each}" for each in ("1 x 256", "2 x 128", "1 x 128", "2 x 256")
    ]
    case = cases.LONE
    first = rows_of("decode", rows)[0]
    share = case.bytes / 1e-3 / (2 * 2**12 / 1e-3)
    assert first[1] == f"{case.bytes / 1e6:.0f}"
    assert first[2].startswith(
        f"GB/s, {share:.0%} of the measured copy, {2 * share:.0%} of the measured read, "
    )
    assert first[2].endswith(f"{case.bytes / 1e-3 / 3.35e12:.0%} of the data sheet")
    assert first[3] == "1 ms, median of 7, made up"
    assert rows_of("yardstick", rows)[2:] == [
        ("yardstick: data sheet", "3350", "GB/s", "NVIDIA H100 SXM"),
        ("yardstick: adding 1 to one number", "1000.0", "µs", "1 ms, median of 7, made up"),
    ]
    mla = [row for row in rows_of("option", rows) if "MLA" in row[0]]
    assert [row[2].split(",")[0] for row in mla] == ["TFLOP/s"] * 2
    assert mla[0][1] == f"{case._replace(**cases.MLA).flops / 1e9:.1f}"
    installed = [row for row in rows_of("peer", rows) if row[1]]
    assert len(installed) == 6 and len(rows_of("peer", rows)) == 2 * len(peers.PEERS)
    missing = [row[3] for row in rows_of("peer", rows) if not row[1]]
    assert all(re.fullmatch(r"not installed: (pip install|build) .* \(Module.*\)", each) for each in missing)
    assert [row[0] for row in rows_of("parts", rows)] == [
        "parts: 1 x 256, 1 parts, as chosen",
        "parts: 1 x 256, 2 parts",
        "parts: 1 x 256, 4 parts",
        "parts: 2 x 128, 1 parts, as chosen",
        "parts: 2 x 128, 2 parts",
    ]
    assert len(rows_of("tiling", rows)) == 2 and "as usual" in rows_of("tiling", rows)[0][0]
    assert [row[3] for row in rows_of("goal", rows)][2] == "reached"
    assert (tmp_path / "nvidia-h100-80gb-hbm3.png").read_bytes().startswith(b"\x89PNG")


@needs_triton
def test_the_file_has_what_a_reader_needs(small, tmp_path):
    folder = tmp_path / "new" / "measured"
    rows = run.Run(Pretended(), folder).rows()
    text = (folder / "nvidia-h100-80gb-hbm3.json").read_text()
    made = json.loads(text)
    assert str(tmp_path) not in text
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", made.pop("date"))
    assert made.pop("bytes_a_second") == {
        "the measured copy": 2 * 2**12 / 1e-3,
        "the measured read": 2**12 / 1e-3,
        "the data sheet": 3.35e12,
    }
    records = made.pop("records")
    assert made == Pretended().facts()
    assert [report.row(record) for record in records] == rows[: -len(rows_of("written", rows))]
    kinds = {"seconds": float, "runs": int, "bytes": int, "flops": int, "parts": int, "case": dict}
    kinds |= dict.fromkeys(("section", "what", "value", "unit", "conditions"), str)
    copy, read = [record for record in records if record["section"] == "yardstick"][:2]
    assert (copy["bytes"], read["bytes"]) == (2 * 2**12, 2**12)
    for record in records:
        assert record.keys() >= {"section", "what", "value", "unit", "conditions"}
        assert all(isinstance(value, kinds[name]) for name, value in record.items())
        if record["section"] in ("decode", "option", "parts", "tiling"):
            assert record.keys() >= {"seconds", "runs", "bytes", "parts"}
            assert record["bytes"] == Case(**record["case"]).bytes


@needs_triton
def test_it_goes_through_the_interpreter_too(small, monkeypatch):
    """As on a GPU: the kernel itself, in the checks and where times are taken."""
    monkeypatch.setattr(checks, "CHECKS", [checks.CHECKS[1]._replace(contexts=(3, 17), queries=(1, 2))])
    measured = run.Run(Pretended("interpreter"), None)
    measured.section("check", measured.checks(), save=False)
    tiny = Case(1, 32, heads=2, kv_heads=1, key_dim=16, value_dim=16)
    measured.section("decode", [("tiny", measured.timed(tiny))], save=False)
    measured.section("peer", measured.peers(tiny), save=False)
    assert [record["unit"] for record in measured.records].count("failed") == 0
    assert len([record for record in measured.records if "seconds" in record]) == 4


def test_a_wrong_kernel_is_not_timed(small, monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "steps_off", lambda *given: float("nan"))
    timed = []
    monkeypatch.setattr(Pretended, "time", lambda *given: timed.append(1))
    said = []
    with pytest.raises(AssertionError, match="wrong on NVIDIA H100.*nothing was timed.*float16, group of 1"):
        run.Run(Pretended(), tmp_path, said.append).rows()
    assert said[0][2:] == ("failed", "nan times the allowed error")
    assert timed == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["written_otherwise", "attend_without_waiting"])
def test_neither_are_wrong_pages_nor_a_layer_that_waits(small, monkeypatch, tmp_path, name):
    def wrong(*given):
        if name == "written_otherwise":
            return ["int8, no scale"]
        raise RuntimeError("called a synchronizing CUDA operation")

    monkeypatch.setattr(checks, name, wrong)
    with pytest.raises(AssertionError, match="nothing was timed"):
        run.Run(Pretended(), tmp_path).rows()


def test_a_check_that_needs_more_memory_than_there_is_is_left_out(monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", [check for check in checks.CHECKS if check.unused > 3])
    (check,) = checks.CHECKS
    assert check.unused_bytes == 2 * 2**31 * 2
    measured = run.Run(Pretended(memory=3 * 2**33 - 1), None)
    assert measured._checked(check)["conditions"] == "left out: too little memory is free"
    monkeypatch.setattr(checks, "steps_off", lambda *given: 1.01)
    assert run.Run(Pretended(memory=3 * 2**33), None)._checked(check)["unit"] == "failed"
    monkeypatch.setattr(checks, "steps_off", lambda *given: 0.25)
    assert run.Run(Pretended(memory=3 * 2**33), None)._checked(check)["value"] == "0.25"


def test_what_fails_loses_nothing_else(small, monkeypatch, tmp_path):
    right = Pretended.time

    def sometimes(self, step):
        timing = right(self, step)
        self.count = getattr(self, "count", 0) + 1
        if self.count in (1, 5):  # the copy, and a decode step
            raise torch.OutOfMemoryError("CUDA out of memory.\nMore of it.")
        return timing

    monkeypatch.setattr(Pretended, "time", sometimes)
    monkeypatch.setattr(cases, "tiled", lambda free, float8: [])
    rows = run.Run(Pretended(), tmp_path).rows()
    failed = [row for row in rows if row[2] == "failed"]
    assert [row[0] for row in failed] == ["yardstick: copy", "decode: 2 x 128"]
    assert {row[3] for row in failed} == {"OutOfMemoryError: CUDA out of memory."}
    assert [row[3] for row in rows_of("goal", rows)] == ["not measured", "missed", "not measured"]
    assert len(rows_of("decode", rows)) == 4


def test_without_matplotlib_there_is_no_picture(small, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "kvlab.benchmarks.kernel.picture", None)
    measured = run.Run(Pretended(), tmp_path)
    assert measured._draw()["conditions"].startswith("none: matplotlib is not installed (")
    assert measured._draw()["unit"] == ""


def test_a_peer_that_differs_is_not_timed(small, monkeypatch):
    def off(by):
        return lambda problem: lambda: (1 + by) * problem.attend("reference")[:, :, None]

    others = [
        peers.Peer("right", off(0.04)),
        peers.Peer("wrong", off(0.2)),
        peers.Peer("lost", off(torch.nan)),
    ]
    monkeypatch.setattr(run, "PEERS", others)
    measured = run.Run(Pretended(), None)
    measured.section("peer", measured.peers(cases.MANY), save=False)
    right, wrong, lost = measured.records
    assert right["seconds"] and right["case"] == cases.MANY._asdict()
    assert re.search(r"differs from ours by 0\.2\d* of the largest", wrong["conditions"])
    assert "seconds" not in wrong | lost and lost["unit"] == "failed"


def test_what_has_not_begun_in_time_is_left_out(small, monkeypatch, tmp_path):
    now = [1000.0]
    right = Pretended.time

    def slow(self, step):
        now[0] += 50
        return right(self, step)

    monkeypatch.setattr(Pretended, "time", slow)
    rows = run.Run(Pretended(), tmp_path, clock=lambda: now[0]).rows()
    # Three yardsticks and two decode steps take 250 s: the last of them had begun in time.
    assert len([row for row in rows if row[1] and row[0].startswith(("yardstick", "decode"))]) == 4 + 2
    assert rows_of("decode", rows)[-1] == (
        "decode: 2 more",
        "",
        "",
        "left out, since 210 s were up: 1 x 128; 2 x 256",
    )
    assert rows_of("peer", rows)[-1][0] == f"peer: {2 * len(peers.PEERS)} more"
    assert [row[3] for row in rows_of("goal", rows)][:2] == ["reached", "missed"]
    assert (tmp_path / "nvidia-h100-80gb-hbm3.json").exists()


def test_each_section_is_kept_before_the_next_begins(small, monkeypatch, tmp_path):
    def stopped(self, point):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(run.Run, "peers", stopped)
    with pytest.raises(KeyboardInterrupt):
        run.Run(Pretended(), tmp_path).rows()
    (path,) = tmp_path.iterdir()
    assert {record["section"] for record in json.loads(path.read_text())["records"]} == {
        "check",
        "yardstick",
        "decode",
    }


def test_one_problem_is_held_at_a_time(small, monkeypatch):
    measured, alive, most = run.Run(Pretended(), None), [], []

    class Counted:
        def __init__(self, case, device):
            self.case = case
            alive.append(1)
            most.append(len(alive))

        def __del__(self):
            alive.pop()

    monkeypatch.setattr(run, "Problem", Counted)
    first = measured.problem(cases.LONE)
    assert measured.problem(cases.LONE) is first
    del first
    measured.problem(cases.MANY)
    measured.problem(cases.LONE)
    assert max(most) == 1 and len(most) == 3


def test_where_no_data_sheet_is_known_the_rest_is_measured(small, monkeypatch, tmp_path):
    monkeypatch.setattr(cases, "tiled", lambda free, float8: [])
    rows = run.Run(Pretended(name="Nobody's"), tmp_path).rows()
    sheet = rows_of("yardstick", rows)[2]
    assert sheet == ("yardstick: data sheet", "", "", "kvlab.memory does not know Nobody's")
    assert rows_of("decode", rows)[0][2].endswith("of the measured read")
    assert [row[2] for row in rows_of("option", rows) if "MLA" in row[0]][0].startswith("TFLOP/s, ")
    assert rows_of("goal", rows)[1][3] == "not measured"
    assert (tmp_path / "nobody-s.json").exists()
