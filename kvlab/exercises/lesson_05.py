"""Exercises of lesson 05, what a cache costs."""

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall

_FULL = {"kind": "full", "kv_heads": 2, "key_dim": 5, "value_dim": 5}
_WIDE = {"kind": "full", "kv_heads": 3, "key_dim": 7, "value_dim": 4}
_SLIDING = {"kind": "sliding", "kv_heads": 4, "key_dim": 6, "value_dim": 6, "window": 9}
_LATENT = {"kind": "latent", "rank": 11, "rope": 3}
_SHARED = {"kind": "shared"}
_STATE = {"kind": "state", "bytes": 1000}


@exercise(
    "05.cache_bytes",
    cases=lambda: [
        dict(layers=layers, tokens=tokens, number_bytes=width)
        for layers in (
            [_FULL, _FULL],
            [_WIDE, _SLIDING],
            [_LATENT, _FULL, _SHARED],
            [_STATE, _SLIDING, _LATENT],
        )
        for tokens, width in ((1, 2), (9, 2), (40, 1))
    ],
    minutes=15,
    difficulty="medium",
    hints=[
        "A loop over the layers, and a sum. Each kind answers two questions: how many tokens does it still "
        "hold, and how many numbers does it keep for one of them?",
        "A sliding layer holds min(tokens, window) tokens. A latent layer keeps rank + rope numbers a token, "
        "and no factor two: keys and values are both made from the same latent.",
        "A shared layer reads another layer's cache and keeps none; a state has its bytes at any length.",
    ],
)
def cache_bytes(layers, tokens, number_bytes):
    """Bytes of one sequence's cache, layer by layer -> int.

    A layer is a dict; ``layer["kind"]`` says what else is in it:
    full     kv_heads, key_dim, value_dim
    sliding  the same, and window: how many tokens a query sees, its own included
    latent   rank: width of the latent that keys and values are both made from; rope: of the key for positions
    shared   nothing: it reads the cache of another layer
    state    bytes: what it takes, at any length
    number_bytes: what one number takes
    """
    # solve
    total = 0
    for layer in layers:
        if layer["kind"] == "state":
            total += layer["bytes"]
        elif layer["kind"] == "latent":
            total += tokens * (layer["rank"] + layer["rope"]) * number_bytes
        elif layer["kind"] in ("full", "sliding"):
            held = min(tokens, layer.get("window", tokens))
            total += held * layer["kv_heads"] * (layer["key_dim"] + layer["value_dim"]) * number_bytes
    return total
    # end


def _variant(
    layers, tokens, number_bytes, latent=1, held=min, shared=0, state=None, values="value_dim", rope=1
):
    total, last = 0, 0
    for layer in layers:
        kind = layer["kind"]
        if kind == "state":
            last = layer["bytes"] * (state(tokens, number_bytes) if state else 1)
        elif kind == "latent":
            last = latent * tokens * (layer["rank"] + rope * layer["rope"]) * number_bytes
        elif kind == "shared":
            last = shared * last
        else:
            rows = held(tokens, layer["window"]) if "window" in layer else tokens
            last = rows * layer["kv_heads"] * (layer["key_dim"] + layer.get(values, 0)) * number_bytes
        total += last
    return total


for _meaning, _wrong in {
    "a latent is kept once: keys and values are both made from it, so there is no factor two.": {"latent": 2},
    "a sliding layer forgets: it never holds more tokens than its window.": {"held": lambda t, window: t},
    "the window counts the query's own token too: it holds min(tokens, window).": {
        "held": lambda t, window: min(t, window - 1)
    },
    "a window that is full stays full: each new token takes the place of the oldest.": {
        "held": lambda t, window: t % window
    },
    "a shared layer keeps nothing: what it reads has been counted where it lies.": {"shared": 1},
    "a state is constant: no token makes it larger.": {"state": lambda t, width: t},
    "a state is said in bytes already: number_bytes has no part in it.": {"state": lambda t, width: width},
    "values can be narrower than keys: add key_dim and value_dim, do not double one of them.": {
        "values": "key_dim"
    },
    "that counts the keys alone: values are kept beside them.": {"values": None},
    "the rope key is kept beside the latent.": {"rope": 0},
}.items():
    cache_bytes.mistake(_meaning)(lambda *case, _wrong=_wrong: _variant(*case, **_wrong))


