"""Lesson 00: one exercise to see how exercises work, and the placement quiz."""

from kvlab.exercises.exercise import exercise
from kvlab.exercises.placement import Placed, Placement
from kvlab.exercises.questions import Option, Recall


@exercise(
    "00.token_bytes",
    cases=lambda: [
        dict(layers=30, kv_heads=3, head_dim=64, number_bytes=4),
        dict(layers=4, kv_heads=2, head_dim=32, number_bytes=8),
        dict(layers=1, kv_heads=1, head_dim=5, number_bytes=2),
        dict(layers=4, kv_heads=6, head_dim=16, number_bytes=1),
    ],
    minutes=3,
    difficulty="easy",
    hints=[
        "Count numbers first, bytes last: how many numbers is one key?",
        "A token leaves a key *and* a value, in every layer, for every KV head.",
    ],
)
def token_bytes(layers, kv_heads, head_dim, number_bytes):
    """Bytes that one token leaves in a KV cache: a key and a value, in every layer, for every KV head.

    A key and a value have ``head_dim`` numbers each, of ``number_bytes`` bytes.
    """
    # solve
    return 2 * layers * kv_heads * head_dim * number_bytes
    # end


@token_bytes.mistake("that is the keys alone. A value of the same size is kept beside each key.")
def _(layers, kv_heads, head_dim, number_bytes):
    return layers * kv_heads * head_dim * number_bytes


@token_bytes.mistake("that counts numbers. Each of them takes number_bytes bytes.")
def _(layers, kv_heads, head_dim, number_bytes):
    return 2 * layers * kv_heads * head_dim


@token_bytes.mistake("that is one layer. Every layer keeps its own keys and values.")
def _(layers, kv_heads, head_dim, number_bytes):
    return 2 * kv_heads * head_dim * number_bytes


PLACEMENT = Placement(
    [
        Placed(
            ("01",),
            Recall(
                "00.weights",
                "Four tokens with scores 2, 2, 2 and -1000 against a query. What comes out of attention?",
                (
                    Option("The first token's vector", "", False),
                    Option("About the mean of the first three tokens' vectors", "", True),
                    Option("The sum of all four vectors", "", False),
                ),
            ),
        ),
        Placed(
            ("02",),
            Recall(
                "00.projections",
                "A must read from B, B from C, C from A. Why can dot products of their vectors not do that?",
                (
                    Option("Because score(A, B) = score(B, A)", "", True),
                    Option("Because three vectors need three dimensions", "", False),
                    Option("Because softmax makes all weights positive", "", False),
                ),
            ),
        ),
        Placed(
            ("03",),
            Recall(
                "00.rope",
                "RoPE turns queries and keys by their position. The text moves on by 100. What changes?",
                (
                    Option("All attention scores", "", False),
                    Option("The scores of distant tokens", "", False),
                    Option("No attention score at all", "", True),
                ),
            ),
        ),
        Placed(
            ("04",),
            Recall(
                "00.cache",
                "Why may the key of an old token in layer 5 be kept while new tokens are written?",
                (
                    Option("It depends on its own token only", "", False),
                    Option("It depends on earlier tokens only, and those stay", "", True),
                    Option("It is recomputed from the value", "", False),
                ),
            ),
        ),
        Placed(
            ("05", "06"),
            Recall(
                "00.cost",
                "32 layers, 24 query and 8 KV heads of 128, in 16 bits. A token's keys and values take ...",
                (
                    Option("128 KiB", "", True),
                    Option("384 KiB", "", False),
                    Option("64 KiB", "", False),
                ),
            ),
        ),
    ]
)
