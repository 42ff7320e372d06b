"""What a config.json says, and what it seems to say: the traps of each family, on small configurations."""

import json
from dataclasses import replace

import pytest

from kvlab.memory import Attention, Latent, ModelSpec, Shared, cost, kv_bytes, models
from tests.memory.specs import MLA, read

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def windows(spec):
    return [layer.window for layer in spec.layers]


def row(name):
    return models()[name]["config"]


def test_a_head_is_not_hidden_by_heads():
    assert read("llama").layers == (Attention(2, 8, 8),) * 4
    assert read("llama", head_dim=20).layers[0] == Attention(2, 20, 20)
    assert read("llama", head_dim=None).layers[0] == Attention(2, 8, 8)
    assert ModelSpec.named("Gemma-2-27B").layers[0].key_dim == 128  # and not 4608 / 32
    assert ModelSpec.named("MiniMax-M2.5").layers[0].key_dim == 128  # and not 3072 / 48


def test_heads_that_are_not_said():
    """Llama means as many as query heads; of families that differ it would be a guess."""
    assert read("llama", "num_key_value_heads").layers[0].kv_heads == 6
    with pytest.raises(ValueError, match="num_key_value_heads, in which cohere models differ: add it"):
        read("cohere", "num_key_value_heads")


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"multi_query": True, "num_kv_heads": 6}, 1),  # Falcon-7B, which says 71 and means 1
        ({"multi_query": True, "num_kv_heads": 6, "new_decoder_architecture": False}, 1),
        ({"multi_query": False}, 6),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True}, 2),
    ],
)
def test_falcon(fields, kv_heads):
    assert read("falcon", "num_key_value_heads", **fields).layers[0] == Attention(kv_heads, 8, 8)


def test_falcons_of_the_catalogue():
    assert {layer.kv_heads for layer in ModelSpec.named("Falcon-7B").layers} == {1}
    assert {layer.kv_heads for layer in ModelSpec.named("Falcon-40B").layers} == {8}
    literally = replace(ModelSpec.named("Falcon-7B"), layers=(Attention(71, 64, 64),) * 32)
    assert kv_bytes(literally, 2048) == 71 * kv_bytes("Falcon-7B", 2048)


def test_multi_query():
    assert read("gpt_bigcode", multi_query=True).layers[0].kv_heads == 1
    assert read("gpt_bigcode", multi_query=False).layers[0].kv_heads == 6


def test_mistral_slides_where_it_says_so():
    assert windows(read("mistral", sliding_window=5)) == [5] * 4
    assert windows(read("mistral", sliding_window=None)) == [None] * 4


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"use_sliding_window": False, "sliding_window": 5, "max_window_layers": 1}, [None] * 4),
        ({"sliding_window": 5, "max_window_layers": 1}, [None] * 4),
        ({"use_sliding_window": True, "sliding_window": None, "max_window_layers": 1}, [None] * 4),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}, [None, 5, 5, 5]),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 4}, [None] * 4),
        (
            {
                **{"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
                "layer_types": [SLIDING, FULL, FULL, SLIDING],
            },
            [5, None, None, 5],
        ),
    ],
)
def test_qwens_window_is_always_there_and_rarely_on(family, fields, expected):
    assert windows(read(family, head_dim=8, **fields)) == expected


def test_a_window_that_is_switched_off_may_be_of_no_tokens():
    """As transformers 5 saves it for Qwen2-MoE."""
    spec = read("qwen2_moe", use_sliding_window=False, sliding_window=0, max_window_layers=4)
    assert windows(spec) == [None] * 4


@pytest.mark.parametrize("word", ["false", "no", 0.0, [], {}])
def test_flags_are_true_or_false(word):
    """A word is not a flag: "false" in quotes must not switch anything on."""
    fields = {"use_sliding_window": word, "sliding_window": 5, "max_window_layers": 1}
    with pytest.raises(ValueError, match="use_sliding_window is"):
        read("qwen2", **fields)
    with pytest.raises(ValueError, match="new_decoder_architecture is"):
        read("falcon", new_decoder_architecture=word, multi_query=True, num_kv_heads=6)


