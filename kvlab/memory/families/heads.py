"""Heads and widths as configurations say them, and the families whose layers are all alike."""

from dataclasses import replace

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.memory.layers import Attention, Latent

# A configuration that does not say num_key_value_heads means: as many as query heads. Elsewhere it would
# be a guess.
MHA_UNLESS_SAID = (
    "bloom",
    "gpt2",
    "gpt_neox",
    "gptj",
    "llama",
    "olmo",
    "olmo2",
    "opt",
    "phi",
    "phi3",
    "stablelm",
)
# Width and number of heads are chosen apart from each other, so hidden/heads would be a guess.
OWN_HEAD_DIM = (
    ("gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm4_moe", "gpt_oss", "llama4_text")
    + (
        "mimo_v2_flash",
        "ministral3",
        "nemotron_h",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_vl_text",
        "qwen3",
        "qwen3_5_moe_text",
    )
    + ("qwen3_5_text", "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text", "qwen3_vl_text", "step3p5")
)


BY_HAND = (
    "give its layers by hand: ModelSpec.uniform(layers=..., kv_heads=..., head_dim=...), or where they "
    "differ ModelSpec(name, (Attention(kv_heads, key_dim, value_dim, window), ...), query_heads)"
)


def said(fields, name):
    """A flag that a configuration may leave out, which means no."""
    return fields.values[name] is not None and fields.flag(name)


def attention(fields, family, window=None, chunked=False):
    """A layer of keys and values, as most families write it."""
    heads, kv_heads = fields.integer("num_attention_heads"), fields.integer("num_key_value_heads", null=True)
    if kv_heads is None:
        if family not in MHA_UNLESS_SAID:
            raise CheckpointError(
                f"{fields.where} does not say num_key_value_heads, in which {family} models differ: add it"
            )
        kv_heads = heads
    width = head_dim(fields, family)
    return checked(fields, heads, Attention(kv_heads, width, width, window, chunked))


def checked(fields, heads, layer):
    """The layer, if its KV heads can serve so many query heads evenly."""
    if heads % layer.kv_heads:
        raise CheckpointError(
            f"{fields.where}: {heads} query heads cannot share {layer.kv_heads} KV heads evenly: one is wrong"
        )
    return layer


def head_dim(fields, family):
    """The width of a head: as stated, else hidden/heads where that is the family's rule."""
    given = fields.integer("head_dim", null=True)
    if given is not None:
        return given
    if family in OWN_HEAD_DIM:
        raise CheckpointError(
            f"{fields.where} does not say head_dim, which {family} models choose freely: add the field"
        )
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden % heads:
        raise CheckpointError(
            f"{fields.where} does not say head_dim, and hidden_size {hidden} does not divide into {heads} "
            f"heads: add the field"
        )
    return hidden // heads


def plain(fields, family):
    return [attention(fields, family)] * fields.integer("num_hidden_layers")


def falcon(fields, family):
    """Falcon: num_kv_heads counts only in the new architecture; multi_query overrules it in the old one."""
    heads, width = fields.integer("num_attention_heads"), head_dim(fields, family)
    if fields.values["num_kv_heads"] is None:
        fields.values["num_kv_heads"] = fields.values["num_key_value_heads"]
    if said(fields, "new_decoder_architecture"):
        kv_heads = fields.integer("num_kv_heads")
    else:
        kv_heads = one_or_all(fields, heads)
    return [checked(fields, heads, Attention(kv_heads, width, width))] * fields.integer("num_hidden_layers")


def gpt_bigcode(fields, family):
    heads, width = fields.integer("num_attention_heads"), head_dim(fields, family)
    layer = Attention(one_or_all(fields, heads), width, width)
    return [layer] * fields.integer("num_hidden_layers")


def one_or_all(fields, heads):
    """KV heads of a family that has one for all query heads, or one each: up to 71 times apart, so say it."""
    if fields.values["multi_query"] is None:
        raise CheckpointError(
            f"{fields.where} does not say multi_query: one KV head for all query heads, or one each? Add it"
        )
    return 1 if fields.flag("multi_query") else heads


def latent(fields, indexer=None):
    """An MLA layer. num_key_value_heads and head_dim, which these files carry as well, have no part in it.

    indexer: "full" where the layer owns an index key, "shared" where it uses another's pick, else None.
    """
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    return Latent(
        kv_heads=1,
        key_dim=rank + rope,
        value_dim=rank,
        index_dim=fields.integer("index_head_dim") if indexer == "full" else 0,
        index_topk=fields.integer("index_topk") if indexer else None,
        naive_dims=(fields.integer("qk_nope_head_dim") + rope, fields.integer("v_head_dim")),
    )


