"""Number formats, and what a row of numbers takes in each: exact bytes, scales included.

Weights and caches share the list. Block formats keep one scale for so many values in a row, so a row has
to be a whole number of blocks, as llama.cpp asks too.
"""

from dataclasses import dataclass

from kvlab.memory.errors import UnknownName, known


@dataclass(frozen=True)
class Format:
    """``block_bytes`` for every ``block`` values in a row, and ``row_bytes_more`` once a row.

    A row is one token's key, or its value, in one KV head.
    """

    name: str
    block: int
    block_bytes: int
    what: str
    row_bytes_more: int = 0

    def row_bytes(self, values):
        """Bytes of a row of ``values`` numbers -> int. Raises ValueError for a broken block."""
        if values % self.block:
            raise ValueError(
                f"{self.name} packs blocks of {self.block} values, and a row here has {values}: choose a "
                f"format whose block divides it, such as bf16 or fp8"
            )
        return values // self.block * self.block_bytes + self.row_bytes_more

    def bytes_for(self, values):
        """Bytes of ``values`` numbers in one long run, as weights are, rounded up -> int."""
        return -(-values * self.block_bytes // self.block)

    @property
    def bits(self):
        """Bits a value, the block's scale included."""
        return 8 * self.block_bytes / self.block


FORMATS = {
    each.name: each
    for each in (
        Format("fp32", 1, 4, "IEEE single precision"),
        Format("bf16", 1, 2, "bfloat16"),
        Format("fp16", 1, 2, "IEEE half precision"),
        Format("fp8", 1, 1, "E4M3 or E5M2, one scale for a whole tensor, which is not counted"),
        Format("int8", 1, 1, "8-bit integers, one scale for a whole tensor, which is not counted"),
        Format("int4", 2, 1, "two values a byte, scales not counted"),
        Format("q8_0", 32, 34, "llama.cpp: 32 int8 values and their fp16 scale"),
        Format("q4_0", 32, 18, "llama.cpp: 32 4-bit values and their fp16 scale"),
        Format("nvfp4", 16, 9, "16 E2M1 values and their FP8 scale"),
        Format("mxfp4", 32, 17, "32 E2M1 values and their power-of-two scale (OCP Microscaling)"),
        Format("fp8-per-token-head", 1, 1, "fp8 with an fp32 scale for each token and head", 4),
        Format("int8-per-token-head", 1, 1, "int8 with an fp32 scale for each token and head", 4),
    )
}
_OTHER_NAMES = {
    "float32": "fp32",
    "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def format_named(name):
    """A name, with or without ``torch.`` before it, or a torch dtype -> :class:`Format`."""
    if isinstance(name, Format):
        return name
    plain = str(name).removeprefix("torch.").lower()
    found = FORMATS.get(_OTHER_NAMES.get(plain, plain))
    if found is None:
        raise UnknownName(f"unknown dtype {name!r}; {known(FORMATS)}")
    return found
