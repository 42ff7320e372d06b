"""Is the kernel right on this device? Odd sizes of every option, against the reference in float64."""

from typing import NamedTuple

import torch

from kvlab.kernels import Batch, write_pages

# By so many steps of its dtype, at the size of its largest number, may a row differ from the exact one.
STEPS = {"bfloat16": 4, "float16": 4, "float32": 64}
NOT_A_NUMBER = 255  # a byte of which NaN is made, in every floating-point dtype
FLOAT8 = "float8"  # stands for the one that the device has
NOWHERE = 2**31 - 1  # no such page


class Check(NamedTuple):
    what: str
    contexts: tuple = (1, 16, 17, 300, 1025)
    queries: tuple = (1, 1, 1, 1, 1)
    heads: int = 8
    kv_heads: int = 2
    key_dim: int = 64
    value_dim: int = 64
    latent: bool = False
    block_size: int = 16
    dtype: str = "bfloat16"
    stored: str | None = None
    scales: str | None = None  # "head" or "each" token and head
    window: int | None = None
    sinks: bool = False
    parts: int | None = None
    unused: int = 3  # pages in front of those that are used

    @property
    def unused_bytes(self):
        width = self.key_dim + (0 if self.latent else self.value_dim)
        return self.unused * self.block_size * self.kv_heads * width * getattr(torch, self.dtype).itemsize


