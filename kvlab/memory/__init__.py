"""What a cache costs: exact bytes per layer, what an engine allocates, how much fits, how fast it can be.

Plain Python. The sum runs over a model's layers, because no single formula holds for today's models; what is
not known is refused.
"""

from kvlab.memory.absorption import LatentStep, expand_from, latent_step
from kvlab.memory.capacity import (
    Budget,
    budget,
    fits_sequences,
    free_bytes,
    longest,
    outgrows,
    weight_bytes,
)
from kvlab.memory.catalogue import Device, device, devices, models, published
from kvlab.memory.errors import TokenLimitWarning, UnknownArchitecture, UnknownName
from kvlab.memory.families import FAMILIES
from kvlab.memory.formats import FORMATS, Format, format_named
from kvlab.memory.ideal import Cost, cost, kv_bytes, naive_bytes, read_bytes, replicated
from kvlab.memory.layers import Attention, Compressed, Latent, Layer, Shared, State
from kvlab.memory.pool import Allocation, allocation
from kvlab.memory.roofline import Step, attention_intensity, decode, prefill, touched, weights_read
from kvlab.memory.spec import ModelSpec, spec_of
from kvlab.memory.spill import break_even, load_seconds
from kvlab.memory.units import GB, UNITS, GiB, size

__all__ = [
    "FAMILIES",
    "FORMATS",
    "GB",
    "UNITS",
    "Allocation",
    "Attention",
    "Budget",
    "Compressed",
    "Cost",
    "Device",
    "Format",
    "GiB",
    "Latent",
    "LatentStep",
    "Layer",
    "ModelSpec",
    "Shared",
    "State",
    "Step",
    "TokenLimitWarning",
    "UnknownArchitecture",
    "UnknownName",
    "allocation",
    "attention_intensity",
    "break_even",
    "budget",
    "cost",
    "decode",
    "device",
    "devices",
    "expand_from",
    "fits_sequences",
    "format_named",
    "free_bytes",
    "kv_bytes",
    "latent_step",
    "load_seconds",
    "longest",
    "models",
    "naive_bytes",
    "outgrows",
    "prefill",
    "published",
    "read_bytes",
    "replicated",
    "size",
    "spec_of",
    "touched",
    "weight_bytes",
    "weights_read",
]