def deepseek(fields, family):
    """MLA, in DeepSeek-V3.2 and GLM-5 with an indexer, which some of the layers may share."""
    count = fields.integer("num_hidden_layers")
    if fields.values["use_mla"] is not None and not fields.flag("use_mla"):
        raise CheckpointError(
            f"{fields.where}: use_mla is false, so that its layers are not latent: {BY_HAND}"
        )
    if family not in ("deepseek_v32", "glm_moe_dsa") and fields.values["index_head_dim"] is None:
        return [latent(fields)] * count
    return [latent(fields, kind) for kind in indexers(fields, family, count)]


def indexers(fields, family, count):
    """Whose pick each layer uses: its own indexer's, "full", or that of a layer below, "shared"."""
    listed = fields.texts("indexer_types", null=True)
    ruled = indexer_rule(fields, count) if family == "glm_moe_dsa" else None
    for types in filter(None, (listed, ruled)):
        if len(types) < count or set(types) - {"full", "shared"}:
            raise CheckpointError(
                f"{fields.where}: indexer_types must say full or shared (index_topk_pattern: F or S) for "
                f"each of the {count} layers"
            )
    if listed and ruled and listed[:count] != ruled[:count]:
        raise CheckpointError(
            f"{fields.where} contradicts itself: indexer_types are not those that index_topk_pattern or "
            f"index_topk_freq gives"
        )
    return (listed or ruled or ["full"] * count)[:count]


def indexer_rule(fields, count):
    """GLM-5's rules, a pattern or else one full layer in so many (transformers, GlmMoeDsaConfig) -> list, or
    None where the file has neither."""
    pattern = fields.values["index_topk_pattern"]
    if isinstance(pattern, str):
        return [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    if pattern is not None:
        return fields.texts("index_topk_pattern")
    period = fields.integer("index_topk_freq", least=0, null=True)
    if period is None:
        return None
    given = fields.integer("index_skip_topk_offset", least=0, null=True)
    offset = 2 if given is None else given
    return ["full" if max(n - offset + 1, 0) % max(period, 1) == 0 else "shared" for n in range(count)]


def minimax_m3(fields, family):
    """GQA; on the layers that sparse_attention_freq marks, with an index key beside it."""
    layer, count = attention(fields, family), fields.integer("num_hidden_layers")
    sparse = fields.object("sparse_attention_config", null=True)
    if sparse is None:  # as transformers saves it
        types = fields.texts("layer_types", null=True) or ["full_attention"] * count
        if len(types) < count or set(types) - {"full_attention", "minimax_m3_sparse"}:
            raise CheckpointError(
                f"{fields.where}: layer_types must say full_attention or minimax_m3_sparse, a layer"
            )
        marks, inner = [kind != "full_attention" for kind in types], fields
        names = ("index_head_dim", "index_topk_blocks", "index_block_size")
    else:
        inner = Fields(sparse, f"{fields.where}, sparse_attention_config")
        if not inner.flag("use_sparse_attention"):
            return [layer] * count
        marks = inner.values.get("sparse_attention_freq")
        names = ("sparse_index_dim", "sparse_topk_blocks", "sparse_block_size")
    if not isinstance(marks, list) or len(marks) < count:
        raise CheckpointError(
            f"{fields.where}: sparse_attention_freq must mark each of the {count} layers with 0 or 1"
        )
    if not any(marks[:count]):
        return [layer] * count
    dim, blocks, block_size = (inner.integer(name) for name in names)
    indexed = replace(layer, index_dim=dim, index_topk=blocks * block_size)
    return [indexed if mark else layer for mark in marks[:count]]


READERS = {
    **dict.fromkeys(
        ("bloom", "cohere", "gemma", "glm4_moe", "gpt2", "gpt_neox", "gptj", "granite", "granitemoe", "llama")
        + ("minimax_m2", "olmo", "olmo2", "opt", "phi", "qwen3_vl_moe_text", "qwen3_vl_text", "stablelm"),
        plain,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"), deepseek),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl_text"), minimax_m3),
    "falcon": falcon,
    "gpt_bigcode": gpt_bigcode,
}
