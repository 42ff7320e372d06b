"""The attention kernel, interpreted: every option against the reference in float64, and what it touches."""

import math
import random

import pytest
import torch

import kvlab
from kvlab.kernels import Batch, paged_attention, triton_launch
from kvlab.kernels.triton_launch import Tiling
from tests.kernels import cases
from tests.kernels.cases import (
    EIGHT_BITS,
    SMALL_TILES,
    UNITS,
    Watched,
    assert_exact,
    attend,
    attend_watched,
    build,
    exact,
    far,
    in_dtype,
    untouched,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
STORED = [(dtype, kind) for dtype in EIGHT_BITS for kind in UNITS]
PLAIN = cases.PLAIN | {"contexts": [21, 5, 17], "queries": [1, 0, 3], "block_size": 8}
AXES = {
    "block_size": [1, 2, 3, 8, 16, 32, 128],
    "kv_heads": [1, 2, 3],
    "group": [1, 2, 3, 4, 5, 8],
    "key_dim": [1, 5, 16, 17, 20, 33],
    "value_dim": [1, 2, 6, 16, 18, 31],
    "window": [None, None, 1, 2, 5, 15, 17, 100],
    "values_in_keys": [False, False, True],
    "sinks": [False, True],
}
TILES = [
    SMALL_TILES,
    SMALL_TILES,
    *(Tiling(rows, tokens, 4, 2) for rows, tokens in ((16, 32), (32, 16), (64, 16))),
]
MOST_TURNS = 24  # of a random problem: a turn of a program takes the interpreter about 10 ms


def drawn(seed):
    """-> (arguments of ``build``, of ``in_dtype``, and of ``attend``)."""
    draw = random.Random(seed)
    while True:
        problem = {axis: draw.choice(values) for axis, values in AXES.items()}
        block, group = problem["block_size"], problem["group"]
        edges = [0, 1, block - 1, block, block + 1, 15, 16, 17, 31, 33, draw.randint(2, 50)]
        contexts = [draw.choice(edges) for _ in range(draw.randint(1, 3))]
        queries = [min(draw.choice([0, 1, 1, draw.randint(2, 7)]), context or 2) for context in contexts]
        tiles = [
            -(-group * n // 16) * (1 + context // 16) for n, context in zip(queries, contexts, strict=True)
        ]
        if problem["kv_heads"] * (sum(tiles) + group * sum(queries) / 2) < MOST_TURNS:
            break
    problem |= {"contexts": contexts, "queries": queries, "seed": seed}
    problem["scale"] = draw.choice([0.3, 1, 1.7]) / math.sqrt(problem["key_dim"])
    kinds = [None, None, *STORED]
    stored = {"dtype": draw.choice(DTYPES), "keys": draw.choice(kinds), "values": draw.choice(kinds)}
    return problem, stored, {"tiles": draw.choice(TILES), "num_splits": draw.choice([None, 1, 2, 3, 5, 99])}


def check(problem, stored, tiles=SMALL_TILES, run=attend, **more):
    given, options = in_dtype(*build(**problem), **stored)
    assert_exact(run(given, options, tiles, **more), given, options)


@pytest.mark.parametrize("seed", range(100))
def test_random_batches(seed):
    problem, stored, more = drawn(seed)
    check(problem, stored, run=attend_watched, **more)


@pytest.mark.slow
def test_two_thousand_random_batches():
    for seed in range(100, 2100):
        problem, stored, more = drawn(seed)
        try:
            check(problem, stored, run=attend_watched if seed % 2 else attend, **more)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_hundred_have_every_size_and_kind():
    drawings = [drawn(seed) for seed in range(100)]
    for axis, values in AXES.items():
        assert {problem[axis] for problem, _, _ in drawings} == set(values), axis
    assert {stored["keys"] for _, stored, _ in drawings} == {None, *STORED}
    assert any(problem["window"] and (more["num_splits"] or 1) > 1 for problem, _, more in drawings)


@pytest.mark.parametrize("block_size", AXES["block_size"])
def test_contexts_around_the_edges_of_blocks_and_tiles(block_size):
    contexts = sorted({0, 1, block_size - 1, block_size, block_size + 1, 15, 16, 17})
    sizes = {"queries": [1] * len(contexts), "block_size": block_size, "kv_heads": 1, "group": 2}
    check(PLAIN | sizes | {"contexts": contexts}, {"dtype": torch.float32})


@pytest.mark.parametrize("group", AXES["group"])
def test_query_heads_share_a_kv_head(group):
    check(PLAIN | {"contexts": [19, 7], "queries": [1, 7], "group": group}, {"dtype": torch.float16})


@pytest.mark.parametrize("queries", [[1, 1, 1], [2, 5, 9], [0, 5, 0], [1, 0, 1], [0, 0, 0], [12, 2, 1]])
def test_new_tokens_of_some_sequences(queries):
    check(PLAIN | {"queries": queries}, {"dtype": torch.float32}, run=attend_watched, num_splits=2)


def test_new_tokens_of_a_sequence_without_context_are_zeros():
    problem = PLAIN | {"contexts": [0, 18, 0], "queries": [3, 2, 1], "sinks": True}
    given, options = in_dtype(*build(**problem), torch.float32)
    got = attend(given, options, num_splits=2)
    assert_exact(got, given, options)
    assert (got[[0, 1, 2, 5]] == 0).all()


WIDTHS = [
    (64, 80),
    (80, 64),
    (96, 128),
    (128, 96),
    (192, 128),
    (256, 192),
    (256, 256),
    (1, 1),
    (3, 17),
    (17, 3),
]


@pytest.mark.parametrize("number", range(len(WIDTHS)))
def test_widths_with_the_usual_tiles(number):
    key_dim, value_dim = WIDTHS[number]
    sizes = {"contexts": [35, 3], "queries": [2, 1], "kv_heads": 1, "group": 4, "block_size": 16}
    sizes |= {"key_dim": key_dim, "value_dim": value_dim, "scale": 1.2 / math.sqrt(key_dim)}
    check(PLAIN | sizes, {"dtype": DTYPES[number % 3]}, tiles=None)


@pytest.mark.parametrize("keys", [None, (torch.int8, "head"), (torch.float8_e4m3fn, "each")])
@pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 16), (20, 16), (24, 20), (5, 5), (3, 2), (40, 1)])
def test_values_that_are_the_keys_first_columns(key_dim, value_dim, keys):
    sizes = {"contexts": [18, 3], "queries": [3, 1], "kv_heads": 1, "values_in_keys": True}
    problem = PLAIN | sizes | {"key_dim": key_dim, "value_dim": value_dim}
    check(problem, {"dtype": torch.bfloat16, "keys": keys}, run=attend_watched, num_splits=2)


