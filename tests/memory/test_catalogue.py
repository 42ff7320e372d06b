"""Models and devices by name, and that none of it needs more than Python."""

import subprocess
import sys

import pytest

from kvlab.memory import (
    FAMILIES,
    FORMATS,
    GB,
    UNITS,
    Device,
    GiB,
    ModelSpec,
    UnknownName,
    cost,
    device,
    devices,
    format_named,
    free_bytes,
    models,
    size,
    weight_bytes,
)
from kvlab.paths import ROOT

ROWS = list(models().values())
NAMES = list(models())
ids = [row["name"] for row in ROWS]


def ids_of(row):
    """Every Hugging Face id that a model has, or had."""
    return [each for each in (row["hf_id"], *row.get("also", ())) if each]


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_every_model_resolves_however_it_is_written(row):
    spec = ModelSpec.named(row["name"])
    assert spec.name == row["name"]
    spellings = [row["name"].upper(), row["name"].lower(), f"  {row['name']} ", row["name"].replace(" ", "_")]
    for each in ids_of(row):
        spellings += [each, each.upper()]
    for spelling in spellings:
        assert ModelSpec.named(spelling) == spec, spelling


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_every_model_adds_up(row):
    spec, config = ModelSpec.named(row["name"]), row["config"]
    assert len(spec.layers) == config.get("num_hidden_layers", config.get("n_layer"))
    assert config["model_type"] in FAMILIES and row["source"]
    assert spec.dtype in FORMATS and spec.query_heads >= 1
    assert row.get("active_parameters") is None or row["active_parameters"] < row["parameters"]
    one, far = cost(spec, 1), cost(spec, min(100_000, spec.max_tokens or 100_000))
    assert 0 < one.bytes_total <= far.bytes_total
    assert weight_bytes(spec) > one.bytes_total - one.bytes_constant
    notes = [note for note in spec.notes if "does not say its dtype" in note]
    assert bool(notes) == (not {"dtype", "torch_dtype"} & config.keys())


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_parameters_are_exact_or_said_to_be_rounded(row):
    """Those that are not said to be rounded are counted in tests/reference/test_parameters.py."""
    assert bool(row.get("parameters_rounded")) == (row["parameters"] % 10**7 == 0)
    assert 0 <= row.get("expert_parameters", 0) < row["parameters"]
    exact_mixture = bool(ModelSpec.named(row["name"]).experts) and "parameters_rounded" not in row
    assert "expert_parameters" not in row or exact_mixture


def test_a_model_has_its_name_from_before_and_after_a_rename():
    for large in ("8B", "70B", "405B"):
        before, after = (
            ModelSpec.named(f"meta-llama/{name}-{large}") for name in ("Meta-Llama-3.1", "Llama-3.1")
        )
        assert before == after and after.name == f"Llama-3.1-{large}"


def test_no_name_stands_twice():
    spellings = [*NAMES, *(each for row in ROWS for each in ids_of(row))]
    assert len({each.lower() for each in spellings}) == len(spellings)
    assert len({name.lower() for name in devices()}) == len(devices())


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Llama-3.1-9B", "Llama-3.1-8B"),
        ("llama 3.1 8b", "Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("DeepSeek-V5", "DeepSeek-V3"),
        ("gpt-oss-21b", "gpt-oss-20b"),
    ],
)
def test_a_near_name_is_suggested(asked, meant):
    with pytest.raises(UnknownName, match=f"unknown model '{asked}'; did you mean .*{meant}"):
        ModelSpec.named(asked)


def test_of_a_far_name_all_are_listed():
    with pytest.raises(UnknownName) as error:
        ModelSpec.named("xyzzy")
    assert all(name in str(error.value) for name in NAMES)


@pytest.mark.parametrize("name", [None, 5, ["GPT-2"], b"GPT-2"])
def test_names_are_text(name):
    for ask in (ModelSpec.named, device):
        with pytest.raises(TypeError, match="name"):
            ask(name)


@pytest.mark.parametrize("name", list(devices()))
def test_every_device_resolves(name):
    found = device(name)
    assert device(found) is device(name.lower()) is device(f" {name.upper()} ") is found
    assert found.memory_bytes > 10**9 and found.bandwidth > 10**10
    assert found.source and found.memory_from
    for form in found.rates():
        assert found.ridge(form) == found.flops[form] / found.bandwidth
        assert format_named(form)


def test_a_part_of_a_name_that_only_one_device_has():
    assert device("H100 SXM").name == "NVIDIA H100 SXM"
    assert device("sxm h100") is device("H100 SXM")
    with pytest.raises(UnknownName, match="device 'H100' is not the only one: .*PCIe.*SXM"):
        device("H100")
    with pytest.raises(UnknownName, match="unknown device 'H100SXM'; did you mean .*NVIDIA H100 SXM"):
        device("H100SXM")
    with pytest.raises(UnknownName, match="unknown device ''; known: .*NVIDIA T4"):
        device("")


def test_a_device_of_ones_own():
    mine = Device("mine", memory_bytes=24 * 2**30, bandwidth=10**11, flops={"bf16": None, "fp8": 10**13})
    assert free_bytes("GPT-2 (124M)", mine) == 24 * 2**30 - weight_bytes("GPT-2 (124M)")
    assert mine.ridge("fp8") == 100
    with pytest.raises(ValueError, match="no bf16 rate is known for mine; known: fp8"):
        mine.ridge()


def strangers(tmp_path, also=""):
    """What kvlab.memory, all of it, loads that is neither Python's own nor ours, without site-packages."""
    code = (
        "import pkgutil, sys; sys.path[:0] = sys.argv[1:]; import kvlab.memory as memory\n"
        "for each in pkgutil.walk_packages(memory.__path__, 'kvlab.memory.'): __import__(each.name)\n"
        f"memory.kv_bytes('Llama-3.1-8B', 10); memory.device('H100 SXM'); {also}\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-S", "-c", code, str(ROOT), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert "kvlab" in loaded
    return loaded - sys.stdlib_module_names - {"kvlab", "__main__", "__mp_main__"}


def test_nothing_but_python_is_imported(tmp_path):
    assert strangers(tmp_path) == set()
    (tmp_path / "stranger.py").touch()
    assert strangers(tmp_path, also="import stranger") == {"stranger"}


@pytest.mark.parametrize(
    ("nbytes", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1000 B", "1.00 kB"),
        (1024, "1.00 KiB", "1.02 kB"),
        (16 * 2**30, "16.00 GiB", "17.18 GB"),
        (16 * 10**9, "14.90 GiB", "16.00 GB"),
        (3 * 2**40, "3.00 TiB", "3.30 TB"),
        (5 * 2**50, "5,120.00 TiB", "5,629.50 TB"),
        (-(2**20), "-1.00 MiB", "-1.05 MB"),
    ],
)
def test_gib_and_gb_are_never_mixed(nbytes, binary, decimal):
    assert size(nbytes) == binary and size(nbytes, "decimal") == decimal


def test_units():
    assert (GiB, GB) == (UNITS["GiB"], UNITS["GB"]) == (2**30, 10**9)
    with pytest.raises(ValueError, match="'SI' units are not known: binary .* or decimal"):
        size(1, "SI")
