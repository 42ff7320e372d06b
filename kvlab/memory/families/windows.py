"""Families in which layers differ: some slide, some share, some keep nothing."""

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.memory.families.heads import BY_HAND, attention, checked, head_dim, said
from kvlab.memory.layers import Attention, Compressed, Layer, Shared

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
RECURRENT = "linear_attention"


def layer_types(fields, rule, known=(FULL, SLIDING, CHUNKED)):
    """A type a layer: as the file lists them, else by the family's ``rule(number)``.

    A list may be longer than the model: what follows belongs to multi-token prediction.
    """
    count = fields.integer("num_hidden_layers")
    types = fields.texts("layer_types", null=True)
    if types is None:
        if rule is None:
            raise CheckpointError(
                f"{fields.where} does not say layer_types, which this family needs: add the field"
            )
        types = [rule(number) for number in range(count)]
    if len(types) < count:
        raise CheckpointError(f"{fields.where}: layer_types has {len(types)} entries for {count} layers")
    if strange := set(types) - set(known):
        raise CheckpointError(
            f"{fields.where}: layer_types {', '.join(sorted(strange))} not known here; known: "
            f"{', '.join(known)}"
        )
    return types[:count]


def words_for(layer):
    """What layer_types may call a layer -> words, the usual one first."""
    layer = getattr(layer, "owner", layer)
    if layer.kind == "compressed" and layer.ratio:
        return ["compressed_sparse_attention" if layer.index_topk else "heavily_compressed_attention"]
    if layer.kind in ("full", "latent"):
        if layer.index_topk is None:
            return [FULL, "attention"]
        if layer.kind == "full":
            return ["minimax_m3_sparse"]
        return ["indexed_attention", "deepseek_sparse_attention"]
    return {
        "chunked": [CHUNKED],
        "sliding": [SLIDING],
        "compressed": [SLIDING],  # by no ratio: its window alone
        "state": [RECURRENT, "mamba"],
        "no attention": ["moe", "mlp"],
    }[layer.kind]


def check_types(fields, layers):
    """Refuse a layer_types that says anything else than the layers that were read, by whatever field."""
    types = fields.texts("layer_types", null=True)
    if types is not None and len(types) < len(layers):
        raise CheckpointError(
            f"{fields.where}: layer_types has {len(types)} entries for {len(layers)} layers"
        )
    for number, (word, layer) in enumerate(zip(types or (), layers, strict=False)):
        if word not in words_for(layer):
            raise CheckpointError(
                f"{fields.where}: layer_types says {word} of layer {number}, and the other fields "
                f"{words_for(layer)[0]}: correct one, or {BY_HAND}"
            )


def every(period, offset, kind=FULL, other=SLIDING):
    """The rule by which layer ``offset`` of each ``period`` is of one kind and the rest of the other."""
    return lambda number: kind if number % period == offset else other


def from_types(fields, types, one):
    """Layers from their types; ``one(type)`` makes a layer."""
    made = {kind: one(kind) for kind in set(types)}
    return [made[kind] for kind in types]


def usual(fields, family, types):
    """Layers that differ in their window alone."""

    def one(kind):
        if kind == FULL:
            return attention(fields, family)
        name = "sliding_window" if kind == SLIDING else "attention_chunk_size"
        return attention(fields, family, fields.integer(name), chunked=kind == CHUNKED)

    return from_types(fields, types, one)


def all_slide(fields, family):
    """Mistral and its like: sliding_window holds for every layer, null for none."""
    slides = fields.integer("sliding_window", null=True) is not None
    return usual(fields, family, layer_types(fields, lambda number: SLIDING if slides else FULL))


def upper_slide(fields, family):
    """Qwen: from layer max_window_layers on, if use_sliding_window says so; the window is always stated."""
    if not said(fields, "use_sliding_window") or fields.integer("sliding_window", null=True) is None:
        return [attention(fields, family)] * fields.integer("num_hidden_layers")
    if family.endswith("_moe") and fields.values["layer_types"] is None:
        raise CheckpointError(
            f"{fields.where}: which layers of a {family} slide is not agreed upon: add layer_types"
        )
    lowest = fields.integer("max_window_layers", least=0)
    return usual(fields, family, layer_types(fields, lambda number: SLIDING if number >= lowest else FULL))


