"""A ModelSpec by hand, by its path or by its text: what is taken, and what is refused in words."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kvlab.memory import (
    Attention,
    Latent,
    Layer,
    ModelSpec,
    UnknownName,
    cost,
    decode,
    kv_bytes,
    prefill,
    spec_of,
    weight_bytes,
)
from tests.memory.specs import toy

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("max_tokens", value) for value in (0, -1, 1.5, "8k", True)),
        *(
            (name, value)
            for name in ("dtype", "weights_dtype", "expert_dtype", "cache_dtype")
            for value in ("bf17", "fp", 16)
        ),
        ("dtype", None),
        *(
            (name, value)
            for name in ("parameters", "active_parameters", "expert_parameters")
            for value in (-1, 7e9, "7B", True)
        ),
        *(("query_heads", value) for value in (0, -4, 6.0, None)),
        *(("experts", value) for value in (-1, 1.0)),
        *(("experts_per_token", value) for value in (0, 1.0)),
        *(("layers", value) for value in ((), [], ["full"], (Attention(1, 8, 8), None), None)),
    ],
)
def test_every_field_is_checked(field, wrong):
    spec = toy(Attention(2, 8, 8), parameters=10)
    with pytest.raises((TypeError, ValueError), match="unknown dtype" if "dtype" in field else f"{field} is"):
        replace(spec, **{field: wrong})


def test_parts_are_not_more_than_the_whole():
    for whole in (100, None):
        with pytest.raises(ValueError, match="expert_parameters is 101, more than all"):
            toy(Layer(), parameters=whole, expert_parameters=101)
    assert weight_bytes(toy(Layer(), parameters=101, expert_parameters=101)) == 202


def test_a_token_picks_no_more_experts_than_there_are():
    assert toy(Layer(), experts=8, experts_per_token=8).experts == 8
    with pytest.raises(ValueError, match="experts_per_token is 9, and a layer has 8 experts"):
        toy(Layer(), experts=8, experts_per_token=9)


def test_a_model_without_weights():
    """As it is drawn where their number is not known."""
    assert weight_bytes(toy(Attention(2, 8, 8), parameters=0)) == 0


@pytest.mark.parametrize(
    "wrong", [{"nope_dim": -5}, {"value_dim": -3}, {"nope_dim": 8.0}, {"value_dim": "8"}]
)
def test_latent_layers_by_hand_are_checked(wrong):
    name = next(iter(wrong))
    with pytest.raises((TypeError, ValueError), match=f"{name} is"):
        ModelSpec.uniform_latent(layers=1, kv_lora_rank=4, rope_dim=2, query_heads=2, **wrong)


def test_flops_of_latent_layers_with_query_heads_of_their_own():
    layer = Latent(1, 12, 8, naive_dims=(9, 5), query_heads=10)
    assert layer.row_flops(6) == 2 * 10 * (12 + 8) and layer.row_flops(6, prefill=True) == 2 * 10 * (9 + 5)


@pytest.mark.parametrize(("nope", "value", "widths"), [(8, 5, (10, 5)), (0, 5, (0, 5)), (8, 0, (10, 0))])
def test_a_width_of_latent_heads_that_is_not_known_stays_so(nope, value, widths):
    sizes = {"layers": 1, "kv_lora_rank": 4, "rope_dim": 2, "query_heads": 2, "parameters": 1}
    spec = ModelSpec.uniform_latent(**sizes, nope_dim=nope, value_dim=value)
    assert spec.layers[0].naive_dims == widths
    if not all(widths):
        with pytest.raises(ValueError, match="give nope_dim and value_dim"):
            prefill(spec, 10, "H100 SXM")


def test_ranks_divide_the_query_heads_of_every_layer():
    """Step-3.7 has 64 in full layers and 96 in sliding ones."""
    spec = toy(Attention(8, 16, 16), Attention(8, 16, 16, 5, query_heads=96), query_heads=64)
    assert kv_bytes(spec, 10, tp=32) == 4 * kv_bytes(spec, 10)
    with pytest.raises(ValueError, match="tp 64 does not divide the 96 query heads .*: choose .*, 16, 32$"):
        kv_bytes(spec, 10, tp=64)
    with pytest.raises(ValueError, match="tp 3 does not divide the 64 query heads"):
        cost(spec, 10, tp=3)


def test_flops_go_by_the_query_heads_of_each_layer():
    full, sliding = Attention(8, 16, 16), Attention(8, 16, 16, 5, query_heads=96)
    spec = toy(full, sliding, query_heads=64, parameters=0)
    flops = decode(spec.with_parameters(1), 10, "H100 SXM").flops
    assert flops == 2 + 10 * 2 * 64 * 32 + 5 * 2 * 96 * 32
    with pytest.raises((TypeError, ValueError), match="query_heads is"):
        replace(sliding, query_heads=0)


LONG = "a" * 5000


@pytest.mark.parametrize("ask", [spec_of, ModelSpec.from_config])
@pytest.mark.parametrize("text", [LONG, "b/" * 3000, f"{LONG}.json", "~nosuchuser/config.json", "a\0b"])
def test_what_can_be_no_path_is_refused_in_one_short_line(ask, text):
    if os.name == "nt":
        pytest.skip("Windows has longer names, and guesses other users' folders")
    with pytest.raises(ValueError, match="neither a model of the catalogue nor a path") as caught:
        ask(text)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize("ask", [spec_of, ModelSpec.from_config])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_text_in_place_of_its_path_is_told_so(ask, indent):
    with pytest.raises(
        ValueError, match="text of a config.json: give the file's path, or ModelSpec.from_json"
    ):
        ask("\n" * bool(indent) + json.dumps(CONFIG, indent=indent))


def test_no_name_at_all():
    with pytest.raises(UnknownName, match="unknown model ''"):
        spec_of("")


def test_a_name_below_a_file_is_no_path(tmp_path, monkeypatch):
    """An id of a model, where its owner's name is also that of a file."""
    (tmp_path / "owner").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="unknown model 'owner/model'"):
        spec_of("owner/model")


def test_a_path_from_home(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    for ask in (spec_of, ModelSpec.from_config):
        for path in ("~", "~/config.json", Path("~/config.json")):
            assert ask(path).kinds() == {"full": 2}
