"""Exercises of lesson 06, reading is the bottleneck."""

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "06.step_seconds",
    cases=lambda: [
        dict(weight_bytes=w, token_bytes=t, lengths=lengths, bandwidth=b)
        for w, t, lengths, b in (
            (16 * 10**9, 131_072, [4096], 3.35e12),
            (16 * 10**9, 131_072, [4096, 100, 32_768], 3.35e12),
            (269 * 10**6, 23_040, [1] * 8, 10e9),
            (10**9, 131_072, [32_768, 20_000], 3.35e12),
        )
    ],
    minutes=10,
    difficulty="easy",
    tolerance=1e-8,  # of seconds, and these are milliseconds
    hints=[
        "A step runs each weight matrix once, over all sequences together. What is read how often?",
        "Count bytes: what is read once for all, and what once for each sequence. Then divide.",
    ],
)
def step_seconds(weight_bytes, token_bytes, lengths, bandwidth):
    """The least time of one decode step of a batch, in seconds, by its reading alone -> float.

    weight_bytes: all weights; token_bytes: keys and values of one token, all layers; lengths: tokens of
    each sequence, the newest included; bandwidth: bytes a second
    """
    # solve
    return (weight_bytes + token_bytes * sum(lengths)) / bandwidth
    # end


@step_seconds.mistake("the weights are read once for the whole batch, not once a sequence.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes * len(lengths) + token_bytes * sum(lengths)) / bandwidth


@step_seconds.mistake("no sequence reads another one's cache, so none is shared: add up all lengths.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes + token_bytes * max(lengths)) / bandwidth


@step_seconds.mistake("each step reads all tokens so far, not only the newest.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes + token_bytes * len(lengths)) / bandwidth


@step_seconds.mistake("each sequence reads its own tokens: none is padded to the longest.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes + token_bytes * len(lengths) * max(lengths)) / bandwidth


@step_seconds.mistake("that is in milliseconds; seconds are asked for.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return 1000 * (weight_bytes + token_bytes * sum(lengths)) / bandwidth


@step_seconds.mistake("weights and caches come over one road, one after the other: add them up.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return max(weight_bytes, token_bytes * sum(lengths)) / bandwidth


@step_seconds.mistake("token_bytes has keys and values in it already: there is no further factor two.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes + 2 * token_bytes * sum(lengths)) / bandwidth


@step_seconds.mistake("the step gives each sequence a token, and takes its whole time for that.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return (weight_bytes + token_bytes * sum(lengths)) / bandwidth / len(lengths)


@step_seconds.mistake("the caches are missing: each step reads all of them.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return weight_bytes / bandwidth


@step_seconds.mistake("the weights are missing: every step runs through all of them.")
def _(weight_bytes, token_bytes, lengths, bandwidth):
    return token_bytes * sum(lengths) / bandwidth


@exercise(
    "06.outgrows",
    cases=lambda: [
        dict(weight_bytes=w, token_bytes=t, sequences=n)
        for w, t, n in (
            (1000, 10, 1),
            (1001, 10, 1),
            (16_060_522_496, 131_072, 1),
            (16_060_522_496, 131_072, 64),
        )
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "At how many tokens do the caches take exactly as much as the weights? One more, and they take more.",
        "Whole tokens: // rounds down to the last length at which they do not take more yet.",
    ],
)
def outgrows(weight_bytes, token_bytes, sequences):
    """The first length at which the caches of equally long sequences take more than the weights -> int.

    weight_bytes: all weights; token_bytes: keys and values of one token, all layers
    """
    # solve
    return weight_bytes // (token_bytes * sequences) + 1
    # end


@outgrows.mistake("that is the last length at which they do not take more: the first one is the next.")
def _(weight_bytes, token_bytes, sequences):
    return weight_bytes // (token_bytes * sequences)


@outgrows.mistake("rounding up is not enough where it comes out even: equal is not more.")
def _(weight_bytes, token_bytes, sequences):
    return -(-weight_bytes // (token_bytes * sequences))


@outgrows.mistake("each sequence has a cache of its own.")
def _(weight_bytes, token_bytes, sequences):
    return weight_bytes // token_bytes + 1


@outgrows.mistake("more sequences need fewer tokens each: divide by their number.")
def _(weight_bytes, token_bytes, sequences):
    return weight_bytes * sequences // token_bytes + 1


@exercise(
    "06.intensity",
    cases=lambda: [
        dict(query_heads=q, kv_heads=h, head_dim=d, number_bytes=b)
        for q, h, d, b in ((32, 32, 128, 2), (32, 8, 128, 2), (71, 1, 64, 2), (6, 2, 32, 4))
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Per token in the cache: a query head multiplies its query with the key (head_dim multiply-adds) and "
        "weighs the value (as many again). A multiply-add is 2 FLOPs.",
        "FLOPs are paid for each query head, bytes for each KV head, number_bytes for each number. How many "
        "tokens there are cancels.",
    ],
)
def intensity(query_heads, kv_heads, head_dim, number_bytes):
    """FLOPs that decode attention does for each byte of cache it reads -> float.

    Matrix products only: the scores, and the weighted values; no softmax. number_bytes: what one number takes
    """
    # solve
    flops = query_heads * 2 * (2 * head_dim)
    nbytes = kv_heads * 2 * head_dim * number_bytes
    return flops / nbytes
    # end


@intensity.mistake(
    "FLOPs and bytes are counted for the same heads: query heads compute, and KV heads are read."
)
def _(query_heads, kv_heads, head_dim, number_bytes):
    return 2 / number_bytes


@intensity.mistake("half of the FLOPs are missing: a multiply-add is two, with the key *and* with the value.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return query_heads / kv_heads / number_bytes


@intensity.mistake("a number does not always take two bytes: divide by number_bytes.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return query_heads / kv_heads


@intensity.mistake("head_dim stands above and below the line, so it cancels.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return 2 * query_heads * head_dim / (kv_heads * number_bytes)


@intensity.mistake("the answer is no whole number: divide with / and not with //.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return float(query_heads * 4 * head_dim // (kv_heads * 2 * head_dim * number_bytes))


@intensity.mistake("numbers were counted in place of bytes.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return 2 * query_heads / kv_heads


@intensity.mistake("values are read as well as keys.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return 4 * query_heads / (kv_heads * number_bytes)


@intensity.mistake("that is bytes for each FLOP: the other way round.")
def _(query_heads, kv_heads, head_dim, number_bytes):
    return kv_heads * number_bytes / (2 * query_heads)


RECALL["06"] = [
    Recall(
        "06.step",
        "What does one decode step of one sequence read?",
        (
            Option(
                "The newest token's key and value", "Those it writes. The query meets all the earlier ones."
            ),
            Option(
                "All weights, and the keys and values of all tokens so far", "Both, every time.", right=True
            ),
            Option(
                "All weights; the cache stays in the processor",
                "A long cache is larger than that memory, and the weights pass through in between.",
            ),
        ),
    ),
    Recall(
        "06.batch",
        "Why does a larger batch make a server cheaper, and where does the gain fade?",
        (
            Option(
                "Weights are read once for all; it fades where the caches are most of what is read",
                "Caches are never shared, unless their texts begin alike (lesson 13).",
                right=True,
            ),
            Option(
                "Caches are read once for all; it fades at the number of heads",
                "No cache serves two sequences.",
            ),
            Option(
                "It never fades: a batch of 1,000 costs what one costs",
                "Its 1,000 caches are read one by one.",
            ),
        ),
    ),
    Recall(
        "06.bound",
        "A GPU shows 100% utilisation while it decodes at batch 1. What is it doing?",
        (
            Option(
                "Arithmetic, as fast as it can", "It could do hundreds of times as much with what it reads."
            ),
            Option(
                "Waiting for memory, nearly all the time",
                "'Utilised' means that a kernel is running.",
                right=True,
            ),
            Option("Nothing: the number is wrong", "It is right, and says only that a kernel is running."),
        ),
    ),
    Recall(
        "06.recompute",
        "Reading the cache has become the bottleneck. Would it be faster without a cache?",
        (
            Option("Yes, on a fast GPU", "Recomputing costs the work of the whole text, every step."),
            Option(
                "No: for a very short text it is about equal, and then far slower",
                "Some hundred tokens the GPU's idle arithmetic recomputes while the weights are read.",
                right=True,
            ),
            Option("Yes, in a large batch", "Then arithmetic is not even idle: each text is recomputed."),
        ),
    ),
    Recall(
        "06.heads",
        "Which change lets attention itself do more arithmetic for each byte it reads?",
        (
            Option("A larger batch", "Each sequence brings its own bytes: the ratio stays."),
            Option("A longer text", "FLOPs and bytes grow alike."),
            Option(
                "More query heads for each KV head", "They share what is read: lessons 07 and 08.", right=True
            ),
        ),
    ),
    Recall(
        "06.prefill",
        "Why is prefill not slowed down by memory in the same way?",
        (
            Option("It reads no weights", "It reads them all, as decode does."),
            Option(
                "Its many tokens share each weight that is read", "So arithmetic is its limit.", right=True
            ),
            Option("It has no cache yet", "It fills one. What matters is how much is done with each byte."),
        ),
    ),
]
