"""The engine without a model: the same scheduler and pool, and a price in place of a step's time.

So a minute on a device that nobody here has takes a part of a second.
"""

from collections import Counter
from types import SimpleNamespace

import torch

from kvlab import memory
from kvlab.engine.engine import Engine
from kvlab.memory.roofline import step_on

ANY = torch.zeros(1)  # logits of token 0, the only one that a simulation writes


class Price:
    """Seconds that a step takes on a device, at least: its weights and caches read, or its FLOPs done.

    (The roofline of :mod:`kvlab.memory.roofline`, for decodes and chunks of prompts in one batch; one rank,
    the model's own dtypes.) What a host needs to prepare a step is not in it.
    """

    def __init__(self, model="Llama-3.1-8B", device="NVIDIA H100 SXM"):
        self.spec, self.device = memory.spec_of(model), memory.device(device)
        memory.weight_bytes(self.spec)  # says so where the parameters are not known
        self._layers = Counter(self.spec.layers)  # equal ones are priced once
        self._attention, self._reads = {}, {}

    def __call__(self, steps):
        """steps: [(tokens stored, new tokens)] -> seconds."""
        return self.step(steps).floor_s

    def step(self, steps):
        """The same -> :class:`kvlab.memory.Step`."""
        new = sum(n for _, n in steps)
        flops = 2 * (self.spec.active_parameters or self.spec.parameters) * new
        flops += sum(self._flops(stored + n, n > 1) - self._flops(stored, n > 1) for stored, n in steps)
        read = sum(self._read(stored + n) for stored, n in steps)
        return step_on(self.device, flops, read, memory.weights_read(self.spec, new))

    def _flops(self, tokens, prefill):
        """Attention's, for the first so many tokens."""
        if (tokens, prefill) not in self._attention:
            self._attention[tokens, prefill] = sum(
                count * layer.visible_so_far(tokens) * layer.row_flops(self.spec.query_heads, prefill)
                for layer, count in self._layers.items()
            )
        return self._attention[tokens, prefill]

    def _read(self, tokens):
        """Bytes of the cache that one pass over so many tokens reads."""
        if tokens not in self._reads:
            self._reads[tokens] = memory.read_bytes(self.spec, tokens)
        return self._reads[tokens]


def each_a_second(steps):
    """The price for counting steps."""
    return 1.0


class Simulation(Engine):
    """An :class:`Engine` for requests of which only the lengths matter; its clock is what the steps cost.

    price: [(tokens stored, new tokens)] of a step -> seconds, such as a :class:`Price`; the other arguments
    are an engine's. Prompts are of any tokens, answers of zeros. There is no limit to a text but the pool.
    """

    def __init__(
        self,
        num_blocks,
        block_size=16,
        max_batch_tokens=512,
        spare_blocks=1,
        price=each_a_second,
        prefix_cache=None,
        overtaking=0,
    ):
        self.price, self.elapsed = price, 0.0
        anything = SimpleNamespace(vocab_size=2**31, num_layers=0, max_positions=2**62)
        super().__init__(
            SimpleNamespace(config=anything),
            num_blocks,
            block_size,
            max_batch_tokens,
            spare_blocks,
            prefix_cache=prefix_cache,
            overtaking=overtaking,
        )

    def clock(self):
        return self.elapsed

    def spill_to(self, host):
        raise NotImplementedError("a simulation has no keys and values that could spill")

    def wait(self, seconds):
        self.elapsed += seconds

    def _logits(self, steps):
        self.elapsed += self.price([(each.stored, n) for each, n in steps])
        rows = [ANY for each, n in steps if each.missing == n]
        for each, n in steps:
            each.table.reserve(n)
            each.table.advance(n)
        return rows
