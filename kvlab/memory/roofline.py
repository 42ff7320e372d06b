"""The least time a step can take: its bytes over bandwidth, or its FLOPs over the arithmetic rate.

These are floors, to within a few percent: the input embedding counts as read, of which a look-up needs one
row. A real step also launches kernels, talks to other ranks, and reaches neither limit quite.
(Roofline: Williams et al., 2009. Decode and prefill: Pope et al., arXiv:2211.05102, section 2.)
"""

from dataclasses import dataclass

from kvlab.memory.capacity import expert_form, weight_bytes
from kvlab.memory.catalogue import device as device_named
from kvlab.memory.errors import whole
from kvlab.memory.formats import format_named
from kvlab.memory.ideal import asked, read_bytes
from kvlab.memory.spec import spec_of


@dataclass(frozen=True)
class Step:
    """One forward pass on one rank: what it must read and compute, and the seconds these take at least."""

    weights_read: int
    kv_read: int
    flops: int
    read_s: float
    compute_s: float

    @property
    def floor_s(self):
        return max(self.read_s, self.compute_s)

    @property
    def intensity(self):
        """FLOPs for each byte read."""
        return self.flops / (self.weights_read + self.kv_read)


def touched(model, sequences):
    """The share of all weights that a step over ``sequences`` tokens uses -> float.

    1 for a dense model. With experts, each of which one token picks with probability k/E, a batch of B leaves
    (1 - k/E)^B of them untouched, if it picks at random; what is not in experts is always used.
    """
    spec, sequences = spec_of(model), whole(sequences, "sequences", least=1)
    if not spec.parameters:
        return 1.0
    active = (spec.active_parameters or spec.parameters) / spec.parameters
    if not spec.experts or not spec.experts_per_token:
        return 1 - (1 - active) ** sequences  # all of it, as if every weight were picked like an expert
    picked = spec.experts_per_token / spec.experts
    if spec.expert_parameters is not None:
        in_experts = spec.expert_parameters / spec.parameters
    else:
        in_experts = (1 - active) / (1 - picked) if picked < 1 else 0.0  # active = others + picked x experts
    return 1 - in_experts * (1 - picked) ** sequences


def weights_read(model, tokens, dtype=None, tp=1):
    """Bytes of weights on one rank that a step over ``tokens`` tokens reads -> int; dtype as in weight_bytes.

    What it leaves untouched are experts, in their format.
    """
    spec = spec_of(model)
    all_as_experts = weight_bytes(spec, expert_form(spec, dtype), tp)
    return weight_bytes(spec, dtype, tp) - round((1 - touched(spec, tokens)) * all_as_experts)


def decode(model, tokens, device, sequences=1, dtype=None, weights_dtype=None, tp=1):
    """The next token of ``sequences`` texts that are ``tokens`` long -> :class:`Step`, one rank."""
    spec, form, tp = asked(model, dtype, tp)
    tokens, sequences = whole(tokens, "tokens"), whole(sequences, "sequences", least=1)
    weights = weights_read(spec, sequences, weights_dtype, tp)
    kv = sequences * read_bytes(spec, tokens, form, tp)
    attention = sum(layer.visible(tokens) * layer.row_flops(spec.query_heads) for layer in spec.layers)
    flops = sequences * (2 * _active(spec) + attention) // tp
    return step_on(device, flops, kv, weights)


def prefill(model, tokens, device, sequences=1, weights_dtype=None, tp=1, cached=0, dtype=None):
    """A prompt of ``tokens`` tokens, all at once, after ``cached`` stored ones -> :class:`Step`, one rank.

    Attention's work is quadratic: query number t meets t keys, so half of tokens x tokens in a full layer,
    and tokens x cached more. Of what is cached, as much is read, once for all queries, as a decode step would
    read. dtype: of the cache. Latent layers count as if it were expanded already: see ``absorption``.
    """
    spec, form, tp = asked(model, dtype, tp)
    tokens, sequences = whole(tokens, "tokens", least=1), whole(sequences, "sequences", least=1)
    cached = whole(cached, "cached")
    weights = weights_read(spec, sequences * tokens, weights_dtype, tp)
    kv = sequences * read_bytes(spec, cached, form, tp) if cached else 0
    attention = sum(
        (layer.visible_so_far(cached + tokens) - layer.visible_so_far(cached))
        * layer.row_flops(spec.query_heads, prefill=True)
        for layer in spec.layers
    )
    flops = sequences * (2 * _active(spec) * tokens + attention) // tp
    return step_on(device, flops, kv, weights)


def attention_intensity(layer, query_heads, dtype="bf16"):
    """FLOPs that decode attention does for each byte of cache it reads, in a long text -> float.

    query_heads: the model's, as in ``row_flops``.
    """
    long = 2**20  # a whole number of chunks, of every size in use
    return layer.visible(long) * layer.row_flops(query_heads) / layer.read_bytes(long, format_named(dtype))


def _active(spec):
    weight_bytes(spec)  # says so where the parameters are not known
    return spec.active_parameters or spec.parameters


def step_on(device, flops, kv_read, weights_read=0):
    """FLOPs and bytes on a device -> :class:`Step`; compute_s is 0 where the arithmetic rate is not known."""
    device = device_named(device)
    rate = device.flops.get("bf16")
    read_s = (weights_read + kv_read) / device.bandwidth
    return Step(weights_read, kv_read, flops, read_s, flops / rate if rate else 0.0)