def test_latent_attention_as_deepseek_has_it():
    sizes = {"contexts": [35], "queries": [1], "kv_heads": 1, "group": 16, "block_size": 16}
    sizes |= {"key_dim": 576, "value_dim": 512, "values_in_keys": True, "scale": 1 / math.sqrt(192)}
    check(PLAIN | sizes, {"dtype": torch.bfloat16}, tiles=None)


@pytest.mark.parametrize("window", [1, 2, 5, 15, 16, 17, 30, 1000])
def test_windows(window):
    problem = PLAIN | {"contexts": [40, 19], "queries": [6, 1], "window": window, "sinks": window % 2 == 0}
    for num_splits in (1, 3):
        check(problem, {"dtype": torch.float32}, run=attend_watched, num_splits=num_splits)


def test_the_widest_tile_of_rows_sees_all_of_its_windows():
    """16 rows of groups of 6 can be of 4 tokens: with a window of 14, 17 visible tokens, more than a tile."""
    problem = PLAIN | {"contexts": [40], "queries": [6], "group": 6, "window": 14}
    check(problem, {"dtype": torch.float32}, run=attend_watched, num_splits=1)


def test_rows_that_see_nothing_of_the_first_tokens():
    """Their first tile is masked whole: what was weighed in it is taken back once there is something."""
    problem = PLAIN | {"contexts": [50, 9], "queries": [35, 2], "kv_heads": 1, "group": 1, "window": 3}
    for num_splits in (1, 2):
        check(problem, {"dtype": torch.float16}, Tiling(32, 16, 4, 2), attend_watched, num_splits=num_splits)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 4, 5, 64, 1000])