def pattern(default):
    """One full layer at the end of each period, which the file may set."""

    def read(fields, family):
        period = fields.integer("sliding_window_pattern", null=True) or default
        return usual(fields, family, layer_types(fields, every(period, period - 1)))

    return read


def causal(fields):
    """Refuse a Gemma whose text looks ahead, as EmbeddingGemma's does; "vision" is of pictures alone."""
    if fields.values["use_bidirectional_attention"] not in (None, False, "vision"):
        raise CheckpointError(
            f"{fields.where}: by use_bidirectional_attention a token sees those after it; such a model does "
            f"not continue a text, and keeps no cache of one"
        )


def gemma3(fields, family):
    causal(fields)
    return pattern(6)(fields, family)


def llama4(fields, family):
    """Chunked layers rotate their keys; those without positions (NoPE), every fourth, attend to all."""
    rotated = fields.values["no_rope_layers"] or None  # 1 where a layer rotates, for all the name says
    period = fields.integer("no_rope_layer_interval", null=True) or 4
    rule = every(period, period - 1, FULL, CHUNKED)
    if rotated is not None:
        if not isinstance(rotated, list) or len(rotated) < fields.integer("num_hidden_layers"):
            raise CheckpointError(f"{fields.where}: no_rope_layers must mark each layer with 0 or 1")
        types = layer_types(fields, lambda number: CHUNKED if rotated[number] else FULL)
    else:
        types = layer_types(fields, rule)
    if fields.integer("attention_chunk_size", null=True) is None:
        types = [FULL] * len(types)
    return usual(fields, family, types)


def smollm3(fields, family):
    if not said(fields, "use_sliding_window"):
        return [attention(fields, family)] * fields.integer("num_hidden_layers")
    return usual(fields, family, layer_types(fields, None))


def share_upper(fields, layers, types):
    """Gemma 3n and 4: the last num_kv_shared_layers read the cache of the last layer of their type below."""
    own = len(layers) - (fields.integer("num_kv_shared_layers", least=0, null=True) or 0)
    if own < 1:
        raise CheckpointError(
            f"{fields.where}: num_kv_shared_layers leaves no layer of {len(layers)} with a cache"
        )
    owners = dict(zip(types[:own], layers[:own], strict=True))
    if missing := set(types[own:]) - set(owners):
        raise CheckpointError(
            f"{fields.where}: no layer below shares its cache with {', '.join(sorted(missing))}"
        )
    return layers[:own] + [Shared(owners[kind]) for kind in types[own:]]


def gemma3n(fields, family):
    types = layer_types(fields, every(5, 4))
    return share_upper(fields, usual(fields, family, types), types)


def gemma4(fields, family):
    """Full layers have their own number and width of heads. Where K equals V, engines still store both.

    The last layer is full, whatever the file says (transformers, Gemma4TextConfig).
    """
    causal(fields)
    heads = fields.integer("num_attention_heads")
    types = fields.values["layer_types"] = [*layer_types(fields, every(6, 5))[:-1], FULL]

    def one(kind):
        if kind == SLIDING:
            return attention(fields, family, fields.integer("sliding_window"))
        kv_heads = fields.integer("num_key_value_heads")
        if said(fields, "attention_k_eq_v"):
            kv_heads = fields.integer("num_global_key_value_heads", null=True) or kv_heads
        width = fields.integer("global_head_dim")
        return checked(fields, heads, Attention(kv_heads, width, width))

    return share_upper(fields, from_types(fields, types, one), types)


def own_heads(fields, heads):
    """The query heads of a layer, None where they are as many as the model's."""
    return None if heads == fields.integer("num_attention_heads") else heads


def mimo(fields, family):
    """MiMo-V2: sliding layers have heads of their own, and values are narrower than keys everywhere."""
    heads, marks = fields.integer("num_attention_heads"), fields.values["hybrid_layer_pattern"]
    count = fields.integer("num_hidden_layers")
    if not isinstance(marks, list) or len(marks) < count:
        raise CheckpointError(
            f"{fields.where}: hybrid_layer_pattern must mark each of the {count} layers with 0 or 1"
        )
    full = Attention(
        fields.integer("num_key_value_heads"), fields.integer("head_dim"), fields.integer("v_head_dim")
    )
    slides = Attention(
        fields.integer("swa_num_key_value_heads"),
        fields.integer("swa_head_dim"),
        fields.integer("swa_v_head_dim"),
        fields.integer("sliding_window"),
        query_heads=own_heads(fields, fields.integer("swa_num_attention_heads", null=True) or heads),
    )
    return [
        checked(fields, each.query_heads or heads, each)
        for each in (slides if mark else full for mark in marks[:count])
    ]


