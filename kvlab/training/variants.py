"""The tiny models that the course trains, and the one recipe they share."""

from dataclasses import dataclass

from kvlab.model.config import Config
from kvlab.training.tokenizer import VOCAB_SIZE

# No two sizes agree, so an axis taken for another cannot go unnoticed.
_TINY = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=128,
    num_layers=4,
    num_heads=6,
    head_dim=32,
    mlp_size=320,
    max_positions=1024,
)

VARIANTS = {
    "tiny-gqa": Config(**_TINY, num_kv_heads=2),
}


@dataclass(frozen=True)
class Recipe:
    """How long, how fast, on what rows."""

    short_steps: int = 3200
    short_rows: tuple = (16, 256)  # rows, tokens a row
    long_steps: int = 250  # at the end, so that all positions have been seen
    long_rows: tuple = (4, 1024)
    learning_rate: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.1
    repeat_share: float = 0.4  # rows that end in an earlier span of theirs, over and over
    seed: int = 1

    @property
    def steps(self):
        return self.short_steps + self.long_steps

    def rows(self, step):
        return self.short_rows if step < self.short_steps else self.long_rows
