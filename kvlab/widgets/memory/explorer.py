"""Where prefill and decode lie on a device's roofline, and what the time of a token is spent on."""

from dataclasses import replace

import ipywidgets as widgets

from kvlab import memory
from kvlab.exercises.questions import labelled
from kvlab.viz import memory as viz
from kvlab.viz.show import Shown, Table
from kvlab.widgets.memory import controls
from kvlab.widgets.memory.answers import spec_of
from kvlab.widgets.memory.words import many

BATCHES = tuple(2**power for power in range(9))


class RooflineExplorer(Shown):
    """A model's prefill and decode on a device's roofline; decode's least time for batches of 1 to 256.

    sequences and tokens are where the sliders begin: the batch, and the length of its texts.
    """

    def __init__(
        self,
        model="Llama-3.1-8B",
        device="NVIDIA H100 SXM",
        tokens=8192,
        sequences=16,
        dtype=None,
        weights_dtype=None,
        tp=1,
    ):
        self.asked = (model, memory.device(device).name, tokens, sequences, dtype, weights_dtype, tp)
        self.steps = self.compute(*self.asked)

    @staticmethod
    def compute(model, device, tokens, sequences, dtype, weights_dtype, tp):
        """-> (spec, device, prefill, decode, {batch: decode}, sequences that fit)"""
        spec, device = spec_of(model), memory.device(device)
        endless = replace(spec, max_tokens=None)
        batches = sorted({*BATCHES, sequences})
        steps = {
            batch: memory.decode(spec, tokens, device, batch, dtype, weights_dtype, tp) for batch in batches
        }
        prompt = memory.prefill(spec, tokens, device, 1, weights_dtype, tp)
        free = memory.free_bytes(spec, device, weights_dtype, tp)
        fits = memory.fits_sequences(endless, tokens, free, dtype, tp)
        return spec, device, prompt, steps, fits

    @staticmethod
    def bars(steps, fits):
        return [
            viz.Bar(
                batch,
                step.weights_read,
                step.kv_read,
                step.read_s,
                step.compute_s,
                fits is None or batch <= fits,
            )
            for batch, step in steps.items()
        ]
