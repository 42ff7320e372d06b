"""The tiny models that the course trains, and the one recipe they share. The standard library is enough."""

from dataclasses import dataclass

from kvlab.model.config import Config, LatentSizes

VOCAB_SIZE = 1280

# No two sizes agree, so an axis taken for another cannot go unnoticed.
_TINY = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=144,
    num_layers=4,
    num_heads=6,
    head_dim=32,
    mlp_size=352,
    max_positions=1024,
)

# What one kind of attention saves in weights is given to the MLP, so that all have as many parameters, to
# within 0.3%. They differ in what a token leaves in a layer's cache: 384, 128, 64 and 64 numbers.
VARIANTS = {
    "tiny-mha": Config(**_TINY | {"mlp_size": 268}, num_kv_heads=6),
    "tiny-gqa": Config(**_TINY, num_kv_heads=2),
    "tiny-mqa": Config(**_TINY | {"mlp_size": 372}, num_kv_heads=1),
    "tiny-mla": Config(
        **_TINY | {"head_dim": 48, "mlp_size": 300},
        num_kv_heads=6,
        latent=LatentSizes(rank=48, nope_dim=32, rope_dim=16, value_dim=32),
        absorbed=False,  # over whole rows the naive form is less work
    ),
}


@dataclass(frozen=True)
class Stage:
    """Some steps on rows of one kind."""

    steps: int
    rows: int
    length: int  # tokens a row
    repeats: float  # share of the rows that end in an earlier span of theirs, over and over


@dataclass(frozen=True)
class Recipe:
    """How long, how fast, on what rows."""

    stages: tuple = (
        Stage(700, 32, 128, 1.0),  # where nearly half of the tokens can be copied, copying is learned first
        Stage(2600, 16, 256, 0.25),
        Stage(250, 4, 1024, 0.25),  # so that all positions have been seen
    )
    learning_rate: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.1
    seed: int = 1

    @property
    def steps(self):
        return sum(stage.steps for stage in self.stages)

    @property
    def tokens(self):
        return sum(stage.steps * stage.rows * stage.length for stage in self.stages)

    def stage(self, step):
        """The stage that step number ``step`` belongs to."""
        for stage in self.stages:
            if step < stage.steps:
                return stage
            step -= stage.steps
        raise IndexError(f"the recipe ends after {self.steps} steps")