def step(fields, family):
    """Step-3.5: KV heads are called groups, and sliding layers may have heads of their own."""
    other = fields.object("attention_other_setting", null=True) or {}
    inner = Fields(fields.values | other, f"{fields.where}, attention_other_setting")

    def one(kind):
        own, window = (inner, fields.integer("sliding_window")) if kind == SLIDING else (fields, None)
        width, heads = head_dim(own, family), own.integer("num_attention_heads")
        layer = Attention(
            own.integer("num_attention_groups"), width, width, window, query_heads=own_heads(fields, heads)
        )
        return checked(own, heads, layer)

    return from_types(fields, layer_types(fields, None), one)


def nemotron_nas(fields, family):
    """Found by architecture search: each block says its group size, or that it has no attention at all."""
    blocks, heads = fields.values["block_configs"], fields.integer("num_attention_heads")
    count = fields.integer("num_hidden_layers")
    if not isinstance(blocks, list) or len(blocks) < count:
        raise CheckpointError(f"{fields.where}: block_configs must describe the attention of every layer")
    width, layers = head_dim(fields, family), []
    for number, block in enumerate(blocks[:count]):
        where = f"{fields.where}, block_configs[{number}]"
        if not isinstance(block, dict):
            raise CheckpointError(f"{where} must be an object")
        unsaid = {"no_op": None, "replace_with_linear": None}
        own = Fields(unsaid | Fields(block, where).object("attention"), where)
        if said(own, "no_op") or said(own, "replace_with_linear"):
            layers.append(Layer())
            continue
        group = own.integer("n_heads_in_group")
        if heads % group:
            raise CheckpointError(f"{where}: {heads} query heads do not divide into groups of {group}")
        layers.append(Attention(heads // group, width, width))
    return layers


def deepseek_v4(fields, family):
    """A compression ratio a layer, 0 for the window alone; with ratio 4 an indexer picks among the rows."""
    count, ratios = fields.integer("num_hidden_layers"), fields.values["compress_ratios"]
    known = isinstance(ratios, list) and all(type(each) is int and each in (0, 4, 128) for each in ratios)
    if not known or len(ratios) < count:
        raise CheckpointError(
            f"{fields.where}: compress_ratios must say 0, 4 or 128 for each of the {count} layers"
        )

    def one(ratio):
        indexer = {}
        if ratio == 4:
            indexer = {
                "index_dim": fields.integer("index_head_dim"),
                "index_topk": fields.integer("index_topk"),
            }
        return Compressed(
            fields.integer("head_dim"), fields.integer("sliding_window"), ratio or None, **indexer
        )

    return from_types(fields, ratios[:count], one)


QWEN = (
    "qwen2",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen2_moe",
    "qwen2_vl",
    "qwen2_vl_text",
    "qwen3",
    "qwen3_moe",
)
READERS = {
    **dict.fromkeys(("ministral3", "mistral", "mixtral", "phi3", "phimoe", "starcoder2"), all_slide),
    **dict.fromkeys(QWEN, upper_slide),
    "cohere2": pattern(4),
    "deepseek_v4": deepseek_v4,
    "gemma2": lambda fields, family: usual(fields, family, layer_types(fields, every(2, 1))),
    "gemma3_text": gemma3,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "gpt_oss": lambda fields, family: usual(fields, family, layer_types(fields, every(2, 1))),
    "llama4_text": llama4,
    "mimo_v2_flash": mimo,
    "nemotron-nas": nemotron_nas,
    "olmo3": lambda fields, family: usual(fields, family, layer_types(fields, every(4, 3))),
    "smollm3": smollm3,
    "step3p5": step,
    "step3p7": lambda fields, family: usual(fields, family, layer_types(fields, None)),
}