@pytest.mark.parametrize(
    ("family", "fields", "expected"),
    [
        ("gemma2", {}, [5, None, 5, None]),
        ("gpt_oss", {}, [5, None, 5, None]),
        ("gemma3_text", {"sliding_window_pattern": 2}, [5, None, 5, None]),
        ("gemma3_text", {"_sliding_window_pattern": 3}, [5, 5, None, 5]),
        ("gemma3_text", {"_sliding_window_pattern": 3, "sliding_window_pattern": 3}, [5, 5, None, 5]),
        ("gemma3_text", {}, [5, 5, 5, 5]),  # every sixth layer
        ("cohere2", {}, [5, 5, 5, None]),
        ("olmo3", {}, [5, 5, 5, None]),
        ("gemma3_text", {"layer_types": [FULL, SLIDING, SLIDING, FULL]}, [None, 5, 5, None]),
        ("phi3", {}, [5] * 4),
        ("smollm3", {"use_sliding_window": False, "layer_types": [FULL] * 4}, [None] * 4),
        ("llama4_text", {"attention_chunk_size": 7}, [7, 7, 7, None]),
        ("llama4_text", {"attention_chunk_size": 7, "no_rope_layers": []}, [7, 7, 7, None]),
        ("llama4_text", {"attention_chunk_size": 7, "no_rope_layers": [1, 0, 1, 0]}, [7, None, 7, None]),
        ("llama4_text", {"attention_chunk_size": None}, [None] * 4),
        ("llama4_text", {"attention_chunk_size": 7, "no_rope_layer_interval": 2}, [7, None, 7, None]),
    ],
)
def test_layers_that_slide(family, fields, expected):
    assert windows(read(family, head_dim=8, sliding_window=5, **fields)) == expected


def test_a_window_longer_than_the_text_is_none():
    assert cost(read("mistral", sliding_window=50), 40) == cost(read("mistral", sliding_window=None), 40)


def test_layer_types_may_go_on_beyond_the_model():
    """What follows belongs to multi-token prediction."""
    assert (
        windows(read("gemma2", head_dim=8, sliding_window=5, layer_types=[FULL] * 4 + [SLIDING]))
        == [None] * 4
    )


def test_sliding_layers_may_have_heads_of_their_own():
    """MiMo: other KV heads in sliding layers, and values narrower than keys."""
    spec = ModelSpec.named("MiMo-V2-Flash")
    assert set(spec.layers) == {Attention(4, 192, 128), Attention(8, 192, 128, 128)}
    assert cost(spec, 1000).bytes_per_token == 9 * 4 * (192 + 128) * 2
    assert cost(spec, 1000).bytes_constant == 39 * 128 * 8 * (192 + 128) * 2


@pytest.mark.parametrize("heads", [1, 2, 6, None, "absent"])
def test_kv_heads_have_no_part_in_mla(heads):
    fields = MLA | ({} if heads == "absent" else {"num_key_value_heads": heads})
    spec = read("deepseek_v3", *(["num_key_value_heads"] if heads == "absent" else []), head_dim=99, **fields)
    assert spec.layers == (Latent(1, 26, 20, naive_dims=(20, 8)),) * 4
    assert kv_bytes(spec, 10) == 10 * 4 * (20 + 6) * 2


def test_an_indexer_and_those_who_borrow_its_pick():
    fields = MLA | {"index_head_dim": 12, "index_topk": 16}
    assert [layer.index_dim for layer in read("deepseek_v32", **fields).layers] == [12] * 4
    spec = read("glm_moe_dsa", **fields, indexer_types=["full", "shared", "shared", "full"])
    assert [(layer.index_dim, layer.index_topk) for layer in spec.layers] == [
        (12, 16),
        (0, 16),
        (0, 16),
        (12, 16),
    ]


def test_a_family_that_has_an_indexer_says_how_wide():
    for family in ("deepseek_v32", "glm_moe_dsa"):
        with pytest.raises(ValueError, match="index_head_dim"):
            read(family, **MLA)
    assert read("deepseek_v3", **MLA).layers[0].index_dim == 0


