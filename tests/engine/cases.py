"""Small models whose texts never repeat themselves, and what each text is when it is written alone."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import torch

import kvlab
from kvlab.caches import NoCache
from kvlab.engine import Engine
from kvlab.generation.sampling import Sampler
from kvlab.model.config import Config, LatentSizes
from tests.models import random_model

PLAIN = Config(
    vocab_size=23,
    hidden_size=12,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    mlp_size=10,
    max_positions=99,
    tied_embeddings=False,
)
WINDOWS = replace(PLAIN, windows=(3, 5))
LATENT = replace(
    PLAIN,
    num_kv_heads=4,
    head_dim=6,
    latent=LatentSizes(rank=5, nope_dim=4, rope_dim=2, value_dim=3, query_rank=7),
)
VOCAB = PLAIN.vocab_size
TOLERANCE = 1e-9


def lively(config):
    """A random model in float64 with large weights: what it writes depends on all that came before."""
    model = random_model(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(3)
    return model


MODELS = {"plain": lively(PLAIN), "windows": lively(WINDOWS), "latent": lively(LATENT)}
MODEL = MODELS["plain"]


class Letters:
    """A tokenizer of VOCAB tokens: letters, pairs of letters, and bytes that make é and € only together."""

    pieces = [*b"abcdefghijklm", b"ab", b"ba", b"bc", b"cab", *"é".encode(), *"€".encode(), b" "]
    pieces = [bytes([piece]) if isinstance(piece, int) else piece for piece in pieces]

    def decode(self, ids):
        return b"".join(self.pieces[i] for i in ids).decode("utf-8", "replace")


LETTERS = Letters()


def prompt(n, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + n)
    return torch.randint(VOCAB, (n,), generator=generator).tolist()


def engine(num_blocks, block_size=4, max_batch_tokens=64, spare_blocks=0, model="plain", **options):
    """An engine whose memory is full of NaN: whoever reads a slot that nobody wrote is found out."""
    made = Engine(MODELS[model], num_blocks, block_size, max_batch_tokens, spare_blocks, **options)
    kinds = [made.model.config.layer_kv(layer) for layer in range(made.model.config.num_layers)]
    made.pages.layers = [
        tuple(
            torch.full((num_blocks, block_size, kind.num_kv_heads, width), torch.nan, dtype=torch.float64)
            for width in ((kind.key_dim,) if kind.values_in_keys else (kind.key_dim, kind.value_dim))
        )
        for kind in kinds
    ]
    return made


@cache
def longest(model, ids, new, options):
    """What ``generate`` writes alone, nothing stopping it -> (tokens, the logits that each was taken from, by
    a model that forgets nothing). options: pairs."""
    tokens = list(kvlab.generate(MODELS[model], list(ids), new, **dict(options)))
    exact = MODELS[model](torch.tensor([*ids, *tokens]), NoCache(MODELS[model].config))  # [tokens, vocab]
    return tokens, exact[len(ids) - 1 :]


def text_of(ids, new, index=0, *, model="plain", seed=None, **options):
    """Text number index of a request that nothing stops; one of 9 tokens is the beginning of one of 16."""
    seed = {} if seed is None else {"seed": seed + index}
    new = min(-(-new // 16) * 16, MODELS[model].config.max_positions + 1 - len(ids))
    return longest(model, tuple(ids), new, tuple(sorted((options | seed).items())))


def alone(ids, new, index=0, *, n=1, stop=(), stop_strings=(), salt=None, **options):
    """Text number index of a request -> (tokens, why it ends, its text)."""
    tokens, written = text_of(ids, new, index, **options)[0][:new], []
    for token in tokens:
        if token in stop:
            return written, "stop", LETTERS.decode(written)
        written.append(token)
        if (text := stopped(LETTERS.decode(written), stop_strings)) is not None:
            return written, "stop", text
    return written, "length", LETTERS.decode(written)


def stopped(text, strings):
    """Read letter by letter: what stands before the first stop string that is complete, None without one."""
    for end in range(len(text) + 1):
        lengths = [len(string) for string in strings if text[:end].endswith(string)]
        if lengths:
            return text[: end - max(lengths)]
    return None


class Watched:
    """A request, what each of its texts should be, and the logits that its tokens were taken from."""

    def __init__(self, engine, ids, new, model="plain", **options):
        self.engine, self.model, self.ids, self.new, self.options = engine, model, list(ids), new, options
        self.request = engine.submit(ids, new, **options)
        self.rows = [[] for _ in self.request.samplers]
        for sampler, rows in zip(self.request.samplers, self.rows, strict=True):
            self._watch(sampler, rows)

    def __getattr__(self, name):
        return getattr(self.request, name)

    def cancel(self):
        self.engine.cancel(self.request)

    def compare(self):
        """Every text is, or for one that was cancelled begins, what it would be alone."""
        request = self.request
        assert request.done and None not in request.why and "ended" in request.steps
        for index, (written, why) in enumerate(zip(request.outputs, request.why, strict=True)):
            tokens, reason, text = alone(self.ids, self.new, index, model=self.model, **self.options)
            if why == "cancelled":
                assert request.status == "cancelled" and written == tokens[: len(written)]
                assert len(written) < self.new
            else:
                assert (written, why) == (tokens, reason)
                if self.engine.tokenizer is not None:
                    assert request.texts[index] == text
            self._compare_logits(index, len(written), self.rows[index])

    def _compare_logits(self, index, written, rows):
        """As many as tokens, or one more for a stop token: those after the prompt and after each token."""
        assert len(rows) - written in (0, 1)
        drawn = {k: v for k, v in self.options.items() if k not in ("n", "stop", "stop_strings", "salt")}
        exact = text_of(self.ids, self.new, index, model=self.model, **drawn)[1]
        if rows:
            assert (torch.stack(rows) - exact[: len(rows)]).abs().max() < TOLERANCE

    @staticmethod
    def _watch(sampler, rows):
        def pick(row):
            token = Sampler.pick(sampler, row)
            rows.append(row)
            return token

        sampler.pick = pick


@contextmanager
def failing(server, where, error):
    """Its model fails: in front of layer 0 or 1, "behind" both, when all is stored, or "sampling" the text
    that comes last of those that are written (or in front, where none is)."""
    model = server.model

    def fail(*_):
        raise error("on purpose")

    if where == "sampling":
        logits, last = server._logits, [None]

        def noting(steps):
            complete = [each for each, n in steps if each.missing == n] or fail()
            rows, forked = logits(steps), complete[-1].places > 1
            last[0] = complete[-1].request.samplers[-1] if forked else complete[-1].sampler
            last[0].kept, last[0].pick = last[0].pick, fail
            return rows

        server._logits = noting
        try:
            yield
        finally:
            del server._logits
            if last[0] is not None:
                last[0].pick = last[0].kept
        return
    module = model.norm if where == "behind" else model.layers[where]
    hook = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()
