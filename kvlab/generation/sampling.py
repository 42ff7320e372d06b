"""The distribution that a token is drawn from, and what shapes it."""

import math

import torch

from kvlab.generation.arguments import whole


class Sampler:
    """Picks tokens. The arguments are those of :func:`~kvlab.generation.generate`."""

    def __init__(self, temperature=0.0, top_k=None, top_p=None, seed=None):
        top_k = None if top_k is None else whole("top_k", top_k, at_least=1)
        check_sampling(temperature, top_k, top_p)
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.random = torch.Generator()  # on the CPU: a seed gives the same text wherever the model runs
        if seed is None:
            self.random.seed()
        else:
            self.random.manual_seed(whole("seed", seed, at_least=0) % 2**63)

    def pick(self, logits):
        """A token by logits [vocab] -> int."""
        largest, token = logits.max(dim=-1)
        if largest.isnan():
            raise ValueError("the model's logits are not numbers (NaN): are its weights damaged?")
        if self.temperature == 0:
            return int(token)
        return self._drawn(sampling_probabilities(logits, self.temperature, self.top_k, self.top_p))

    def pick_or_take(self, logits, proposal):
        """A token with the same distribution as ``pick``'s, which is the proposal as often as can be -> int.

        It is taken with the probability that the model gives it; otherwise one of the others is drawn.
        (Leviathan et al. 2023, section 2.3, for a draft that is sure of each of its tokens.)
        """
        if self.temperature == 0:
            return self.pick(logits)
        probabilities = sampling_probabilities(logits, self.temperature, self.top_k, self.top_p)
        if float(torch.rand((), generator=self.random, dtype=torch.float64)) < probabilities[proposal]:
            return proposal
        probabilities[proposal] = 0
        return self._drawn(probabilities)

    def _drawn(self, probabilities):
        return int(torch.multinomial(probabilities, 1, generator=self.random))


def sampling_probabilities(logits, temperature, top_k=None, top_p=None):
    """The distribution that a token is drawn from: logits [vocab] -> probabilities [vocab].

    top-p: Holtzman et al. 2020, section 3.1; the token that crosses ``top_p`` is still in.
    """
    logits = logits.cpu().double()  # 16 bits are too few for a sum over a vocabulary
    probabilities = ((logits - logits.max()) / temperature).softmax(dim=-1)
    order = probabilities.argsort(descending=True, stable=True)
    kept = torch.ones_like(order, dtype=torch.bool)
    if top_k is not None:
        kept[top_k:] = False
    if top_p is not None:
        ranked = probabilities[order] * kept
        ranked = ranked / ranked.sum()
        kept &= ranked.cumsum(dim=-1) - ranked < top_p  # what comes before does not reach top_p yet
    probabilities = probabilities.clone()
    probabilities[order[~kept]] = 0
    return probabilities / probabilities.sum()


def check_sampling(temperature, top_k, top_p):
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if value is not None and not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    if temperature is None or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; it is 0 for greedy or above")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}; it lies above 0 and at most at 1")
    if temperature == 0 and (top_k is not None or top_p is not None):
        raise ValueError("top_k and top_p shape a draw, and temperature 0 draws nothing: give a temperature")
