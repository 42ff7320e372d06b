"""Models drawn at random, small configurations, and a cache simulated row by row to check against."""

from hypothesis import settings
from hypothesis import strategies as st

from kvlab.memory import FORMATS, Attention, Compressed, Latent, Layer, ModelSpec, Shared, State

few = settings(max_examples=80, deadline=None)
RANKS = (1, 2, 4, 8, 16)  # 16 query heads, 1 to 16 KV heads: each shares out evenly or is copied evenly
BF16, FP32 = FORMATS["bf16"], FORMATS["fp32"]

widths = st.sampled_from((32, 64, 96, 160))  # whole blocks of every format
kv_heads = st.sampled_from(RANKS)
windows = st.none() | st.integers(1, 70)
indexes = st.sampled_from(({}, {"index_dim": 24}, {"index_dim": 24, "index_topk": 9}, {"index_topk": 9}))
formats = st.sampled_from(sorted(FORMATS))
ranks = st.sampled_from(RANKS)
tokens = st.integers(0, 300)
sequences = st.integers(1, 5)

attentions = st.builds(Attention, kv_heads, widths, widths, windows)
indexed = st.builds(lambda heads, dim, more: Attention(heads, dim, dim, **more), kv_heads, widths, indexes)
latents = st.builds(
    lambda rank, more: Latent(1, rank + 32, rank, naive_dims=(40, 24), **more), widths, indexes
)
shared = st.builds(Shared, attentions)
states = st.builds(
    lambda heads, group, columns: State(16, 16 * heads, columns, 16 * 40, BF16, FP32, group, 12),
    st.integers(1, 5),
    st.sampled_from((0, 2, 16)),
    st.integers(1, 4),
)
compressed = st.builds(
    lambda dim, window, ratio, more: Compressed(dim, window, ratio, **more),
    widths,
    st.integers(1, 40),
    st.sampled_from((None, 4, 16)),
    indexes,
)
nothing = st.just(Layer())
linear_layers = attentions | indexed | latents | shared | states | nothing
any_layer = linear_layers | compressed


def specs(layer=any_layer, **more):
    return st.builds(
        lambda layers: ModelSpec("drawn", tuple(layers), 16, **more), st.lists(layer, min_size=1, max_size=5)
    )


PLAIN = {"num_hidden_layers": 4, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2}
MLA = {"kv_lora_rank": 20, "qk_rope_head_dim": 6, "qk_nope_head_dim": 14, "v_head_dim": 8}


def read(model_type, *absent, **fields):
    """The model of a small configuration, whose heads are 8 wide unless it says otherwise."""
    config = PLAIN | {"model_type": model_type} | fields
    return ModelSpec.from_config({name: value for name, value in config.items() if name not in absent})


def toy(*layers, query_heads=16, **more):
    return ModelSpec("toy", layers, query_heads, **more)


def alive(layer, tokens):
    """(rows, compressed rows) alive as token number ``tokens`` is computed, by keeping and dropping rows."""
    rows, packed, pending = [], 0, 0
    for token in range(tokens):
        rows.append(token)
        if layer.window is not None:
            rows = [row for row in rows if token - row < layer.window]
        pending += 1
        if getattr(layer, "ratio", None) == pending:
            packed, pending = packed + 1, 0
    return len(rows), packed


def blocks_touched(tokens, window, block_size):
    """The most blocks that a sequence held at once up to ``tokens`` tokens, each freed when its last row has
    left the window."""
    held, most = set(), 0
    for token in range(tokens):
        held.add(token // block_size)
        if window is not None:
            first = max(0, token - window + 1)
            held = {block for block in held if (block + 1) * block_size > first}
        most = max(most, len(held))
    return most


def heads_of(rank, ranks, query_heads, kv_heads):
    """The KV heads that one rank needs, when query heads are shared out in order."""
    share = query_heads // ranks
    return {query * kv_heads // query_heads for query in range(rank * share, (rank + 1) * share)}