SEVERAL = (1, 5, 17, 64, 7)
LATENT = {"heads": 16, "kv_heads": 1, "key_dim": 576, "value_dim": 512, "latent": True}
CHECKS = [
    Check("a sequence without tokens", (0, 16, 17, 300, 1025), key_dim=128, value_dim=128),
    Check("float16, group of 1, blocks of 32", heads=2, dtype="float16", block_size=32),
    Check("float32, 80 and 48 wide, blocks of 3", key_dim=80, value_dim=48, dtype="float32", block_size=3),
    Check("float32, several new tokens", queries=SEVERAL, dtype="float32"),
    Check("96 wide, window, sinks", key_dim=96, value_dim=96, window=33, sinks=True),
    Check("256 wide, several new tokens", queries=SEVERAL, key_dim=256, value_dim=256),
    Check("192 and 128 wide, group of 7", heads=14, key_dim=192, value_dim=128),
    Check("MLA, 3 parts", parts=3, **LATENT),
    Check("MLA, several new tokens, sinks", queries=SEVERAL, sinks=True, **LATENT),
    Check("int8, a scale a head", stored="int8", scales="head"),
    Check("int8, a scale a token, several new tokens", queries=SEVERAL, stored="int8", scales="each"),
    Check("8-bit floats, a scale a head, window", stored=FLOAT8, scales="head", window=100),
    Check("8-bit floats, a scale a token", stored=FLOAT8, scales="each", key_dim=128, value_dim=128),
    Check("window, 5 parts, several new tokens", queries=SEVERAL, window=70, parts=5),
    Check("64 parts, more than most have tokens", parts=64),
    Check("pages beyond 2**31 numbers", unused=2**31 // (16 * 2 * 64)),
]


def steps_off(check, device, backend, float8):
    """The largest error of a check, as a share of what is allowed -> float, NaN where any number is."""
    made = _made(check, device, float8)
    given, scale = made["given"], check.key_dim**-0.5
    options = {"window": check.window, "sink_logits": made["sinks"], "scale": scale}
    options["v_dim"] = check.value_dim if check.latent else None
    got = _attend(made["paged"], given, made["tables"], options, backend, num_splits=check.parts)
    exact = {name: None if x is None else x.float().double() for name, x in made["plain"].items()}
    sinks = made["sinks"]
    options["sink_logits"] = None if sinks is None else sinks.double()
    doubled = given | {"q": given["q"].double()}
    right = _attend(exact, doubled, made["in_order"], options, "reference")  # [N, Hq, Dv]
    step = STEPS[check.dtype] * torch.finfo(given["q"].dtype).eps * right.abs().amax(-1)
    off = (got - right).abs().amax(-1)
    return float(torch.where(off == 0, 0.0, off / step).max())


def _attend(pages, given, tables, options, backend, **more):
    blocks, size = pages["k_pages"].shape[:2]
    batch = Batch(tables, given["contexts"], given["queries"], blocks, size)
    return batch.attend(given["q"], **pages, **options, **more, backend=backend)


def _made(check, device, float8):
    """Pages as they are stored, among others and in any order, and the same in order, with none unused."""
    random = torch.Generator(device).manual_seed(0)

    def numbers(*shape):
        return torch.randn(shape, generator=random, device=device)

    needed = [-(-context // check.block_size) for context in check.contexts]
    used, slots = sum(needed), (sum(needed), check.block_size, check.kv_heads)
    places = torch.randperm(used, generator=random, device=device) + check.unused
    tables, in_order = (torch.full((len(needed), max(needed)), NOWHERE, dtype=torch.int32) for _ in range(2))
    there, start = torch.zeros(used * check.block_size, dtype=torch.bool), 0
    for b, (context, n) in enumerate(zip(check.contexts, needed, strict=True)):
        tables[b, :n] = places[start : start + n].cpu()
        in_order[b, :n] = torch.arange(start, start + n)
        there[start * check.block_size :][:context] = True
        start += n
    there = there.to(device).view(used, check.block_size)
    dtype = getattr(torch, check.dtype)
    stored = getattr(torch, {None: check.dtype, FLOAT8: float8}.get(check.stored, check.stored))

    def pages(width):
        wanted = numbers(*slots, width)
        made = (wanted * 30).round().clamp(-127, 127) if stored == torch.int8 else wanted
        return spoil(made.to(stored), there)

    def factors():
        if check.scales is None:
            return None
        if check.scales == "head":
            return numbers(check.kv_heads).abs() * 0.01 + 0.02
        return spoil((numbers(*slots, 1).abs() * 0.01 + 0.02), there)[..., 0]

    plain = {"k_pages": pages(check.key_dim), "v_pages": None, "k_scale": factors(), "v_scale": None}
    if not check.latent:
        plain |= {"v_pages": pages(check.value_dim), "v_scale": factors()}
    given = {
        "q": numbers(sum(check.queries), check.heads, check.key_dim).to(dtype),
        "contexts": torch.tensor(check.contexts),
        "queries": torch.tensor(check.queries),
    }
    return {
        "given": given,
        "sinks": numbers(check.heads) if check.sinks else None,
        "tables": tables,
        "in_order": in_order,
        "plain": plain,
        "paged": {name: scattered(x, places, check.unused) for name, x in plain.items()},
    }


def spoil(pages, there):
    """NaN, or -1 where there is none, in the slots that hold no token."""
    pages.view(torch.uint8)[~there] = NOT_A_NUMBER
    return pages


def scattered(pages, places, unused):
    """Pages in order -> each at its place behind ``unused`` others; scales of a head stay as they are."""
    if pages is None or pages.dim() == 1:
        return pages
    whole = pages[..., None] if pages.dim() == 3 else pages  # scales of tokens: numbers one wide
    taken = whole.contiguous().view(torch.uint8)
    room = taken.new_full((unused + len(taken), *taken.shape[1:]), NOT_A_NUMBER)
    for page, place in zip(taken, places.tolist(), strict=True):
        room[place] = page
    return room.view(pages.dtype).view(-1, *pages.shape[1:])


def written_otherwise(device, backend, float8):
    """Where ``write_pages`` stores other bits than its reference does on the CPU -> [dtype and scale]."""
    random, wrong = torch.Generator().manual_seed(0), []
    for stored, scales in (("bfloat16", None), ("int8", "head"), ("int8", "each"), (float8, "each")):
        new = [(torch.randn(57, 3, width, generator=random) * 9).bfloat16() for width in (80, 64)]
        slots, shape = torch.randperm(30 * 4, generator=random)[:57], {"head": (3,), "each": (30, 4, 3)}
        results = []
        for place, way in (("cpu", "reference"), (device, backend)):
            pages = [torch.zeros(30, 4, 3, x.shape[2]).to(place, getattr(torch, stored)) for x in new]
            factors = [torch.full(shape[scales], 0.25, device=place) if scales else None for _ in new]
            options = {"k_scale": factors[0], "v_scale": factors[1], "backend": way}
            write_pages(*(x.to(place) for x in new), *pages, slots.to(place), **options)
            results.append([x.cpu().view(torch.uint8) for x in (*pages, *factors) if x is not None])
        if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
            wrong.append(f"{stored}, {scales or 'no'} scale")
    return wrong


def attend_without_waiting(device, backend, no_waiting):
    """RuntimeError from PyTorch where a call for one more layer waits for the device."""
    check = Check("", contexts=(40, 50, 9), queries=(1, 3, 1))
    made = _made(check, device, None)
    given, pages = made["given"], made["paged"]

    def batch():
        return Batch(made["tables"], given["contexts"], given["queries"], *pages["k_pages"].shape[:2])

    batch().attend(given["q"], **pages, scale=0.125, backend=backend)  # compiles
    fresh = batch()
    with no_waiting():
        for _ in range(2):  # the first layer of a step, and another
            fresh.attend(given["q"], **pages, scale=0.125, backend=backend)
