"""What one layer keeps of its past: one class a kind, each answering for one sequence on one rank.

A row is one token's share. Everything is an exact integer:

``held_bytes``       what is alive while token number ``tokens`` is computed
``slope``            what one more token adds to that, at this length; of a compressed row its share, rounded
                     down to a whole byte
``flat_bytes``       the rest: states, and windows that are full
``read_bytes``       what a decode step must read
``padding``          what an engine that pages in blocks of ``block_size`` rows sets aside beyond held_bytes
"""

from dataclasses import dataclass

from kvlab.memory.errors import whole


def heads_on_rank(heads, ranks):
    """KV heads that each of ``ranks`` holds: an equal share, or one copy where ranks exceed heads.

    Raises ValueError where neither fits.
    """
    if heads % ranks and ranks % heads:
        raise ValueError(
            f"{heads} KV heads can be neither shared out evenly over {ranks} ranks nor copied evenly: "
            f"choose a tp that divides {heads}, or a multiple of it"
        )
    return max(1, heads // ranks)


def blocks(rows, window, block_size):
    """Blocks that ``rows`` rows lie in; of a window, as many as it ever touched up to there.

    A window of W rows that moves on row by row begins inside a block more often than at its start, and then
    lies in one more than it could fill: ceil((W - 1) / block_size) + 1.
    """
    needed = -(-rows // block_size)
    return needed if window is None else min(needed, -(-(window - 1) // block_size) + 1)


def total_of(tokens, limit=None):
    """1 + 2 + ... + tokens, with no term above ``limit`` -> int."""
    rising = tokens if limit is None else min(tokens, limit)
    return rising * (rising + 1) // 2 + (tokens - rising) * rising


@dataclass(frozen=True)
class Layer:
    """A layer without a cache of its own, such as an MLP that stands alone. The others refine it."""

    kind = "no attention"
    window = None  # rows held at most, where there is an end
    grows = False  # whether every further token takes more, without end
    index_dim = 0  # width of an indexer's key, where there is one
    query_heads = None  # its own, where they are not the model's

    def row_bytes(self, form, ranks=1):
        """Bytes of one row."""
        return 0

    def held_bytes(self, tokens, form, ranks=1):
        return self.state_bytes(ranks)

    def slope(self, tokens, form, ranks=1):
        return 0

    def flat_bytes(self, tokens, form, ranks=1):
        return self.held_bytes(tokens, form, ranks) - tokens * self.slope(tokens, form, ranks)

    def state_bytes(self, ranks=1):
        """Bytes that do not depend on tokens at all."""
        return 0

    def read_bytes(self, tokens, form, ranks=1):
        return self.held_bytes(tokens, form, ranks)

    @property
    def index_bytes(self):
        """Bytes of an indexer's key, beside a row: 8 bits a value and one 4-byte scale."""
        return self.index_dim + 4 if self.index_dim else 0

    def padding(self, tokens, form, ranks, block_size):
        """-> (bytes of room in blocks not full yet, bytes of rows that a window left behind in its blocks)"""
        return 0, 0

    def visible(self, tokens):
        """Rows that the query of token number ``tokens`` attends to."""
        return 0

    def visible_so_far(self, tokens):
        """The same, added up over the queries of all tokens up to there."""
        return 0

    def row_flops(self, query_heads, prefill=False):
        """FLOPs of one query with one row, all heads: score and weighted value, 2 a multiply-add.

        query_heads: the model's, which a layer with heads of its own overrules.
        """
        return 0

    def spare_bytes(self, form, ranks, block_size):
        """Bytes of one block."""
        return block_size * self.row_bytes(form, ranks)


@dataclass(frozen=True)
class Attention(Layer):
    """Keys and values of ``kv_heads`` heads, ``key_dim`` and ``value_dim`` wide.

    window: tokens a query sees, itself included, or None for all. In a chunked layer (Llama 4) it is the
    chunk: a query sees its chunk up to itself, so ``window`` rows are the most that are ever held.
    index_dim: width of the key that a sparse-attention indexer keeps beside them, in 8 bits with a 4-byte
    scale, on every rank (DeepSeek-V3.2, section 2.1); 0 without one. index_topk: rows it lets a query read.
    query_heads: this layer's, None where they are the model's.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    chunked: bool = False
    index_dim: int = 0
    index_topk: int | None = None
    query_heads: int | None = None

    def __post_init__(self):
        for name in ("kv_heads", "key_dim", "value_dim"):
            whole(getattr(self, name), name, least=1)
        for name in ("window", "query_heads"):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, least=1)

    @property
    def kind(self):
        return "full" if self.window is None else "chunked" if self.chunked else "sliding"

    @property
    def grows(self):
        return self.window is None

    def held(self, tokens):
        """Rows that are alive."""
        return tokens if self.window is None else min(tokens, self.window)

    def held_bytes(self, tokens, form, ranks=1):
        return self.held(tokens) * self.row_bytes(form, ranks)

    def slope(self, tokens, form, ranks=1):
        return self.row_bytes(form, ranks) if self.window is None or tokens < self.window else 0

    def padding(self, tokens, form, ranks, block_size):
        rows = block_size * blocks(tokens, self.window, block_size) - self.held(tokens)
        extra = rows * self.row_bytes(form, ranks)
        return (0, extra) if self.window is not None and tokens > self.window else (extra, 0)

    def vector_bytes(self, form, ranks=1):
        """Keys and values of one token, without the indexer's key."""
        heads = heads_on_rank(self.kv_heads, ranks)
        return heads * (form.row_bytes(self.key_dim) + form.row_bytes(self.value_dim))

    def row_bytes(self, form, ranks=1):
        return self.vector_bytes(form, ranks) + self.index_bytes

    @property
    def limit(self):
        """Rows that a query attends to at the most: its window, or what the indexer picks."""
        limits = [each for each in (self.window, self.index_topk) if each is not None]
        return min(limits, default=None)

    def visible(self, tokens):
        if self.chunked:
            return (tokens - 1) % self.window + 1 if tokens else 0
        return tokens if self.limit is None else min(tokens, self.limit)

    def visible_so_far(self, tokens):
        if self.chunked:
            full, rest = divmod(tokens, self.window)
            return full * total_of(self.window) + total_of(rest)
        return total_of(tokens, self.limit)

    def read_bytes(self, tokens, form, ranks=1):
        return self.visible(tokens) * self.vector_bytes(form, ranks) + self.held(tokens) * self.index_bytes

    def row_flops(self, query_heads, prefill=False):
        return 2 * (self.query_heads or query_heads) * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class Latent(Attention):
    """MLA: one latent and one rope key a token, for all heads together, whole on every rank.

    No factor two, no heads (DeepSeek-V2, arXiv:2405.04434, section 2.1). ``key_dim`` is kv_lora_rank +
    qk_rope_head_dim and ``value_dim`` kv_lora_rank, which is part of the key and not stored again.
    naive_dims: (key, value) width of a head once the latent is expanded, as prefill computes it.
    """

    naive_dims: tuple = (0, 0)
    kind = "latent"

    def vector_bytes(self, form, ranks=1):
        return form.row_bytes(self.key_dim)

    def row_flops(self, query_heads, prefill=False):
        if prefill and not all(self.naive_dims):
            raise ValueError(
                "the widths of this latent layer's heads are not known: give nope_dim and value_dim"
            )
        width = sum(self.naive_dims) if prefill else self.key_dim + self.value_dim
        return 2 * (self.query_heads or query_heads) * width


@dataclass(frozen=True)
class Compressed(Layer):
    """DeepSeek-V4: a window of single-head rows, and one compressed row for every ``ratio`` tokens.

    Key and value are one row, whole on every rank. ``ratio`` None keeps the window alone. With an indexer
    every compressed row has its index key too. The few tokens on their way to the next compressed row
    are not counted.
    """

    dim: int
    window: int
    ratio: int | None = None
    index_dim: int = 0
    index_topk: int | None = None
    kind = "compressed"

    @property
    def grows(self):
        return self.ratio is not None

    def compressed(self, tokens):
        """Compressed rows that are alive."""
        return tokens // self.ratio if self.ratio else 0

    def row_bytes(self, form, ranks=1):
        return form.row_bytes(self.dim)

    def held_bytes(self, tokens, form, ranks=1):
        window = min(tokens, self.window) * self.row_bytes(form)
        return window + self.compressed(tokens) * (self.row_bytes(form) + self.index_bytes)

    def slope(self, tokens, form, ranks=1):
        window = self.row_bytes(form) if tokens < self.window else 0
        return window + ((self.row_bytes(form) + self.index_bytes) // self.ratio if self.ratio else 0)

    def flat_bytes(self, tokens, form, ranks=1):
        return self.window * self.row_bytes(form) if tokens >= self.window else 0

    def padding(self, tokens, form, ranks, block_size):
        window, rows = min(tokens, self.window), self.compressed(tokens)
        behind = (block_size * blocks(tokens, self.window, block_size) - window) * self.row_bytes(form)
        room = (block_size * blocks(rows, None, block_size) - rows) * (
            self.row_bytes(form) + self.index_bytes
        )
        return (room, behind) if tokens > self.window else (room + behind, 0)

    def visible(self, tokens):
        """Its window, and of the compressed rows all, or those that the indexer picks."""
        return min(tokens, self.window) + self.picked(self.compressed(tokens))

    def picked(self, rows):
        return rows if self.index_topk is None else min(rows, self.index_topk)

    def visible_so_far(self, tokens):
        last = self.compressed(tokens)
        window = total_of(tokens, self.window)
        if not last:
            return window
        # Each number of compressed rows is there for `ratio` tokens in turn, the last for what is left.
        return (
            window
            + self.ratio * total_of(last - 1, self.index_topk)
            + (tokens - last * self.ratio + 1) * (self.picked(last))
        )

    def read_bytes(self, tokens, form, ranks=1):
        return self.visible(tokens) * self.row_bytes(form) + self.compressed(tokens) * self.index_bytes

    def row_flops(self, query_heads, prefill=False):
        return 2 * query_heads * 2 * self.dim

    def spare_bytes(self, form, ranks, block_size):
        row = self.row_bytes(form)
        return block_size * (row + (row + self.index_bytes if self.ratio else 0))


@dataclass(frozen=True)
class Shared(Layer):
    """A layer that reads the keys and values of an earlier one, ``owner``, and keeps none."""

    owner: Attention
    kind = "shared"

    def read_bytes(self, tokens, form, ranks=1):
        return self.owner.read_bytes(tokens, form, ranks)

    def visible(self, tokens):
        return self.owner.visible(tokens)

    def visible_so_far(self, tokens):
        return self.owner.visible_so_far(tokens)

    def row_flops(self, query_heads, prefill=False):
        return self.owner.row_flops(query_heads, prefill)


@dataclass(frozen=True)
class State(Layer):
    """A recurrent layer (linear attention, Mamba): a state of constant size in place of keys and values.

    ``columns`` past inputs of ``channels`` convolution channels, in ``conv_form``; ``values`` numbers of
    state, in ``state_form``. ``heads`` is what ranks share out. ``groups`` have ``group_channels`` channels
    more, each, and are copied where ranks exceed them (Mamba-2's B and C).
    """

    heads: int
    channels: int
    columns: int
    values: int
    conv_form: object
    state_form: object
    groups: int = 0
    group_channels: int = 0
    kind = "state"

    def state_bytes(self, ranks=1):
        """As vLLM shares it out: groups that the ranks do not divide go to every rank, one each."""
        if self.heads % ranks:
            raise ValueError(
                f"{self.heads} heads of a recurrent state cannot be shared out over {ranks} ranks: choose a "
                f"tp that divides {self.heads}"
            )
        groups = 1 if self.groups % ranks else self.groups // ranks
        channels = self.channels // ranks + groups * self.group_channels
        conv = self.conv_form.bytes_for(self.columns * channels)
        return conv + self.state_form.bytes_for(self.values // ranks)
