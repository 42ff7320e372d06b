"""Hybrids: most layers keep a state of constant size, and a few keep keys and values."""

from math import gcd

from kvlab.checkpoint import CheckpointError, Fields
from kvlab.memory.families.heads import attention, latent
from kvlab.memory.families.windows import FULL, RECURRENT, SLIDING, every, from_types, layer_types
from kvlab.memory.formats import format_named
from kvlab.memory.layers import Layer, State


def forms(fields):
    """(format of the convolution's inputs, format of the state): the model's own, and fp32 unless it says."""
    return format_named(fields.values["dtype"]), format_named(said_state(fields) or "fp32")


def said_state(fields):
    """The format of the state that the file asks for, None where it leaves it open."""
    said = [fields.values[name] for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")]
    return next((name for name in said if name not in (None, "auto")), None)


def note_unsaid_states(fields, family, layers, notes):
    """Say so where fp32 is our choice: not of families whose states engines keep in it by themselves.

    (vLLM, model_executor/layers/mamba/mamba_utils.py, MambaStateDtypeCalculator, and model_executor/models/
    config.py, NemotronHForCausalLMConfig. transformers, RecurrentGemmaRglru.)
    """
    open_to_choice = family not in ("kimi_linear", "nemotron_h", "recurrent_gemma")
    if open_to_choice and said_state(fields) is None and any(layer.kind == "state" for layer in layers):
        notes.append(
            "Its recurrent states are counted in fp32, since the config does not say; vLLM keeps them in the "
            "dtype of the convolution unless told otherwise (--mamba-ssm-cache-dtype)."
        )


def gated_delta_net(fields):
    """Qwen3-Next, Qwen3.5: queries, keys and values pass the convolution; a state matrix a value head."""
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key, value = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    return State(
        heads=gcd(key_heads, value_heads),
        channels=2 * key_heads * key + value_heads * value,
        columns=fields.integer("linear_conv_kernel_dim") - 1,
        values=value_heads * key * value,
        **_formats(fields),
    )


def kimi_delta(said, fields):
    """Kimi Delta Attention: as above with as many key heads as value heads, all equally wide."""
    heads, width = said.integer("num_heads"), said.integer("head_dim")
    return State(
        heads=heads,
        channels=3 * heads * width,
        columns=said.integer("short_conv_kernel_size") - 1,
        values=heads * width * width,
        **_formats(fields),
    )


def mamba1(fields):
    inner = fields.integer("mamba_expand") * fields.integer("hidden_size")
    return State(
        heads=inner,
        channels=inner,
        columns=fields.integer("mamba_d_conv") - 1,
        values=inner * fields.integer("mamba_d_state"),
        **_formats(fields),
    )


def mamba2(fields, heads, width, size, groups, kernel):
    """Mamba-2: the convolution also takes each group's B and C; ``width`` times ``size`` numbers a head."""
    heads, width, size = fields.integer(heads), fields.integer(width), fields.integer(size)
    return State(
        heads=heads,
        channels=heads * width,
        columns=fields.integer(kernel) - 1,
        values=heads * width * size,
        groups=fields.integer(groups),
        group_channels=2 * size,
        **_formats(fields),
    )


def rg_lru(fields):
    """RecurrentGemma (Griffin, arXiv:2402.19427, section 2.4): one number of state a channel."""
    width = fields.integer("lru_width", null=True) or fields.integer("hidden_size")
    columns = (fields.integer("conv1d_width", null=True) or 4) - 1
    return State(heads=width, channels=width, columns=columns, values=width, **_formats(fields))


def _formats(fields):
    conv, state = forms(fields)
    return {"conv_form": conv, "state_form": state}


def qwen3_next(fields, family):
    period = fields.integer("full_attention_interval", null=True) or 4
    types = layer_types(fields, every(period, period - 1, FULL, RECURRENT), known=(FULL, RECURRENT))
    return from_types(
        fields, types, lambda kind: attention(fields, family) if kind == FULL else gated_delta_net(fields)
    )


def kimi_linear(fields, family):
    """MLA and Kimi Delta Attention; the lists of layers count from 1."""
    said = Fields(fields.object("linear_attn_config"), f"{fields.where}, linear_attn_config")
    count, full = fields.integer("num_hidden_layers"), set(_numbers(said, "full_attn_layers"))
    recurrent = set(_numbers(said, "kda_layers"))
    if full & recurrent or full | recurrent != set(range(1, count + 1)):
        raise CheckpointError(
            f"{fields.where}: full_attn_layers and kda_layers must name each layer from 1 to {count} once"
        )
    attends, remembers = latent(fields), kimi_delta(said, fields)
    return [attends if number in full else remembers for number in range(1, count + 1)]


def _numbers(fields, name):
    value = fields.values.get(name)
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise CheckpointError(f"{fields.where}: {name} must be a list of layer numbers")
    return value


def jamba(fields, family):
    period, offset = (
        fields.integer("attn_layer_period", null=True),
        fields.integer("attn_layer_offset", 0, null=True),
    )
    rule = None if period is None or offset is None else every(period, offset, FULL, RECURRENT)
    types = [
        RECURRENT if kind == "mamba" else kind
        for kind in layer_types(fields, rule, (FULL, RECURRENT, "mamba"))
    ]
    return from_types(
        fields, types, lambda kind: attention(fields, family) if kind == FULL else mamba1(fields)
    )


def granite_hybrid(fields, family):
    """Granite 4.0: layer_types decides. A dense one carries Mamba's fields too, and uses none of them."""
    plain = {"attention": FULL, "mamba": RECURRENT}
    types = layer_types(fields, None, (FULL, RECURRENT, *plain))
    names = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")
    types = [plain.get(kind, kind) for kind in types]
    return from_types(
        fields, types, lambda kind: attention(fields, family) if kind == FULL else mamba2(fields, *names)
    )


def nemotron_h(fields, family):
    """One letter a layer: M for Mamba-2, * for attention, - and E for an MLP or experts that stand alone.

    Newer files spell them out, in layers_block_type, and may leave the number of layers to that list.
    """
    words = fields.texts("layers_block_type", null=True)
    letters = (
        fields.text("hybrid_override_pattern") if words is None else [_LETTERS.get(word) for word in words]
    )
    if "num_hidden_layers" not in fields:
        fields.values["num_hidden_layers"] = len(letters)
    count = fields.integer("num_hidden_layers")
    if len(letters) < count or set(letters) - set("M*-E"):
        raise CheckpointError(
            f"{fields.where}: hybrid_override_pattern must be M, *, - or E, or layers_block_type "
            f"{', '.join(_LETTERS)}, for each of the {count} layers"
        )
    if fields.values["head_dim"] is None:
        fields.values["head_dim"] = fields.values["attention_head_dim"]
    names = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")

    def one(letter):
        if letter == "*":
            return attention(fields, family)
        return mamba2(fields, *names) if letter == "M" else Layer()

    return from_types(fields, letters[:count], one)


_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E", RECURRENT: "M", FULL: "*"}


def recurrent_gemma(fields, family):
    """Blocks repeat: recurrent, recurrent, attention, unless the file says another order."""
    given = fields.texts("block_types", null=True)
    blocks = ["recurrent", "recurrent", "attention"] if given is None else given
    if not blocks or set(blocks) - {"recurrent", "attention"}:
        raise CheckpointError(
            f"{fields.where}: block_types is {blocks}; it must list recurrent and attention"
        )
    rule = [SLIDING if block == "attention" else RECURRENT for block in blocks]
    types = layer_types(fields, lambda number: rule[number % len(rule)], known=(SLIDING, RECURRENT))
    window = fields.integer("sliding_window", null=True) or fields.integer("attention_window_size")
    return from_types(
        fields, types, lambda kind: attention(fields, family, window) if kind == SLIDING else rg_lru(fields)
    )


READERS = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), qwen3_next),
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "nemotron_h": nemotron_h,
    "recurrent_gemma": recurrent_gemma,
}
