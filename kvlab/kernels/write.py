"""New keys and values into pages: the front door, and PyTorch's way of doing it."""

import torch

from kvlab.kernels.backend import chosen

EIGHT_BITS = torch.int8, torch.float8_e4m3fn, torch.float8_e5m2


def write_pages(k, v, k_pages, v_pages, slots, *, k_scale=None, v_scale=None, backend=None):
    """Store new keys and values in place, rounded where the pages hold int8 or 8-bit floating-point numbers.

    k, v       [N, Hkv, Dk] and [N, Hkv, Dv], or v None
    k_pages,   [num_blocks, block_size, Hkv, D], or v_pages None
    v_pages
    slots      integers [N], block * block_size + place in the block; no two alike
    k_scale,   for 8 bits: a number or [Hkv], by which numbers are divided (those beyond the dtype's largest
    v_scale    become the largest), or float32 [num_blocks, block_size, Hkv], where each token's and head's
               own is written: its largest number becomes the dtype's largest (int8: 127, float8_e4m3fn: 448)
    backend    as in ``paged_attention``, which takes the same scales

    Raises ValueError or TypeError that names the argument, before anything is written.
    """
    if (v is None) != (v_pages is None):
        raise ValueError("v and v_pages go together: give both, or none")
    pairs = [("k", k, k_pages, k_scale)] + ([] if v is None else [("v", v, v_pages, v_scale)])
    for pair in pairs:
        _check(*pair)
    if v is not None and len(v) != len(k):
        raise ValueError(f"k has {len(k)} tokens and v {len(v)}: a token has both")
    if v is not None and v_pages.shape[:2] != k_pages.shape[:2]:
        raise ValueError(
            f"v_pages has shape {list(v_pages.shape)} and k_pages {list(k_pages.shape)}: as many blocks, and "
            "of one size"
        )
    _check_slots(slots, len(k), k_pages)
    backend = chosen(backend, k.device, lambda interpreting: _obstacle(pairs, interpreting))
    for _, new, pages, scale in pairs:
        new = new.detach()  # numbers, and not how they came about
        if backend == "reference":
            _store(new, pages, slots.to(pages.device), scale)
        else:
            from kvlab.kernels import triton_launch

            triton_launch.write(new, pages, slots, scale)


def _store(new, pages, slots, scale):
    if scale is not None:
        limits = torch.finfo if pages.dtype.is_floating_point else torch.iinfo
        largest = float(limits(pages.dtype).max)
        numbers = new.float()
        if isinstance(scale, torch.Tensor) and scale.dim() == 3:
            most = numbers.abs().amax(dim=-1)  # [N, Hkv]
            factors = most / largest
            factors = torch.where(factors > 0, factors, 1.0)
            _put(scale, slots, factors)
        else:
            factors = torch.as_tensor(scale, dtype=torch.float32, device=new.device)
        numbers = (numbers / factors[..., None]).clamp(-largest, largest)
        new = numbers if pages.dtype.is_floating_point else numbers.round()
    _put(pages, slots, new.to(pages.dtype))


def _put(pages, slots, new):
    if pages.is_contiguous():
        pages.flatten(0, 1)[slots] = new
    else:  # flattened they would be a copy
        pages[slots // pages.shape[1], slots % pages.shape[1]] = new


def _obstacle(pairs, interpreting):
    from kvlab.kernels import triton_launch

    tensors = {}
    for name, new, pages, scale in pairs:
        tensors[name] = new.contiguous(), triton_launch.DTYPES
        tensors[f"{name}_pages"] = pages, triton_launch.STORED
        if isinstance(scale, torch.Tensor) and scale.dim() == 3:
            tensors[f"{name}_scale"] = scale, (torch.float32,)
    return triton_launch.obstacle(tensors, interpreting)


def _check(name, new, pages, scale):
    if new.dim() != 3 or pages.dim() != 4 or new.shape[1:] != pages.shape[2:]:
        raise ValueError(
            f"{name} has shape {list(new.shape)} and {name}_pages {list(pages.shape)}; they are [tokens, KV "
            "heads, size] and [blocks, block size, KV heads, size]"
        )
    if scale is not None and pages.dtype not in EIGHT_BITS:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in EIGHT_BITS)
        raise TypeError(f"{name}_scale is given, and {name}_pages is {pages.dtype}: scales are for {known}")
    if scale is None and pages.dtype != new.dtype:
        raise TypeError(
            f"{name}_pages is {pages.dtype} and {name} {new.dtype}: give {name}_scale, or one dtype"
        )
    fits = (), tuple(pages.shape[2:3]), tuple(pages.shape[:3])
    if isinstance(scale, torch.Tensor) and tuple(scale.shape) not in fits:
        raise ValueError(
            f"{name}_scale has shape {list(scale.shape)}; it is a number, {list(fits[1])} or {list(fits[2])}"
        )
    if isinstance(scale, torch.Tensor) and scale.dim() == 3 and scale.dtype != torch.float32:
        raise TypeError(f"{name}_scale is {scale.dtype}; scales that are written are float32")


def _check_slots(slots, count, pages):
    if slots.is_floating_point() or slots.dtype == torch.bool or tuple(slots.shape) != (count,):
        raise ValueError(
            f"slots is {slots.dtype} of shape {list(slots.shape)}; it holds an integer a token, {count} here"
        )
    if slots.device.type == "cpu" and count:  # on a device, looking would mean waiting for it
        low, high = (int(x) for x in slots.aminmax())
        last = pages.shape[0] * pages.shape[1] - 1
        if low < 0 or high > last:
            raise ValueError(f"slots has {low if low < 0 else high}; these pages have 0 to {last}")
