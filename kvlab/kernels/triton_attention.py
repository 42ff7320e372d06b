"""Paged attention in Triton: ``attend_part`` goes through a part of a context, ``merge`` puts parts together.

A program of ``attend_part`` has one KV head of one sequence and one part of its tokens. The query heads that
share the KV head are the rows of its products, so that keys and values are read once for all of them. Several
new tokens of a sequence bring their rows each, in tiles of ROWS.

(PagedAttention, Kwon et al. 2023, section 4.1; online softmax, Milakov and Gimelshein 2018, section 3; parts
of a context side by side: Flash-Decoding, Dao et al. 2023.)
"""

from kvlab.kernels.language import constexpr_function, jit, tl

LOWEST = tl.constexpr(-1.0e30)  # in place of -inf: -inf - -inf is no number


@constexpr_function
def padded(width):
    """A tile's sides are powers of two, and at least 16 where matrices are multiplied."""
    return max(16, 1 << (width - 1).bit_length())


@jit
def load_tile(stored, rows, there, FIRST: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """COUNT columns from FIRST on, of rows WIDTH wide -> [rows, padded(COUNT)]; 0 for what is not there."""
    columns = tl.arange(0, padded(COUNT))
    wanted = there[:, None]
    if padded(COUNT) > COUNT:
        wanted = wanted & (columns < COUNT)[None, :]
    return tl.load(stored + rows[:, None] * WIDTH + FIRST + columns[None, :], mask=wanted, other=0.0)


@jit
def as_dtype(numbers, dtype: tl.constexpr):
    """By way of float32, which every GPU and the interpreter can do for all that is stored in pages."""
    return numbers if numbers.dtype == dtype else numbers.to(tl.float32).to(dtype)


@jit
def product(a, b, INTERPRETED: tl.constexpr):
    """a @ b, summed in float32. float32 itself would by default be rounded to 10 bits (TF32)."""
    if INTERPRETED:  # its product of bfloat16 is wrong (triton-lang/triton, issue 11584)
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@jit(
    do_not_specialize=["table_width", "row_tiles", "share", "window"],
    do_not_specialize_on_alignment=["tables", "contexts", "counts", "starts"],
)
def attend_part(
    q,  # [N, Hq, KEY_DIM]
    k_pages,  # [num_blocks, BLOCK, Hkv, KEY_DIM]
    v_pages,  # [num_blocks, BLOCK, Hkv, VALUE_DIM], or None: the values are the keys' first columns
    k_scale,  # None, [Hkv], or with K_EACH [num_blocks, BLOCK, Hkv]
    v_scale,
    tables,  # [B, table_width]
    contexts,  # [B]
    counts,  # [B], new tokens
    starts,  # [B], the first of them in q
    parts,  # [N, Hq, splits, VALUE_DIM]
    logs,  # [N, Hq, splits], log2 of the sum of a part's weights
    scale,  # of scores, times log2(e)
    table_width,
    row_tiles,  # of each sequence
    share,  # tokens of a part
    window,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    K_EACH: tl.constexpr,
    V_EACH: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    sequence, first_row = tl.program_id(0) // row_tiles, tl.program_id(0) % row_tiles * ROWS
    kv_head, num_kv_heads = tl.program_id(1), tl.num_programs(1)
    split, splits = tl.program_id(2), tl.num_programs(2)
    context, count = tl.load(contexts + sequence), tl.load(counts + sequence)
    if first_row >= count * GROUP:
        return

    # Its rows, and its part of the tokens that any of them sees.
    rows = first_row + tl.arange(0, ROWS)
    mine = rows < count * GROUP
    positions = context - count + rows // GROUP  # [ROWS]
    newest = tl.minimum(context - count + (first_row + ROWS - 1) // GROUP, context - 1)
    begin = tl.maximum(context - count + first_row // GROUP - window + 1, 0) + split * share
    end = tl.minimum(begin + share, newest + 1)

    token = tl.load(starts + sequence).to(tl.int64) + rows // GROUP  # 64 bits: offsets pass 2**31
    head = (token * num_kv_heads + kv_head) * GROUP + rows % GROUP  # [ROWS], of N * Hq
    MAIN: tl.constexpr = VALUE_DIM if v_pages is None else KEY_DIM
    queries = load_tile(q, head, mine, 0, MAIN, KEY_DIM)  # [ROWS, MAIN]
    if MAIN < KEY_DIM:
        more_queries = load_tile(q, head, mine, MAIN, KEY_DIM - MAIN, KEY_DIM)
    if k_scale is not None and not K_EACH:
        scale *= tl.load(k_scale + kv_head)

    highest = tl.full([ROWS], LOWEST, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, padded(VALUE_DIM)], tl.float32)
    table = tables + sequence.to(tl.int64) * table_width
    tokens = begin + tl.arange(0, TILE)
    pages = tl.load(table + tokens // BLOCK, mask=tokens < end, other=0)
    for first in range(begin, end, TILE):
        tokens = first + tl.arange(0, TILE)
        there = tokens < end
        slots = (pages.to(tl.int64) * BLOCK + tokens % BLOCK) * num_kv_heads + kv_head  # [TILE]
        # Looked up a turn ahead: in the same turn the look-up would take a stage of the pipeline.
        pages = tl.load(table + (tokens + TILE) // BLOCK, mask=tokens + TILE < end, other=0)

        keys = load_tile(k_pages, slots, there, 0, MAIN, KEY_DIM)  # [TILE, MAIN]
        scores = product(queries, as_dtype(keys, queries.dtype).T, INTERPRETED)  # [ROWS, TILE]
        if MAIN < KEY_DIM:
            more_keys = load_tile(k_pages, slots, there, MAIN, KEY_DIM - MAIN, KEY_DIM)
            scores += product(more_queries, as_dtype(more_keys, queries.dtype).T, INTERPRETED)
        if K_EACH:
            scores *= tl.load(k_scale + slots, mask=there, other=0.0)[None, :]
        seen = (tokens[None, :] <= positions[:, None]) & (tokens[None, :] > positions[:, None] - window)
        scores = tl.where(seen, scores * scale, LOWEST)

        above = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(highest - above)  # what was summed so far was weighed against another maximum
        total = total * shrink + tl.sum(weights, axis=1)
        values = keys if v_pages is None else load_tile(v_pages, slots, there, 0, VALUE_DIM, VALUE_DIM)
        if V_EACH:
            values = values.to(tl.float32) * tl.load(v_scale + slots, mask=there, other=0.0)[:, None]
        values = as_dtype(values, queries.dtype)  # [TILE, VALUE_DIM]
        out = out * shrink[:, None] + product(weights.to(queries.dtype), values, INTERPRETED)
        highest = above

    if v_scale is not None and not V_EACH:
        out *= tl.load(v_scale + kv_head)
    busy = begin < end
    total = tl.where(busy, total, 1.0)
    part = head * splits + split  # [ROWS]
    tl.store(logs + part, tl.where(busy, highest + tl.log2(total), LOWEST), mask=mine)
    columns = tl.arange(0, padded(VALUE_DIM))
    wanted = mine[:, None] & (columns < VALUE_DIM)[None, :] & busy
    tl.store(parts + part[:, None] * VALUE_DIM + columns[None, :], out / total[:, None], mask=wanted)


@jit(do_not_specialize=["splits", "num_heads"])
def merge(
    parts,  # [N, Hq, splits, VALUE_DIM]
    logs,  # [N, Hq, splits]
    sinks,  # None or [Hq]: one more logit each in the denominator
    out,  # [N, Hq, VALUE_DIM]
    splits,
    num_heads,
    VALUE_DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,  # at least splits, a power of two
):
    """A program has some columns of a row: the mean of its parts, by their sums of weights; 0 without any."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    places = tl.arange(0, SPLITS)
    log = tl.load(logs + row * splits + places, mask=places < splits, other=LOWEST)
    some = log > LOWEST
    highest = tl.max(log, axis=0)
    if sinks is not None:
        sink = tl.load(sinks + row % num_heads).to(tl.float32) * 1.4426950408889634  # log2(e)
        highest = tl.maximum(highest, sink)
    weights = tl.where(some, tl.exp2(log - highest), 0.0)
    total = tl.sum(weights, axis=0)
    if sinks is not None:
        total += tl.exp2(sink - highest)
    wanted = some[:, None] & (columns < VALUE_DIM)[None, :]
    at = (row * splits + places)[:, None] * VALUE_DIM + columns[None, :]
    part = tl.load(parts + at, mask=wanted, other=0.0)  # [SPLITS, COLUMNS]
    result = tl.sum(part * weights[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(out + row * VALUE_DIM + columns, result.to(out.dtype.element_ty), mask=columns < VALUE_DIM)
