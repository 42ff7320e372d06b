"""Text from a model: one token after the other, several texts at once, or several tokens at once."""

from kvlab.generation.beams import Beam, beam_search
from kvlab.generation.loop import generate
from kvlab.generation.parallel import parallel_samples
from kvlab.generation.sampling import Sampler, sampling_probabilities
from kvlab.generation.speculation import prompt_lookup, speculate

__all__ = [
    "Beam",
    "Sampler",
    "beam_search",
    "generate",
    "parallel_samples",
    "prompt_lookup",
    "sampling_probabilities",
    "speculate",
]
