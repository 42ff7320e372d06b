"""The Triton kernel that stores new keys or values in pages, rounded where the pages have 8 bits a number."""

from kvlab.kernels.language import jit, tl
from kvlab.kernels.triton_attention import padded


@jit
def nearest(numbers):
    """Whole numbers, halves to the even one: beside 1.5 * 2**23 a float32 has no bits left for fractions."""
    return (numbers + 12582912.0) - 12582912.0


@jit
def store(
    new,  # [N, Hkv, DIM]
    pages,  # [num_blocks, block_size, Hkv, DIM]
    slots,  # [N], block * block_size + place
    scales,  # None, [Hkv] to divide by, or with EACH [num_blocks, block_size, Hkv] to write
    DIM: tl.constexpr,
    EACH: tl.constexpr,
    LARGEST: tl.constexpr,  # number that the pages' dtype has
    SMALLEST: tl.constexpr,  # normal one, 0 where it has whole numbers alone
    STEP: tl.constexpr,  # between a number and the next, by the power of two below it
    INTERPRETED: tl.constexpr,
):
    """A program has one KV head of one token."""
    token, head, num_heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    columns = tl.arange(0, padded(DIM))
    wanted = columns < DIM
    numbers = tl.load(new + (token * num_heads + head) * DIM + columns, mask=wanted, other=0.0).to(tl.float32)
    row = tl.load(slots + token).to(tl.int64) * num_heads + head
    if scales is not None:
        if EACH:
            most = tl.max(tl.abs(numbers), axis=0)
            scale = tl.div_rn(most, LARGEST)
            scale = tl.where(scale > 0, scale, 1.0)
            tl.store(scales + row, scale)
        else:
            scale = tl.load(scales + head)
        numbers = tl.div_rn(numbers, scale)
        numbers = tl.minimum(tl.maximum(numbers, -LARGEST), LARGEST)
        if SMALLEST == 0:
            numbers = nearest(numbers)
        elif INTERPRETED:  # a GPU rounds to the nearest by itself, the interpreter does not
            power = (numbers.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
            step = tl.maximum(power, SMALLEST) * STEP
            numbers = nearest(numbers / step) * step
    tl.store(pages + row * DIM + columns, numbers.to(pages.dtype.element_ty), mask=wanted)
