"""What transformers makes of a config.json where fields overrule each other: the same rules are ours."""

import pytest
import torch
import transformers

from kvlab.checkpoint import CheckpointError
from kvlab.memory import ModelSpec
from tests.reference.shrunk import cases

pytestmark = pytest.mark.filterwarnings("ignore")
CASES = cases()


@pytest.mark.parametrize("count", [1, 3, 13])
@pytest.mark.parametrize(
    "fields",
    [
        *({"index_topk_freq": period} for period in (0, 1, 2, 4)),
        *({"index_topk_freq": 4, "index_skip_topk_offset": offset} for offset in (0, 1, 3, 5)),
        {"index_skip_topk_offset": 3},
        {"index_topk_pattern": "FSSFFSFSFSSSF"},
        {"index_topk_pattern": ["full", "shared", "shared"] * 4 + ["full"], "index_topk_freq": 2},
        {},
    ],
)
def test_which_layers_have_an_indexer_of_their_own(fields, count):
    """GLM-5's schedule and pattern; a list beside them that says otherwise is refused."""
    config = CASES["glm_moe_dsa"] | {"num_hidden_layers": count, "indexer_types": None} | fields
    if isinstance(pattern := fields.get("index_topk_pattern"), str | list):
        config["index_topk_pattern"] = pattern[:count]
    theirs = transformers.AutoConfig.for_model(**config).indexer_types
    assert [layer.index_dim > 0 for layer in ModelSpec.from_config(config).layers] == [
        kind == "full" for kind in theirs
    ]
    assert ModelSpec.from_config(config | {"indexer_types": theirs}).layers
    if fields.keys() & {"index_topk_freq", "index_topk_pattern"}:
        other = ["shared" if kind == "full" else "full" for kind in theirs]
        with pytest.raises(CheckpointError, match="contradicts itself: indexer_types"):
            ModelSpec.from_config(config | {"indexer_types": other})


def test_the_last_layer_of_gemma_4():
    for types in (["sliding_attention"] * 6, ["full_attention"] + ["sliding_attention"] * 5):
        config = CASES["gemma4_text"] | {"layer_types": types}
        theirs = transformers.AutoConfig.for_model(**config).layer_types
        ours = ModelSpec.from_config(config).layers
        assert [layer.window is None for layer in ours] == [kind == "full_attention" for kind in theirs]
        assert ours[-1].window is None


def test_the_dtype_of_a_model_around_it():
    """transformers sets the outer one on every part as it loads a model."""
    text = CASES["llama"] | {"dtype": "float32"}
    whole = transformers.AutoConfig.for_model("llava", text_config=text, dtype="bfloat16")
    saved, model = whole.to_dict(), transformers.LlavaForConditionalGeneration
    assert (saved["dtype"], saved["text_config"]["dtype"]) == ("bfloat16", "float32")
    with torch.device("meta"):
        theirs = model._from_config(whole, dtype=whole.dtype).config.text_config.dtype
    assert (theirs, ModelSpec.from_config(saved).dtype) == (torch.bfloat16, "bf16")


@pytest.mark.parametrize("value", [True, "all"])
@pytest.mark.parametrize("family", ["gemma3_text", "gemma4_text"])
def test_gemma_as_an_encoder_is_refused(family, value):
    """EmbeddingGemma: transformers gives such a model other windows, and it continues no text."""
    with pytest.raises(CheckpointError, match="use_bidirectional_attention"):
        ModelSpec.from_config(CASES[family] | {"use_bidirectional_attention": value})


@pytest.mark.parametrize("value", [None, False, "vision"])
def test_gemma_that_looks_ahead_in_pictures_alone_keeps_a_cache_of_its_text(value):
    config = CASES["gemma4_text"] | {"use_bidirectional_attention": value}
    assert ModelSpec.from_config(config).layers == ModelSpec.from_config(CASES["gemma4_text"]).layers
