"""What the tests of the second tier have in common: pages whose contents tell their text, and odd links."""

import threading
import zlib

import torch

from kvlab.caches import Pages
from kvlab.caches.host import HostTier
from kvlab.paging import BlockTable
from tests.models import SMALL

SIZE = 4
BLOCK = 2 * SMALL.num_layers * SMALL.num_kv_heads * SMALL.head_dim * SIZE * 4  # bytes: K and V, float32


def some_pages(num_blocks=12, config=SMALL, dtype=torch.float32):
    """As if tokens had come already."""
    pages = Pages(config, num_blocks, SIZE)
    for layer in range(config.num_layers):
        pages.write(layer, torch.arange(SIZE), *_random(config, layer, dtype, seed=0))
        for each in pages.layers[layer]:
            each.zero_()  # and no NaN, which equals nothing
    return pages


def text(*letters):
    """Of each letter a block: a number that repeats it."""
    return [letter for letter in letters for _ in range(SIZE)]


def fill(pages, block, before, namespace=None):
    """What the last block of these tokens has to hold: another for every text and namespace."""
    seed = zlib.crc32(repr((type(namespace), namespace, before)).encode())
    slots = torch.arange(block * SIZE, (block + 1) * SIZE)
    for layer, (first, *_) in enumerate(pages.layers):
        pages.write(layer, slots, *_random(pages.config, layer, first.dtype, seed))


def computed(pages, tokens, namespace=None):
    """A sequence of these tokens, in full blocks -> its table."""
    table = BlockTable(pages.pool)
    table.reserve(len(tokens))
    table.advance(len(tokens))
    for place, block in enumerate(table.blocks):
        fill(pages, block, tokens[: (place + 1) * SIZE], namespace)
    return table


def stored(tier, tokens, namespace=None):
    """In the tier, and no longer in the pages, where something else stands in its blocks."""
    table = computed(tier.pages, tokens, namespace)
    sent = tier.offer(tokens, table.blocks, namespace)
    scribble(tier.pages, table)
    assert tier.wait(10)
    tier.check()
    return sent


def scribble(pages, table):
    for layer in pages.layers:
        for each in layer:
            each[table.blocks] = -1
    table.release()


def rows(pages, tokens, namespace=None):
    """What the blocks of these tokens are, byte by byte -> [blocks, block_bytes] uint8"""
    other = some_pages(max(len(tokens) // SIZE, 1), pages.config, pages.layers[0][0].dtype)
    blocks = computed(other, tokens, namespace).blocks
    parts = [each[blocks].flatten(1).view(torch.uint8) for layer in other.layers for each in layer]
    return torch.cat(parts, 1)


def brought(tier, tokens, namespace=None, **more):
    """A load, once it has arrived in the pages and was found right -> how many blocks it had."""
    load = tier.fetch(tokens, namespace, **more)
    assert tier.wait(10) and load.done
    return arrived(load, tokens, namespace, **more)


def arrived(load, tokens, namespace=None, start=0, most=None):
    pages, table, n = load.tier.pages, BlockTable(load.tier.pages.pool), len(load.blocks)
    table.reserve(n * SIZE)
    load.into(table.blocks)
    wanted = rows(pages, tokens[: start + n * SIZE], namespace)[start // SIZE :]
    held = [each[table.blocks].flatten(1).view(torch.uint8) for layer in pages.layers for each in layer]
    assert torch.equal(torch.cat(held, 1), wanted)
    assert not n or most is None or start + n * SIZE <= most
    table.release()
    load.tier.check()
    return n


def counted(tier):
    return {name: getattr(tier, name) for name in ("stored", "loaded", "skipped", "failed", "corrupt")}


def counts(**more):
    return dict.fromkeys(("stored", "loaded", "skipped", "failed", "corrupt"), 0) | more


class Stepped(HostTier):
    """Its thread does nothing: the test carries block by block. ``spoil`` may do something to each."""

    spoil = None

    def _work(self):
        pass

    def step(self, n=1):
        for _ in range(n):
            self._turn()

    def wait(self, timeout=None):
        while self._jobs:
            self._turn()
        return True

    def close(self):
        super().close()
        super()._work()

    def carry(self, source, target):
        super().carry(source, target)
        if self.spoil is not None:
            self.spoil(source, target)


class Gated(HostTier):
    """Its link carries a block when it is let, or when the tier closes."""

    def __init__(self, *sizes, **more):
        self.begun, self.let = threading.Semaphore(0), threading.Semaphore(0)
        super().__init__(*sizes, **more)

    def carry(self, source, target):
        self.begun.release()
        while not self.let.acquire(timeout=0.01) and not self._closing.is_set():
            pass
        super().carry(source, target)

    def reached(self):
        """Until the thread stands at the gate."""
        assert self.begun.acquire(timeout=10)


def flip(tensor, bit=0):
    """Turn one bit of a row of bytes."""
    tensor[bit // 8 % len(tensor)] ^= 1 << bit % 8


def _random(config, layer, dtype, seed):
    """Keys and values of one block, or keys alone: [SIZE, Hkv, D] each"""
    spec = config.layer_kv(layer)
    generator = torch.Generator().manual_seed(seed * 100 + layer)
    widths = (spec.key_dim,) if spec.values_in_keys else (spec.key_dim, spec.value_dim)
    drawn = [torch.randn(SIZE, spec.num_kv_heads, width, generator=generator).to(dtype) for width in widths]
    return (*drawn, None)[:2]
