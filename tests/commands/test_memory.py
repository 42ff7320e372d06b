"""The memory command: the contract's JSON, tables for people, and refusals in one line."""

import json
import os
import re
import subprocess
import sys

import pytest

from kvlab import memory
from kvlab.commands import run
from kvlab.paths import ROOT

KEYS = {"model", "bytes_total", "bytes_per_rank", "bytes_per_token", "bytes_constant", "tokens", "sequences"}
KEYS |= {"dtype", "tp"}


def asked(capsys, *arguments):
    assert run(["memory", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_answers_before_any_set_up():
    # -S leaves out site-packages, -I the environment: the standard library alone.
    start = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from kvlab.__main__ import main; sys.exit(main())"
    )
    command = [sys.executable, "-I", "-S", "-c", start, "memory", "Falcon-7B", "--tokens", "2048", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes_total"] == 32 * 2 * 64 * 2 * 2048


def test_the_keys_of_the_contract(capsys):
    answer = asked(
        capsys, "Llama-3.1-8B", "--tokens", "300", "--sequences", "3", "--dtype", "fp8", "--tp", "2"
    )
    assert set(answer) >= KEYS
    assert answer["bytes_total"] == memory.kv_bytes("Llama-3.1-8B", 300, 3, "fp8", 2) == 300 * 3 * 65_536
    assert answer["bytes_per_rank"] == answer["bytes_total"] // 2
    assert answer["bytes_per_token"] == 32_768 and answer["bytes_constant"] == 0
    assert (answer["dtype"], answer["tp"], answer["tokens"], answer["sequences"]) == ("fp8", 2, 300, 3)


def test_with_a_device(capsys):
    asking = ["Llama-3.1-8B", "--device", "H100 SXM", "--weights-dtype", "bf16", "--sequences", "4"]
    answer = asked(capsys, *asking)
    free = 81_559 * 2**20 - 8_030_261_248 * 2
    assert answer["free_per_rank"] == free
    assert answer["fits_sequences"] == free // (4096 * 131_072)
    assert answer["max_tokens"] == free // (4 * 131_072) and answer["model_limit"] == 131_072
    read = 8_030_261_248 * 2 + 4 * 4096 * 131_072
    assert answer["tpot_floor_s"] == pytest.approx(read / 3350e9)
    held_back = asked(capsys, *asking, "--reserve", "0.1")
    assert held_back["free_per_rank"] == free - round(0.1 * 81_559 * 2**20)


def test_a_pool_names_the_difference(capsys):
    answer = asked(capsys, "Gemma-3-27B", "--tokens", "5000", "--block-size", "16")
    assert answer["allocated_per_rank"] == answer["bytes_per_rank"] + sum(answer["allocated_more"].values())
    assert all(answer["allocated_more"].values())


def test_a_config_of_ones_own(capsys, tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 6, "hidden_size": 30}
    config |= {"num_key_value_heads": 2, "max_position_embeddings": 64, "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "config.json"):
        answer = asked(capsys, str(path), "--tokens", "7")
        assert answer["bytes_total"] == 2 * 3 * 2 * 5 * 4 * 7 and answer["model"] == tmp_path.name
    device = ["--device", "RTX 4090", "--tokens", "7"]
    assert run(["memory", str(tmp_path), *device]) == 2
    assert "--parameters" in capsys.readouterr().err
    assert asked(capsys, str(tmp_path), *device, "--parameters", "1e6")["weights_per_rank"] == 4_000_000
    assert run(["memory", json.dumps(config)]) == 2
    assert "the text of a config.json: give the file's path" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps(config | {"head_dim": 10**400}))
    for table in ([], ["--json", *device, "--parameters", "1e6"]):
        assert run(["memory", str(tmp_path), *table]) == 2
        assert capsys.readouterr() == ("", "kvlab memory: the model's numbers are too large to work with\n")


def test_for_people(capsys):
    assert (
        run(["memory", "Gemma-3-27B", "--tokens", "200000", "--block-size", "16", "--device", "H100 SXM"])
        == 0
    )
    said = capsys.readouterr().out
    cost = memory.cost("Gemma-3-27B", 131_072)
    assert "10 full" in said and "52 sliding" in said
    assert f"{81_920 * 200_000 + cost.bytes_constant:,} B" in said
    assert "GiB" in said and "GB" in said
    assert "Note: 200,000 tokens are more than the 131,072" in said


def told(capsys, *arguments):
    assert run(["memory", *arguments]) == 0
    return capsys.readouterr().out


def test_no_speed_where_the_weights_alone_do_not_fit(capsys):
    for model in ("DeepSeek-V3", "Llama-3.1-405B"):
        said = told(capsys, model, "--device", "H100 SXM")
        assert "the weights alone do not fit: " in said and "lacking before any cache" in said
        assert "a decode step" not in said and "that fit" not in said and "held back" not in said
        assert asked(capsys, model, "--device", "H100 SXM")["fits_sequences"] == 0
    held = ["Llama-3.1-70B", "--device", "H100 SXM", "--weights-dtype", "fp8", "--reserve", "0.3"]
    said = told(capsys, *held)
    assert "what is held back fill the device" in said and "a decode step" not in said


def test_a_rounded_number_of_parameters_is_said(capsys):
    line = "\nNote: Its weights go by 27,400,000,000 parameters, a rounded figure: it includes the vision "
    on_a_device = ["--device", "H100 SXM"]
    assert line in told(capsys, "google/gemma-3-27b-it", *on_a_device)
    assert "rounded" not in told(capsys, "Gemma-3-27B", *on_a_device, "--parameters", "27432406640")
    assert "rounded" not in told(capsys, "Gemma-3-1B", *on_a_device)


def test_what_is_held_back_is_said(capsys):
    asking = ["Llama-3.1-8B", "--device", "H100 SXM"]
    line = "\nnothing is held back for activations; engines keep about a tenth: --reserve 0.1\n"
    assert line in told(capsys, *asking)
    assert line not in told(capsys, *asking, "--reserve", "0.1")
    assert "a decode step takes about 4.95 ms, by the roofline\n" in told(capsys, *asking)
    assert " s, by the roofline" in told(capsys, *asking, "--tokens", "100000", "--sequences", "100000")


def test_notes_come_after_one_empty_line_and_once(capsys):
    said = told(capsys, "Qwen3.5-27B")
    assert said.count("MTP") == 1 and "(s)" not in said
    assert said.count("\n\nNote: ") == 1 and told(capsys, "Llama-3.1-8B").endswith(" B\n")


@pytest.mark.parametrize("arguments", [["--list"], ["Llama-3.1-8B"], ["Llama-3.1-8B", "--json"]])
def test_it_ends_quietly_where_nobody_reads_on(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "kvlab", "memory", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Llama-3.1-8C"], "did you mean Llama-3.1-8B"),
        (["Llama-3.1-8B", "--dtype", "int3"], "known: fp32, bf16"),
        (["Llama-3.1-8B", "--device", "H1000"], "H100"),
        (["Llama-3.1-8B", "--tp", "3"], "choose one of 1, 2, 4, 8, 16, 32"),
        (["Llama-3.1-8B", "--tokens", "-1"], "0 or more"),
        (["Llama-3.1-8B", "--reserve", "2", "--device", "H100 SXM"], "share"),
        (["no/such/config.json"], "missing"),
        ([], "--list"),
        ([""], "--list"),
        (["x" * 5000], "neither a model of the catalogue nor a path"),
        (["~nosuchuser/config.json"], "neither a model of the catalogue nor a path|missing"),
        (["Llama-3.1-8B", "--dtype", ""], "--dtype is empty"),
        (["Llama-3.1-8B", "--weights-dtype", "fp8"], "--weights-dtype says nothing .* with --device"),
        (["Llama-3.1-8B", "--reserve", "0"], "--reserve says nothing .* with --device"),
        (["Llama-3.1-8B", "--parameters", "1.5"], "--parameters 1.5 is no number of .* a whole one"),
        (["Llama-3.1-8B", "--parameters", "nan"], "--parameters nan is no number of parameters"),
        (["Llama-3.1-8B", "--parameters", "2e18"], "--parameters 2e\\+18 is no number of parameters"),
        (["Llama-3.1-8B", "--tokens", "9" * 320], "--tokens is above 1,000,000,000,000,000,000"),
    ],
)
def test_refusals_in_one_line(arguments, said, capsys):
    assert run(["memory", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(said, captured.err)
    assert captured.err.count("\n") == 1 and captured.err.startswith("kvlab memory: ")


def test_an_unknown_architecture(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "of-next-year"}')
    assert run(["memory", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "of-next-year" in said and "llama" in said and said.count("\n") == 1


def test_the_list(capsys):
    assert run(["memory", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in [*memory.models(), *memory.devices(), *memory.FORMATS, "deepseek_v3"])