def test_minimax_m3_without_an_indexed_layer_has_no_sizes_of_an_index():
    marks = {"use_sparse_attention": True, "sparse_attention_freq": [0] * 4}
    for fields in ({}, {"layer_types": [FULL] * 4}, {"sparse_attention_config": marks}):
        assert read("minimax_m3", head_dim=8, **fields).layers == (Attention(2, 8, 8),) * 4


def test_shared_layers_hold_nothing_and_are_read():
    types = [SLIDING, FULL] * 2
    fields = {"head_dim": 8, "sliding_window": 5, "layer_types": types}
    spec = read("gemma3n_text", num_kv_shared_layers=2, **fields)
    slides, full = Attention(2, 8, 8, 5), Attention(2, 8, 8)
    assert spec.layers == (slides, full, Shared(slides), Shared(full))
    assert kv_bytes(spec, 100) == (100 + 5) * 2 * 2 * 8 * 2
    assert spec.kinds() == {"sliding": 1, "full": 1, "shared": 2}
    for shared, says in ((4, "leaves no layer"), (3, f"no layer below shares its cache with {FULL}")):
        with pytest.raises(ValueError, match=says):
            read("gemma3n_text", num_kv_shared_layers=shared, **fields)


def test_full_layers_may_have_heads_of_their_own():
    fields = {"head_dim": 8, "global_head_dim": 12, "sliding_window": 5, "layer_types": [SLIDING, FULL] * 2}
    spec = read("gemma4_text", **fields, attention_k_eq_v=True, num_global_key_value_heads=1)
    assert spec.layers[:2] == (Attention(2, 8, 8, 5), Attention(1, 12, 12))
    spec = read("gemma4_text", **fields, attention_k_eq_v=False, num_global_key_value_heads=1)
    assert spec.layers[1] == Attention(2, 12, 12)


def nested(config, outer="some_vl", **top):
    return ModelSpec.from_config({"model_type": outer, "text_config": config, "vision_config": {}} | top)


def test_the_language_model_of_a_multimodal_one():
    """The fields of a real Mistral-Small-3.1, nested as there; dtype stands outside, hidden_size of the
    vision tower must not."""
    text = {
        **{"model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40, "head_dim": 128},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": None},
        "max_position_embeddings": 131072,
    }
    vision = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    spec = nested(text, "mistral3", torch_dtype="float16", vision_config=vision)
    assert spec.layers == (Attention(8, 128, 128),) * 40
    assert (spec.dtype, spec.max_tokens, spec.query_heads) == ("fp16", 131072, 32)


@pytest.mark.parametrize(
    ("outer", "inner", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, {"torch_dtype": "float32"}, "bf16"),
        ({"torch_dtype": "bfloat16"}, {"dtype": "float32"}, "bf16"),
        ({"dtype": "float16"}, {"dtype": "float32", "torch_dtype": "float32"}, "fp16"),
        ({}, {"dtype": "float16"}, "fp16"),
        ({"dtype": None}, {"dtype": "float16"}, "fp16"),
        ({"torch_dtype": "auto"}, {"dtype": "float16"}, "fp16"),
    ],
)
def test_the_dtype_of_the_whole_is_that_of_its_parts(outer, inner, dtype):
    """As transformers loads it, which sets the outer one on every part."""
    assert nested(row("Gemma-3-27B") | {"torch_dtype": None} | inner, **outer).dtype == dtype


@pytest.mark.parametrize("name", ["Gemma-3-27B", "Llama-4-Scout-17B-16E", "Qwen3.5-27B", "Gemma-4-31B"])
def test_every_text_part_may_stand_inside(name):
    config = row(name)
    assert nested(config).layers == ModelSpec.named(name).layers
    outer = config["model_type"].removesuffix("_text")
    unnamed = {field: value for field, value in config.items() if field != "model_type"}
    assert nested(unnamed, outer).layers == ModelSpec.named(name).layers


def test_text_as_it_is_pasted():
    config = row("Gemma-3-27B")
    assert ModelSpec.from_json(json.dumps(config)) == ModelSpec.from_config(config)
    assert (
        ModelSpec.from_json(" \n" + json.dumps(config, indent=2)).layers
        == ModelSpec.named("Gemma-3-27B").layers
    )


