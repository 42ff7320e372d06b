"""Published figures, each at its own precision: the calculator agrees, or shows where the figure went wrong.

A row of published.json says what was stated, and how precisely. What it ``counts`` names a rule below, which
gives the exact value from the model's layers. A row that agrees does so within half a unit of its last digit;
one that ``agrees if`` does not ``without`` the condition; a wrong one does not agree, and where the reason
names a mechanism, the ``slip`` gives the wrong figure. ``also`` holds more figures of the same statement.

``precision`` has the number, the unit that was meant (``printed``: the one printed instead), the decimals (-1
for tens), and ``cut`` where digits were cut off and not rounded.
"""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from kvlab.memory import UNITS, ModelSpec, catalogue, cost, format_named, kv_bytes, read_bytes, weight_bytes
from kvlab.memory.engines import llamacpp_buffers, llamacpp_states, sglang_buffers, vllm_blocks
from kvlab.memory.layers import Attention

FULL_AT_END = ["sliding_attention"] * 5 + ["full_attention"]
GEMMA4 = {"model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "sliding_window": 1024}
QWEN = ModelSpec.named("Qwen3.5-27B")
NEMOTRON = {
    "model_type": "nemotron_h",
    "num_hidden_layers": 88,
    "hybrid_override_pattern": "MEMEMEMEME*" * 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "bfloat16",  # what the row counts; the checkpoint says float32
    "max_position_embeddings": 262144,
}


def gemma4(**fields):
    config = GEMMA4 | {"layer_types": FULL_AT_END * (fields["num_hidden_layers"] // 6)}
    return ModelSpec.from_config(config | {"max_position_embeddings": 131072} | fields)


def latent(layers):
    return ModelSpec.uniform_latent(layers=layers, kv_lora_rank=512, rope_dim=64, query_heads=128)


BY_HAND = {
    "100 layers of MHA": ModelSpec.uniform(layers=100, kv_heads=128, head_dim=128),
    "100 layers of MLA": latent(100),
    "DeepSeek-67B": ModelSpec.uniform(layers=95, kv_heads=8, head_dim=128, query_heads=64),
    "GLM-5, 78 layers": latent(78),
    "GLM-5, 79 blocks": latent(79),
    "Gemma-4-12B": gemma4(
        num_hidden_layers=48,
        num_attention_heads=16,
        num_key_value_heads=8,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
    ),
    "Gemma-4-E4B": gemma4(
        num_hidden_layers=42,
        num_attention_heads=8,
        num_key_value_heads=2,
        num_kv_shared_layers=18,
        sliding_window=512,
    ),
    "Laguna": ModelSpec("Laguna", (Attention(8, 128, 128),) * 12 + (Attention(8, 128, 128, 512),) * 36, 64),
    "Nemotron-H, 88 layers": ModelSpec.from_config(NEMOTRON),
    "Qwen3-VL-2B": ModelSpec.uniform(layers=28, kv_heads=8, head_dim=128, query_heads=16),
    "Qwen3.5-27B and its MTP layer": replace(QWEN, layers=(*QWEN.layers, Attention(4, 256, 256))),
    "bge-small": ModelSpec.uniform(layers=12, kv_heads=12, head_dim=32),
}


def model(name):
    """The ModelSpec of a row; for any length, since a figure may go beyond what the model was made for."""
    return replace(BY_HAND.get(name) or ModelSpec.named(name), max_tokens=None)


# Rules: row, spec -> the exact value in bytes, or in whatever the row counts; (least, most) where a range.


def all_bytes(row, spec):
    return cost(spec, row["tokens"], row["sequences"], row["dtype"], row["tp"]).bytes_total


def of_kind(states):
    def rule(row, spec):
        layers = tuple(layer for layer in spec.layers if (layer.kind == "state") == states)
        return all_bytes(row, replace(spec, layers=layers))

    return rule


def textbook(row, spec, kv_heads=None, head_dim=None, layers=None):
    """The formula of the textbooks, with what a mistaken reader would put into it."""
    first = next(layer for layer in spec.layers if isinstance(layer, Attention))
    values = (kv_heads or first.kv_heads) * (head_dim or first.key_dim) * (layers or len(spec.layers))
    return 2 * format_named(row["dtype"]).bytes_for(values) * row["tokens"] * row["sequences"]


def by_parameters(row, spec):
    billions = round(Fraction(spec.parameters, 10**9), 1)  # as a model's name has them
    return Fraction(7, 2) * 2**20 * billions * Fraction(row["tokens"], 1024)


def reduction(row, spec, against, bits):
    ours, theirs = (kv_bytes(each, row["tokens"], dtype=row["dtype"]) for each in (spec, model(against)))
    return 100 * (1 - Fraction(ours * bits, theirs * 16))


def growth(row, of_one):
    """The power of N at which the sum of ``of_one(N)`` grows, from twice as many tokens."""
    return Fraction(math.log2(of_one(2 * row["tokens"]) / of_one(row["tokens"])))


def growth_read(row, spec):
    return growth(row, lambda tokens: sum(read_bytes(spec, each) for each in range(1, tokens + 1)))


def vllm(row, spec, **options):
    return vllm_blocks(spec, row["dtype"], row["tp"], **options)


def pool_memory(row, spec, least_of_ranks=False):
    """The memory that gives exactly the blocks of so many tokens, and not one more.

    The tokens are the least of all ranks: the rank whose memory the log prints may have had more.
    """
    pool = vllm(row, spec)
    blocks = row["tokens"] // pool.block_size
    low, high = blocks * pool.block_bytes, (blocks + 1) * pool.block_bytes - 1
    assert blocks * pool.block_size == row["tokens"] and pool.cut(low) == pool.cut(high) == blocks
    return low, math.inf if least_of_ranks else high


def longest_memory(row, spec, **options):
    """The memory in which so many tokens are exactly the longest text."""
    pool = vllm(row, spec, **options)
    blocks = pool.needed(row["tokens"])
    low, high = blocks * pool.block_bytes, (blocks + 1) * pool.block_bytes - 1
    return (low, high) if pool.longest(blocks) == row["tokens"] else (math.inf, math.inf)


def text_memory(row, spec, **options):
    pool = vllm(row, spec, **options)
    return pool.needed(row["tokens"]) * pool.block_bytes


def texts_at_once(row, spec, max_tokens):
    pool = vllm(row, spec)
    return Fraction(row["tokens"] // pool.block_size, pool.needed(max_tokens))


def tokens_reported(row, spec, **options):
    """What the nearest whole number of blocks would report: one of so many steps of 717 tokens."""
    pool = vllm(row, spec, **options)
    blocks = round(Fraction(row["precision"]["number"]) * pool.needed(row["tokens"]) / row["tokens"])
    return pool.reported(blocks, row["tokens"])


def llamacpp(part):
    def rule(row, spec, **options):
        found = llamacpp_buffers(spec, row["tokens"], row["dtype"], **options)
        return found["full"].keys if part == "keys" else found[part].total

    return rule


RULES = {
    (None, "cache"): all_bytes,
    (None, "keys and values"): of_kind(states=False),
    (None, "states"): of_kind(states=True),
    (None, "textbook formula"): textbook,
    (None, "3.5 MiB a billion parameters"): by_parameters,
    (None, "reduction"): reduction,
    (None, "times the weights"): lambda row, spec: Fraction(all_bytes(row, spec), weight_bytes(spec, "fp16")),
    (None, "growth of the cache"): lambda row, spec: growth(row, lambda tokens: kv_bytes(spec, tokens)),
    (None, "growth of all bytes read"): growth_read,
    ("llama.cpp", "full layers"): llamacpp("full"),
    ("llama.cpp", "sliding layers"): llamacpp("sliding"),
    ("llama.cpp", "keys"): llamacpp("keys"),
    ("llama.cpp", "states"): lambda row, spec, **options: llamacpp_states(spec, **options),
    ("SGLang", "keys"): lambda row, spec: sglang_buffers(spec, row["tokens"], row["dtype"], row["tp"]).keys,
    ("vLLM", "block size"): lambda row, spec: vllm(row, spec).block_size,
    ("vLLM", "memory of the pool"): pool_memory,
    ("vLLM", "memory for one text"): text_memory,
    ("vLLM", "memory for the longest text"): longest_memory,
    ("vLLM", "texts at once"): texts_at_once,
    ("vLLM", "tokens reported"): tokens_reported,
}


def exact(row, change=lambda spec: spec):
    """(least, most) exact value; ``change`` spoils the model, to see that the row notices."""
    found = RULES[row["engine"], row["counts"]](row, change(model(row["model"])), **row.get("given", {}))
    return found if isinstance(found, tuple) else (found, found)


def stated(row):
    """(least, most) value that prints as the row's figure."""
    said = row["precision"]
    number, digit = Fraction(said["number"]), Fraction(10) ** -said["decimals"]
    low, high = (number, number + digit) if said.get("cut") else (number - digit / 2, number + digit / 2)
    unit = UNITS.get(said["unit"], 1)
    return low * unit, high * unit


def agrees(row, change=lambda spec: spec):
    (low, high), (least, most) = exact(row, change), stated(row)
    return low <= most and least <= high


def changed(row, by):
    """The row with some fields replaced; those that are objects are merged."""
    merged = {
        key: row[key] | value if isinstance(value, dict) and key in row else value
        for key, value in by.items()
    }
    return row | merged


def figures(row):
    """The row, and each further figure of it as a row of its own."""
    alone = {key: value for key, value in row.items() if key not in ("also", "slip", "without", "exact")}
    more = [changed(alone, each) | {"id": f"{row['id']}: {each['said']}"} for each in row.get("also", [])]
    return [row, *more]


ROWS = catalogue.published()
FIGURES = [figure for row in ROWS for figure in figures(row)]
UNEXPLAINED = {"heji-mla"}  # wrong, and nothing tells what was put into which formula


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row["id"])
def test_figure(row):
    if row["exact_bytes"] is not None:
        assert exact(row)[0] == row["exact_bytes"]
    if row["precision"]["unit"] in UNITS:
        assert row["said_bytes"] == round(
            Fraction(row["precision"]["number"]) * UNITS[row["precision"]["unit"]]
        )
    if row["verdict"] == "wrong":
        assert not agrees(row)
        assert ("slip" in row) == (row["id"] not in UNEXPLAINED)
        assert "slip" not in row or agrees(changed(row, row["slip"])), "the reason does not give the figure"
        assert row["exact_bytes"] is not None or agrees(row | {"precision": row["exact"]})
        return
    assert agrees(row), f"{row['said']}: exactly {row['exact_bytes']}, {row['said_bytes']} stated"
    assert ("without" in row) == row["verdict"].startswith("agrees if")
    assert "without" not in row or not agrees(changed(row, row["without"])), "the condition is not needed"


def head_more(spec, row):
    """One KV head more on each rank."""
    layers = (
        replace(layer, kv_heads=layer.kv_heads + row["tp"]) if layer.kind in ("full", "sliding") else layer
        for layer in spec.layers
    )
    return replace(spec, layers=tuple(layers))


def layer_less(spec, row):
    """One layer less of each kind."""
    layers = list(spec.layers)
    for kind in spec.kinds():
        layers.remove(next(layer for layer in layers if layer.kind == kind))
    return replace(spec, layers=tuple(layers))


COARSE = {"flexgen-opt175b", "rohan-13b"}  # two digits, or one
RATIOS = {  # how many texts of one length a number of blocks holds is the same for every model
    "vllm-10517-20k: 1.56x for 20,000 tokens",
    "vllm-10517-29k: 0.82x for 29,000 tokens",
    "vllm-qwen25-05b: 1888.16x for 1,024 tokens",
}
NO_HEADS = {  # latent layers and states
    "dsv2-933",
    "dsv3-128k",
    "dsv3-128k: 10.72 GiB at 160k",
    "dsv3-128k: 68.63 GiB at 1m",
    "dsv3-69kib",
    "llamacpp-qwen35-mtp-rs",
    "ts-nemotron",
    "unsloth-glm5",
    "unsloth-kimi",
}
ANY_LAYERS = {  # the size of a block, and the groups that it is cut for; the least of ranks bounds from below
    "vllm-hybrid-103326",
    "vllm-qwen36-27b-784",
    "vllm-21348-tp4",
}
SPOILED = [
    (head_more, COARSE | RATIOS | NO_HEADS | {"flexgen-opt175b: 3.8 times the weights", "jamba-256k"}),
    (layer_less, COARSE | RATIOS | ANY_LAYERS | {"insidellms-70b"}),
]


@pytest.mark.parametrize(("spoil", "blind"), SPOILED, ids=["one head more", "one layer less"])
def test_a_wrong_model_is_noticed(spoil, blind):
    """By every figure that agrees, but those that cannot tell."""
    good = [row for row in FIGURES if row["verdict"] != "wrong"]
    still = {row["id"] for row in good if agrees(row, lambda spec, row=row: spoil(spec, row))}
    assert len(good) == 69 and still == blind


def test_the_wrong_unit_is_noticed():
    """GB for GiB and GiB for GB, but where a single digit is printed."""
    pairs = [("KiB", "kB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB")]
    other = dict(pairs) | {decimal: binary for binary, decimal in pairs}
    good = [row for row in FIGURES if row["verdict"] != "wrong" and row["precision"]["unit"] in other]
    still = {
        row["id"]
        for row in good
        if agrees(changed(row, {"precision": {"unit": other[row["precision"]["unit"]]}}))
    }
    assert len(good) == 59 and still == {"jamba-256k", "rohan-13b"}


def test_every_row_is_checked():
    kinds = Counter(row["kind"] for row in ROWS)
    assert len(ROWS) == len({row["id"] for row in ROWS}) == 67
    assert kinds == {
        "log": 31, "wrong-claim": 10, "blog": 8, "paper": 7, "issue": 4, "calculator": 2, "test": 2,
        "readme": 1, "forum": 1, "book": 1,
    }  # fmt: skip
    assert all(row["why"] and row["source"] and row["said"] for row in ROWS)
    assert {row["verdict"].split(" if ")[0] for row in ROWS} == {"agrees", "wrong"}
    used = {(row["engine"], each["counts"]) for row in FIGURES for each in (row, row | row.get("slip", {}))}
    assert used == RULES.keys()
