"""The other answer: what an engine with paged memory sets aside for the same texts, and why it is more.

Memory is handed out in blocks of ``block_size`` tokens (PagedAttention, arXiv:2309.06180, section 4.1), so
the last block of each sequence is partly empty; a window rarely begins where a block does, so it lies in one
block more than it could fill; and one block stands where a table must name one and there is none: vLLM's null
block, the slot for padding in SGLang.
"""

from dataclasses import dataclass

from kvlab.memory.errors import whole
from kvlab.memory.ideal import asked, cost


@dataclass(frozen=True)
class Allocation:
    """Bytes on one rank: ``live`` is the ideal answer, ``total`` what is set aside, the rest the difference.

    ``rounding``  room in blocks that are not full yet, of all sequences
    ``windows``   rows beyond a window in the blocks that it lies in, at the worst moment
    ``spare``     the blocks that belong to nobody
    """

    block_size: int
    live: int
    rounding: int
    windows: int
    spare: int

    @property
    def total(self):
        return self.live + self.rounding + self.windows + self.spare


def allocation(model, tokens, sequences=1, dtype=None, tp=1, block_size=16, spare_blocks=1):
    """What a pool sets aside on one rank for ``sequences`` texts of ``tokens`` tokens -> :class:`Allocation`.

    Every layer has a pool of its own; the same block of all of them is one block of the engine.
    """
    spec, form, tp = asked(model, dtype, tp)
    block_size, spare_blocks = whole(block_size, "block_size", 1), whole(spare_blocks, "spare_blocks")
    ideal = cost(spec, tokens, sequences, form, tp)
    padding = [layer.padding(tokens, form, tp, block_size) for layer in spec.layers]
    rounding, windows = (sequences * sum(each) for each in zip(*padding, strict=True))
    spare = spare_blocks * sum(layer.spare_bytes(form, tp, block_size) for layer in spec.layers)
    return Allocation(block_size, ideal.bytes_per_rank, rounding, windows, spare)