def test_parts_of_contexts(num_splits):
    problem = PLAIN | {"contexts": [66, 3, 17], "queries": [1, 2, 1], "kv_heads": 1, "sinks": True}
    check(problem, {"dtype": torch.float16}, run=attend_watched, num_splits=num_splits)


@pytest.mark.parametrize(
    ("more", "multiprocessors", "parts"),
    [
        ({"contexts": [1100]}, 132, 3),
        ({"contexts": [500]}, 132, 1),
        ({"contexts": [600], "window": 30}, 132, 1),
        ({"contexts": [600, 2], "window": 520}, 132, 2),
        ({"contexts": [520, 6], "queries": [6, 2], "kv_heads": 2}, 8, 1),  # 2 sequences, heads, and tiles
    ],
)
def test_contexts_are_cut_where_multiprocessors_would_wait(monkeypatch, more, multiprocessors, parts):
    kernel = Watched(triton_launch.attend_part, "parts", "logs")
    monkeypatch.setattr(triton_launch, "attend_part", kernel)
    monkeypatch.setattr(triton_launch, "multiprocessors", lambda device: multiprocessors)
    sizes = {"queries": [1] * len(more["contexts"]), "block_size": 128, "kv_heads": 1}
    check(PLAIN | sizes | more, {"dtype": torch.float16}, Tiling(16, 128, 4, 2))
    assert [launch.grid[2] for launch in kernel.launches] == [parts]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", range(len(STORED)))
def test_stored_numbers_and_their_scales(dtype, number):
    keys, values = STORED[number], STORED[(number + 4) % len(STORED)]
    check(PLAIN | {"contexts": [21, 6, 5]}, {"dtype": dtype, "keys": keys, "values": values})


@pytest.mark.parametrize("kind", UNITS)
def test_stored_numbers_of_16_bits_with_scales(kind):
    stored = {"keys": (torch.float16, kind), "values": (torch.bfloat16, kind)}
    check(PLAIN, {"dtype": torch.float32} | stored)
    check(PLAIN, {"dtype": torch.float32, "values": stored["values"]})


def test_scores_far_from_zero():
    """The largest is subtracted before anything is a power: 2**1000 is no float32."""
    problem = PLAIN | {"contexts": [21, 1, 1], "queries": [1, 1, 1], "sinks": True}
    given, options = in_dtype(*build(**problem | {"scale": 1000.0}), torch.float32)
    options["sink_logits"] *= 1000
    got, right = attend(given, options, num_splits=2), exact(given, options)
    assert (got - right).abs().max() < 1e-3  # scores have few digits left behind the point
    options["sink_logits"] -= 10**5  # sinks that nobody notices, and sinks that take everything
    assert (attend(given, options) - exact(given, options)).abs().max() < 1e-3
    options["sink_logits"] += 2 * 10**5
    assert (attend(given, options, num_splits=2) == 0).all()


@pytest.mark.parametrize("values_in_keys", [False, True])
def test_pages_beyond_two_to_the_31(values_in_keys):
    problem = PLAIN | {"key_dim": 16, "value_dim": 16, "values_in_keys": values_in_keys}
    stored = {"keys": (torch.int8, "head"), "values": (torch.int8, "number")}
    given, options = in_dtype(*build(**problem), torch.float16, **stored)
    with untouched():
        got = attend_watched(far(given), options, num_splits=2)
    assert_exact(got, given, options)


def test_queries_beyond_two_to_the_31():
    """The kernel itself is started, for one of the tokens."""
    tokens, width = 2**25 + 1, 64
    q, ones = torch.empty(tokens, 1, width, dtype=torch.float16), torch.ones(1, dtype=torch.int32)
    parts, logs = torch.empty(2, tokens, 1, 1, 1)
    q[-1] = 1
    pages = torch.full((1, 1, 1, width), 0.5, dtype=torch.float16)
    numbers = {"scale": 0.25, "table_width": 1, "row_tiles": 1, "share": 16, "window": 1}
    sizes = {"GROUP": 1, "ROWS": 16, "KEY_DIM": width, "VALUE_DIM": 1, "BLOCK": 1, "TILE": 16}
    given = [q, pages, pages[..., :1] * 3, None, None, ones * 0, ones, ones, ones * (tokens - 1), parts, logs]
    kernel = Watched(triton_launch.attend_part)
    with untouched():
        kernel[1, 1, 1](*given, **numbers, **sizes, K_EACH=False, V_EACH=False, INTERPRETED=True)
    assert (parts[-1].item(), logs[-1].item()) == (1.5, 0.25 * width / 2)


