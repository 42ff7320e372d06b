"""The catalogue's numbers of parameters, counted again in the classes of transformers, without their data."""

import pytest
import torch
import transformers

from kvlab.memory import ModelSpec, models

EXACT = {name: row for name, row in models().items() if "parameters_rounded" not in row}
CLASS = {"kimi_k2": "deepseek_v3"}  # as in test_memory


def model_of(row, **changed):
    """The causal language model of a row, on the meta device; what its file lacks is the class's default."""
    config = row["config"] | changed
    config = {name: value for name, value in config.items() if name != "quantization_config"}
    family = CLASS.get(config["model_type"], config["model_type"])
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config | {"model_type": family})
        )


def values(model, *ends):
    """How many numbers a checkpoint of it holds, under names with these ends, tied ones once -> int.

    That is its parameters and what the router of some is corrected by, a buffer here; not tables of indices.
    """
    saved = model.state_dict(keep_vars=True)
    held = {id(each): each for name, each in saved.items() if name.endswith(ends or "")}
    return sum(each.numel() for each in held.values() if each.is_floating_point())


@pytest.mark.parametrize("name", EXACT)
def test_a_row_has_the_parameters_of_its_class(name):
    assert values(model_of(EXACT[name])) == EXACT[name]["parameters"]


@pytest.mark.parametrize("name", [name for name in EXACT if ModelSpec.named(name).experts])
def test_what_lies_in_routed_experts(name):
    """Their matrices; biases, the router and experts that every token shares are not among them."""
    in_experts = values(
        model_of(EXACT[name]), *(f".experts.{part}_proj" for part in ("gate_up", "up", "down"))
    )
    assert in_experts == EXACT[name].get("expert_parameters", 0)


@pytest.mark.parametrize(
    ("name", "changed", "more"),
    [
        ("SmolLM2-135M", {"tie_word_embeddings": False}, 49_152 * 576),
        ("Qwen2.5-0.5B", {"vocab_size": 151_937}, 896),
        ("GLM-4.5", {"use_qk_norm": False}, -92 * 2 * 128),
        ("gpt-oss-20b", {"attention_bias": False}, -24 * (64 * 64 + 2 * 8 * 64 + 2880)),
    ],
)
def test_the_count_notices(name, changed, more):
    assert values(model_of(EXACT[name], **changed)) == EXACT[name]["parameters"] + more


def test_every_family_of_transformers_is_among_them():
    """But those of which the catalogue has the text part alone, and those whose class is another model's."""
    known = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    families = {row["config"]["model_type"] for row in models().values()}
    counted = {row["config"]["model_type"] for row in EXACT.values()}
    assert (families - counted) & known.keys() == {
        "gemma3n_text", "gemma4_text", "llama4_text", "qwen3_5_moe_text", "qwen3_5_text"
    }  # fmt: skip
