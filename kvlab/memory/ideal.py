"""The ideal answer: bytes of keys, values and states that are alive, exactly; and bytes that a step reads.

*Alive* means while the last of ``tokens`` tokens is being computed: its own key and value are stored, and a
window holds all that it may see. What an engine allocates for that is another question: see ``pool``.
"""

import warnings
from dataclasses import dataclass
from math import gcd

from kvlab.memory.errors import TokenLimitWarning, whole
from kvlab.memory.formats import format_named
from kvlab.memory.layers import Attention, heads_on_rank
from kvlab.memory.spec import spec_of


@dataclass(frozen=True)
class Cost:
    """The exact cost of ``sequences`` texts of ``tokens`` tokens; see :func:`cost`."""

    tokens: int
    sequences: int
    dtype: str
    tp: int
    bytes_per_token: int
    bytes_constant: int
    bytes_per_rank: int
    bytes_total: int
    by_layer: tuple  # of one sequence, on one rank


def kv_bytes(model, tokens, sequences=1, dtype=None, tp=1):
    """Bytes of cache of ``sequences`` texts of ``tokens`` tokens each, all ``tp`` ranks together -> int.

    model: a ModelSpec, a catalogue name or a path. dtype: one of ``FORMATS``, the model's own unless given.
    Raises ValueError (UnknownName for a name, a tp that does not fit, a negative number), and warns above
    the model's own limit of tokens.
    """
    return _cost(model, tokens, sequences, dtype, tp).bytes_total


def cost(model, tokens, sequences=1, dtype=None, tp=1):
    """As :func:`kv_bytes`, with its parts -> :class:`Cost`.

    ``bytes_per_token``  what one more token adds to one sequence on one rank, at this length: a window that
                         is full adds nothing, and a row compressed from several tokens its share, which is
                         rounded down where it is no whole number of bytes
    ``bytes_constant``   what one sequence takes on one rank besides: states, and windows that are full

    So bytes_per_rank = sequences x (bytes_per_token x tokens + bytes_constant), where no row is compressed;
    bytes_per_rank and bytes_total are exact in any case.
    """
    return _cost(model, tokens, sequences, dtype, tp)


def _cost(model, tokens, sequences, dtype, tp):
    spec, form, tp = asked(model, dtype, tp)
    tokens, sequences = whole(tokens, "tokens"), whole(sequences, "sequences")
    if spec.max_tokens is not None and tokens > spec.max_tokens:
        text = f"{tokens:,} tokens are more than the {spec.max_tokens:,} that {spec.name} was made for"
        warnings.warn(text, TokenLimitWarning, stacklevel=3)  # where the caller asks
    held = tuple(layer.held_bytes(tokens, form, tp) for layer in spec.layers)
    slope = sum(layer.slope(tokens, form, tp) for layer in spec.layers)
    flat = sum(layer.flat_bytes(tokens, form, tp) for layer in spec.layers)
    rank = sequences * sum(held)
    return Cost(tokens, sequences, form.name, tp, slope, flat, rank, tp * rank, held)


def read_bytes(model, tokens, dtype=None, tp=1):
    """Bytes of cache that one decode step reads for one sequence on one rank -> int.

    Not the bytes held: a layer that shares another's cache reads it again, and an indexer lets a step read
    only the rows it picked.
    """
    spec, form, tp = asked(model, dtype, tp)
    tokens = whole(tokens, "tokens")
    return sum(layer.read_bytes(tokens, form, tp) for layer in spec.layers)


def asked(model, dtype, tp):
    """(ModelSpec, Format, ranks) of what was asked, checked."""
    spec = spec_of(model)
    form, tp = format_named(dtype or spec.cache_dtype or spec.dtype), whole(tp, "tp", least=1)
    heads = [spec.query_heads, *(layer.query_heads or spec.query_heads for layer in spec.layers)]
    if uneven := [each for each in heads if each % tp]:
        common = gcd(*heads)
        fits = [n for n in range(1, common + 1) if common % n == 0]
        raise ValueError(
            f"tp {tp} does not divide the {uneven[0]} query heads of {spec.name}: choose one of "
            f"{', '.join(map(str, fits))}"
        )
    return spec, form, tp


def replicated(model, tp):
    """How many ranks hold a copy of the same keys and values, at most, over the layers -> int."""
    spec, _, tp = asked(model, None, tp)
    heads = [layer.kv_heads for layer in spec.layers if isinstance(layer, Attention)]
    copies = [tp * heads_on_rank(each, tp) // each for each in heads]
    copies += [tp for layer in spec.layers if layer.kind == "compressed"]
    return max(copies, default=1)


def naive_bytes(model, tokens, sequences=1, dtype=None):
    """What the formula of the textbooks gives: 2 x layers x tokens x query heads x head width x bytes -> int.

    Every layer in full, as many KV heads as query heads, one width. Here to be compared with, and only that.
    """
    spec, form, _ = asked(model, dtype, 1)
    width = max((_naive_width(layer) for layer in spec.layers), default=0)
    rows = whole(tokens, "tokens") * whole(sequences, "sequences") * len(spec.layers) * spec.query_heads
    return 2 * rows * form.bytes_for(width)


def _naive_width(layer):
    if layer.kind == "latent":
        return layer.naive_dims[1] or layer.value_dim
    return layer.dim if layer.kind == "compressed" else getattr(layer, "key_dim", 0)