def test_parts_beyond_two_to_the_31():
    """The second row, of parts that are many and wide; what a part holds need not be float32."""
    splits, width = 2**25, 64
    parts, logs = torch.empty(2 * splits + 1, width, dtype=torch.float16)[1:], torch.empty(2, splits)
    out = torch.zeros(2, width)
    logs[:, :2], parts[splits], parts[splits + 1], parts[:2] = 0, 1, 2, 0
    kernel = Watched(triton_launch.merge)
    with untouched():
        kernel[2, 1](parts, logs, None, out, splits, 1, VALUE_DIM=width, COLUMNS=width, SPLITS=2)
    assert (out[0] == 0).all() and (out[1] == 1.5).all()


def test_arguments_that_do_not_lie_in_one_piece():
    """Slices of longer tables, every second sink: the numbers count, and not how they lie."""
    problem = PLAIN | {"queries": [2, 2, 2], "sinks": True}
    given, options = in_dtype(*build(**problem), torch.float32, (torch.int8, "head"), (torch.int8, "each"))

    def spread(x):
        """The same numbers, with others between them and after them."""
        wide = torch.full((*x.shape[:-1], 2 * x.shape[-1] + 1), 77).to(x.dtype)
        wide[..., : 2 * x.shape[-1] : 2] = x
        return wide[..., : 2 * x.shape[-1] : 2]

    lying = {name: spread(given[name]) for name in ("q", "context_lens", "query_lens")}
    lying["block_tables"] = spread(given["block_tables"].int())
    more = {name: spread(options[name]) for name in ("sink_logits", "k_scale", "v_scale")}
    assert not any(x.is_contiguous() for x in [*lying.values(), *more.values()])
    assert_exact(attend_watched(given | lying, options | more), given, options)


def test_one_batch_for_layers_of_different_shapes():
    problem = PLAIN | {"queries": [1, 2, 3]}
    batch = None
    for more in ({}, {"window": 4, "sinks": True}, {"key_dim": 9, "value_dim": 3, "group": 2}):
        given, options = in_dtype(*build(**problem | more), torch.float32)
        lengths = [given.pop(name) for name in ("block_tables", "context_lens", "query_lens")]
        batch = batch or Batch(*lengths, *given["k_pages"].shape[:2])
        window = options.pop("window")
        for backend in ("interpreter", "reference"):
            got = batch.attend(**given, **options, window=window, backend=backend)
            names = dict(zip(("block_tables", "context_lens", "query_lens"), lengths, strict=True))
            assert_exact(got, given | names, options | {"window": window})


def test_a_batch_of_nobody():
    pages = torch.zeros(2, 4, 1, 6)
    nothing = torch.empty(0, dtype=torch.int64)
    got = paged_attention(
        torch.empty(0, 3, 6),
        pages,
        pages,
        nothing.view(0, 5),
        nothing,
        nothing,
        scale=1,
        backend="interpreter",
    )
    assert got.shape == (0, 3, 6)


def test_a_result_knows_nothing_of_gradients():
    given, options = in_dtype(*build(**PLAIN), torch.float32)
    given = {name: x.requires_grad_(x.is_floating_point()) for name, x in given.items()}
    assert not attend(given, options).requires_grad


@pytest.mark.parametrize("window", [None, 7])
def test_the_bill_is_the_same_whatever_the_backend(window):
    given, options = in_dtype(*build(**PLAIN | {"window": window}), torch.float16)
    bills = {}
    for backend in ("reference", "interpreter"):
        with kvlab.Ledger() as bills[backend]:
            paged_attention(**given, **options, backend=backend)
    reference, kernel = bills.values()
    assert kernel.flops == reference.flops > 0 and kernel.kv_read == reference.kv_read > 0
    assert (kernel.kv_written, kernel.kv_held, kernel.copied) == (0, 0, 0)