@exercise(
    "05.users",
    cases=lambda: [
        dict(capacity=m, weights=w, token_bytes=b, tokens=t, block_size=n)
        for m, w, b, t, n in (
            (10_000, 1_000, 10, 7, 4),
            (10_000, 1_000, 10, 8, 4),
            (85_520_809_984, 16_060_522_496, 131_072, 5_000, 16),
            (24 * 2**30, 16_060_522_496, 131_072, 100, 256),
            (10_000, 12_345, 10, 7, 4),
        )
    ],
    minutes=10,
    difficulty="easy",
    hints=[
        "First one sequence: how many whole blocks does it need, and how many bytes are they?",
        "Rounding up without floats: -(-tokens // block_size).",
    ],
)
def users(capacity, weights, token_bytes, tokens, block_size):
    """How many sequences of ``tokens`` tokens fit beside the weights -> int; 0 if the weights do not fit.

    Memory is handed out in whole blocks of ``block_size`` tokens, and no two sequences share one. capacity,
    weights: bytes; token_bytes: of one token, all layers together
    """
    # solve
    blocks = -(-tokens // block_size)
    return max(0, capacity - weights) // (blocks * block_size * token_bytes)
    # end


@users.mistake("the last block of each sequence is partly empty, and still taken: round up to whole blocks.")
def _(memory, weights, token_bytes, tokens, block_size):
    return (memory - weights) // (tokens * token_bytes)


@users.mistake("rounding down leaves the last tokens without a block: round up.")
def _(memory, weights, token_bytes, tokens, block_size):
    return max(0, memory - weights) // (tokens // block_size * block_size * token_bytes)


@users.mistake("a text that fills its last block needs no further one: round up, and do not add 1.")
def _(memory, weights, token_bytes, tokens, block_size):
    return max(0, memory - weights) // ((tokens // block_size + 1) * block_size * token_bytes)


@users.mistake("the weights lie in the same memory.")
def _(memory, weights, token_bytes, tokens, block_size):
    return memory // (-(-tokens // block_size) * block_size * token_bytes)


@users.mistake("fewer than none cannot fit: where the weights alone are too large, the answer is 0.")
def _(memory, weights, token_bytes, tokens, block_size):
    return (memory - weights) // (-(-tokens // block_size) * block_size * token_bytes)


@users.mistake("sequences do not share a block: round up to whole blocks for each of them.")
def _(memory, weights, token_bytes, tokens, block_size):
    return max(0, memory - weights) // (block_size * token_bytes) * block_size // tokens


CAUSES = ("right", "query heads", "one layer", "four bytes", "one of two", "GB for GiB", "none of these")


def _claims():
    shapes = {
        "Llama-3.1-8B": (32, 32, 8, 128),
        "Llama-2-70B": (80, 64, 8, 128),
        "Llama-3.1-70B": (80, 64, 8, 128),
        "Llama-2-13B": (40, 40, 40, 128),
        "Llama-3.1-405B": (126, 128, 8, 128),
        "Qwen3-0.6B": (28, 16, 8, 128),
    }
    stated = [
        (4_096, "Llama-3.1-8B", 1),
        (5_240_000_000, "Llama-2-70B", 2_048),
        (340_000_000_000, "Llama-3.1-70B", 131_072),
        (1_572_864, "Llama-2-13B", 1),
        (88_080_384, "Qwen3-0.6B", 40_960),
        (516_096, "Llama-3.1-405B", 1),
        (8_600_000_000, "Llama-3.1-8B", 131_072),
        (16_000_000_000, "Llama-3.1-8B", 131_072),
        (819_200, "Llama-2-13B", 1),
        (876_544, "Llama-2-13B", 1),
        (229_376, "Qwen3-0.6B", 1),
    ]
    names = ("layers", "query_heads", "kv_heads", "head_dim")
    return [
        dict(said=said, **dict(zip(names, shapes[model], strict=True)), tokens=tokens)
        for said, model, tokens in stated
    ]


@exercise(
    "05.diagnose",
    cases=_claims,
    minutes=15,
    difficulty="medium",
    hints=[
        "Write down six guesses: the right number, and one for each mistake. Which comes near?",
        "A stated number is rounded, so do not ask for equality: abs(said - guess) <= 0.05 * guess.",
        "Two causes can lead to one number: try them in their order and return at the first that is near; "
        'after the loop, "none of these".',
    ],
)
def diagnose(said, layers, query_heads, kv_heads, head_dim, tokens):
    """Which mistake leads to the stated number of bytes, give or take 5%? The cache is in bf16. -> str

    "right"          2 x layers x kv_heads x head_dim x 2 bytes x tokens
    "query heads"    query heads taken for KV heads
    "one layer"      the layers forgotten
    "four bytes"     a number counted as 4 bytes
    "one of two"     keys or values alone
    "GB for GiB"     the right number of GiB, written as GB: too small by the factor 10**9 / 2**30
    "none of these"
    Try them in this order and return the first that fits.
    """
    # solve
    right = 2 * layers * kv_heads * head_dim * 2 * tokens
    guesses = {
        "right": right,
        "query heads": right // kv_heads * query_heads,
        "one layer": right // layers,
        "four bytes": right * 2,
        "one of two": right // 2,
        "GB for GiB": right * 10**9 / 2**30,
    }
    for cause, guess in guesses.items():
        if abs(said - guess) <= 0.05 * guess:
            return cause
    return "none of these"
    # end


def _diagnosis(
    said,
    layers,
    query_heads,
    kv_heads,
    head_dim,
    tokens,
    near=0.05,
    pick=lambda fits: fits[0],
    gb=10**9 / 2**30,
):
    right = 2 * layers * kv_heads * head_dim * 2 * tokens
    guesses = [right, right // kv_heads * query_heads, right // layers, right * 2, right // 2, right * gb]
    off = [abs(said - guess) / guess for guess in guesses]
    if pick is min:
        return CAUSES[off.index(min(off))]
    fits = [cause for cause, each in zip(CAUSES, off, strict=False) if each <= near]
    return pick(fits) if fits else CAUSES[-1]


for _meaning, _wrong in {
    "a stated number is rounded: allow 5%, and do not ask for equality.": {"near": 0},
    'the nearest formula is not always near: say "none of these" when it is more than 5% off.': {"pick": min},
    "that accepts what is further off than 5%.": {"near": 0.1},
    "two causes lead to the same number: keep to the order, and return at the first that fits.": {
        "pick": lambda fits: fits[-1]
    },
    "a GB is smaller than a GiB: the number that was written is too small, by 10**9 / 2**30.": {
        "gb": 2**30 / 10**9
    },
}.items():
    diagnose.mistake(_meaning)(lambda *claim, _wrong=_wrong: _diagnosis(*claim, **_wrong))


RECALL["05"] = [
    Recall(
        "05.linear",
        "A text grows to twice its length. What happens to its cache, in a model with full attention?",
        (
            Option("It takes twice the bytes", "Every token leaves the same number of bytes.", right=True),
            Option(
                "It takes four times the bytes",
                "That is the attention work of the whole text, and the bytes read while writing it.",
            ),
            Option("It stays: keys and values are overwritten", "That is a window, or a state."),
        ),
    ),
    Recall(
        "05.heads",
        "Which heads does the formula count?",
        (
            Option("Query heads", "They ask, and are forgotten: nothing of them is kept."),
            Option(
                "KV heads",
                "Each has one key and one value a token, however many query heads read them.",
                right=True,
            ),
            Option("Both", "Queries are not cached at all (lesson 04)."),
            Option(
                "Layers; heads are inside them",
                "Layers are another factor. In Llama-2-7B both happen to be 32.",
            ),
        ),
    ),
    Recall(
        "05.falcon",
        "A calculator is right for Llama-2 and 71 times too high for Falcon-7B. Why?",
        (
            Option("Falcon's weights are smaller", "Weights have no part in the formula."),
            Option(
                "It counted 71 query heads where one KV head serves them all",
                "That is multi-query.",
                right=True,
            ),
            Option("It took GB for GiB", "That is a difference of 7%."),
        ),
    ),
    Recall(
        "05.window",
        "52 of 62 layers slide over 1,024 tokens. At 131,072 tokens, what do those 52 hold together?",
        (
            Option("52/62 of the naive total", "That counts them in full."),
            Option("Nothing", "They hold their window."),
            Option(
                "1,024 tokens each, whatever the length",
                "So they are a constant, and the other 10 layers are what grows.",
                right=True,
            ),
        ),
    ),
    Recall(
        "05.units",
        "One tool says 16 GB and another 17.2 GB for the same cache. Do they count differently?",
        (
            Option(
                "Yes: the first counts too little", "Perhaps it only means GiB and writes GB, as many do."
            ),
            Option("Yes: the second counts too much", "17.2 GB is 17.2 x 10**9 bytes, which 16 GiB are."),
            Option("Perhaps not: 16 GiB are 17.2 GB", "Then the first has only the wrong unit.", right=True),
        ),
    ),
    Recall(
        "05.ranks",
        "A model with 4 KV heads moves from 4 GPUs to 8 (tensor parallel). Its cache on each GPU...",
        (
            Option("halves", "Only down to one head per GPU. There are no half heads."),
            Option(
                "stays: each KV head now lies on two GPUs",
                "Room is gained only because each GPU holds fewer weights.",
                right=True,
            ),
            Option("doubles", "It stays on each GPU; over all GPUs together it doubles."),
        ),
    ),
]
