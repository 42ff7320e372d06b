"""Latent attention (MLA) in three forms: what each computes, and what it keeps.

N new tokens follow T cached ones in one layer. From a latent of ``rank`` numbers each of H heads has a key of
``nope`` numbers and a value; ``rope`` numbers more are a key for all heads. ``pairs`` are the (query, key)
pairs that a causal mask leaves, N x T + N x (N + 1) / 2.

expanded cache        expand each new latent to all heads' keys and values, and keep those
expanded each step    keep latents and rope keys, and expand all T + N of them in every step
absorbed              keep the same, fold the expansion into the queries and the outputs, attend to latents

FLOPs, 2 for a multiply and an add:

expanding             2 x rank x H x (nope + value) for each token that is expanded
attention, expanded   2 x H x (nope + rope + value) x pairs
absorbing             2 x rank x H x (nope + value) for each new token
attention, absorbed   2 x H x (2 x rank + rope) x pairs

(DeepSeek-V2, arXiv:2405.04434, section 2.1.) What all forms do alike is left out: projections to queries and
latents and to the output, and reading the weights. Keys and values that are expanded and not kept are taken
to stay on the chip.
"""

from bisect import bisect_left
from dataclasses import dataclass

from kvlab.memory.errors import whole
from kvlab.memory.ideal import asked
from kvlab.memory.layers import Latent
from kvlab.memory.roofline import step_on
from kvlab.memory.spec import spec_of


@dataclass(frozen=True)
class LatentStep:
    """One layer's step of one sequence: FLOPs, and bytes of cache that are read and that are held after it.

    The cache is read once for all new tokens, and their own rows are part of it.
    """

    flops: int
    read: int
    held: int

    def on(self, device):
        """The least time on a device -> :class:`~kvlab.memory.roofline.Step`, without weights."""
        return step_on(device, self.flops, self.read)


def latent_step(model, new, cached=0, dtype=None):
    """The step of ``new`` tokens after ``cached`` ones, in one latent layer -> {form: :class:`LatentStep`}.

    The forms are "expanded cache", "expanded each step" and "absorbed"; every number is an exact integer.
    model: a ModelSpec, a catalogue name or a path; its first latent layer counts. dtype: one of ``FORMATS``,
    the model's own unless given.
    Raises ValueError for a model without latent layers, with heads of unknown widths, or whose layers do not
    read all rows; for a negative number, and for no new token.
    """
    spec, form, _ = asked(model, dtype, 1)
    new, cached = whole(new, "new", least=1), whole(cached, "cached")
    layer, heads = _latent_layer(spec), spec.query_heads
    key, value = layer.naive_dims
    rows, pairs = cached + new, new * cached + new * (new + 1) // 2
    one = 2 * heads * _expanding(layer)  # expand a latent, or absorb for a query: as many
    expanded, absorbed = pairs * layer.row_flops(heads, prefill=True), pairs * layer.row_flops(heads)
    latents = rows * layer.vector_bytes(form)
    all_heads = rows * heads * (form.row_bytes(key) + form.row_bytes(value))
    return {
        "expanded cache": LatentStep(new * one + expanded, all_heads, all_heads),
        "expanded each step": LatentStep(rows * one + expanded, latents, latents),
        "absorbed": LatentStep(new * one + absorbed, latents, latents),
    }


def expand_from(model, cached):
    """The fewest new tokens for which expanding in each step takes fewer FLOPs than absorbing -> int.

    None where it never does: heads so wide that attention to latents is not the dearer one. Raises as
    :func:`latent_step` does.
    """
    spec, cached = spec_of(model), whole(cached, "cached")
    layer = _latent_layer(spec)
    dearer = layer.row_flops(1) - layer.row_flops(1, prefill=True)  # of one pair and head, absorbed
    if dearer <= 0:
        return None

    def cheaper(new):
        forms = latent_step(spec, new, cached)
        return forms["expanded each step"].flops < forms["absorbed"].flops

    # So many new tokens, each with all cached ones, are enough even without the pairs among themselves.
    last = 2 * _expanding(layer) // dearer + 1
    return 1 + bisect_left(range(1, last), True, key=cheaper)


def _expanding(layer):
    """Multiply-adds that make one head's key and value of one latent."""
    rope = layer.key_dim - layer.value_dim
    return layer.value_dim * (sum(layer.naive_dims) - rope)


def _latent_layer(spec):
    """The first latent layer. Raises ValueError where there is none whose forms can be counted."""
    layer = next((layer for layer in spec.layers if isinstance(layer, Latent)), None)
    if layer is None:
        raise ValueError(
            f"{spec.name} has no latent layers, and so nothing to expand or absorb: choose a model with "
            "multi-head latent attention, such as DeepSeek-V3"
        )
    if not all(layer.naive_dims):
        raise ValueError(
            f"the widths of the heads of {spec.name} are not known: give nope_dim and value_dim to "
            "ModelSpec.uniform_latent"
        )
    if layer.index_dim or layer.limit is not None:
        raise ValueError(
            f"the latent layers of {spec.name} have a window or an indexer, so that a query does not read "
            "all rows, which is not counted here: choose a model without, such as DeepSeek-V3"
        )
    return layer
