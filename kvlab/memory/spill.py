"""Keys and values that left the device: load them over a link, or compute them again?

Both times are floors: a link gives less than its nominal bytes a second, and arithmetic less than its rate.
(Conversations whose earlier turns are loaded: CachedAttention, Gao et al., arXiv:2403.19708.)
"""

from kvlab.memory.catalogue import device as device_named
from kvlab.memory.errors import whole
from kvlab.memory.ideal import asked
from kvlab.memory.roofline import prefill


def load_seconds(model, new, link, dtype=None, tp=1):
    """The least time in which ``link`` bytes a second bring the keys and values of ``new`` tokens -> float.

    As many bytes as a text of so many tokens holds on one rank, each over a link of its own; states of
    recurrent layers are among them. model, dtype, tp: as in :func:`~kvlab.memory.kv_bytes`.
    """
    if not link > 0:
        raise ValueError(f"link is {link}; it must be more than 0 bytes a second")
    return _bytes(model, new, dtype, tp) / link


def break_even(model, new, device, cached=0, dtype=None, weights_dtype=None, tp=1):
    """The link's bytes a second above which loading ``new`` tokens after ``cached`` ones beats computing them
    -> float.

        bytes of new tokens / max(FLOPs / the device's FLOPs a second, bytes read / its bandwidth)

    where FLOPs and bytes read are those of :func:`~kvlab.memory.prefill`. With full attention and plenty of
    new tokens that is, a token of k bytes, P active parameters and A FLOPs a (query, key) pair in all layers,

        k x FLOPs a second / (2 P + A x (cached + (new + 1) / 2))

    so that the further back its text reaches, the dearer a token is to compute, and none to load.
    Raises ValueError where the device's arithmetic rate or the number of parameters is not known.
    """
    nbytes, step = (
        _bytes(model, new, dtype, tp),
        prefill(model, new, device, 1, weights_dtype, tp, cached, dtype),
    )
    if not step.compute_s:
        raise ValueError(f"no bf16 rate is known for {device_named(device).name}: choose another device")
    return nbytes / step.floor_s


def _bytes(model, new, dtype, tp):
    spec, form, tp = asked(model, dtype, tp)
    new = whole(new, "new", least=1)
    return sum(layer.held_bytes(new, form, tp) for layer in spec.layers)