def test_fields_of_other_models_do_no_harm():
    """Leftovers that the family does not use."""
    leftovers = {"sliding_window": 5, "use_sliding_window": True, "multi_query": True}
    assert read("llama", kv_lora_rank=9, mamba_n_heads=3).layers == read("llama").layers
    assert read("gpt2", "num_key_value_heads", **leftovers).layers == (Attention(6, 8, 8),) * 4


@pytest.mark.parametrize(
    ("said", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"dtype": "float32", "torch_dtype": "float32"}, "fp32"),
        ({"dtype": "torch.bfloat16", "torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "BF16", "torch_dtype": "torch.bfloat16"}, "bf16"),
        ({}, "bf16"),
        ({"torch_dtype": None}, "bf16"),
        ({"torch_dtype": "auto"}, "bf16"),
    ],
)
def test_dtypes(said, dtype):
    spec = read("llama", **said)
    assert spec.dtype == dtype
    assert any("bf16 is assumed" in note for note in spec.notes) == (not {*said.values()} - {None, "auto"})


@pytest.mark.parametrize("spelling", ["n_embd", "n_embed", "d_model"])
def test_spellings_of_one_size(spelling):
    spec = read("bloom", "hidden_size", "num_key_value_heads", **{spelling: 48})
    assert spec.layers == (Attention(6, 8, 8),) * 4


@pytest.mark.parametrize(
    "one", ["num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts"]
)
@pytest.mark.parametrize("many", ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"])
def test_spellings_of_experts(many, one):
    spec = read("mixtral", **{many: 8, one: 2})
    assert (spec.experts, spec.experts_per_token) == (8, 2)


def test_the_last_layer_of_gemma_4_is_full():
    """By the rule and against the list, as transformers forces it."""
    fields = {"head_dim": 8, "global_head_dim": 12, "sliding_window": 5}
    assert windows(read("gemma4_text", **fields)) == [5, 5, 5, None]
    assert windows(read("gemma4_text", **fields, layer_types=[FULL] + [SLIDING] * 3)) == [None, 5, 5, None]


def test_layers_may_have_query_heads_of_their_own():
    """Named where they differ, in Step's sliding layers and in MiMo's."""
    fields = {"head_dim": 8, "sliding_window": 5, "layer_types": [FULL, SLIDING] * 2}
    other = {"num_attention_heads": 12, "num_attention_groups": 3}
    spec = read("step3p5", num_attention_groups=2, attention_other_setting=other, **fields)
    assert spec.layers[:2] == (Attention(2, 8, 8), Attention(3, 8, 8, 5, query_heads=12))
    assert {layer.query_heads for layer in ModelSpec.named("Step-3.7-Flash").layers} == {None, 96}
    mimo = ModelSpec.from_config(row("MiMo-V2-Flash") | {"swa_num_attention_heads": 96})
    assert {(layer.window, layer.query_heads) for layer in mimo.layers} == {(None, None), (128, 96)}
    with pytest.raises(ValueError, match="100 query heads cannot share 8 KV heads"):
        ModelSpec.from_config(row("MiMo-V2-Flash") | {"swa_num_attention_heads": 100})


def test_layers_for_multi_token_prediction_are_noted_and_not_counted():
    spec = read("glm4_moe", head_dim=8, num_nextn_predict_layers=1)
    assert len(spec.layers) == 4 and any("1 more layer" in note for note in spec.notes)


@pytest.mark.parametrize("name", ["num_nextn_predict_layers", "mtp_num_hidden_layers"])
@pytest.mark.parametrize(
    ("count", "says"), [(0, None), (None, None), (1, "1 more layer predicts"), (3, "3 more layers predict")]
)
def test_how_many_layers_for_multi_token_prediction_are_noted(name, count, says):
    notes = [note for note in read("glm4_moe", head_dim=8, **{name: count}).notes if "MTP" in note]
    assert len(notes) == bool(says) and all(note.startswith(f"{says} tokens") for note in notes)
