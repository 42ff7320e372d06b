"""Four kinds of attention trained alike: short runs over several seeds, and heads pooled after training.

``python3 -m kvlab train comparison`` writes comparison.json beside this file, run by run, and goes on where
it was cut. A seed decides the text and its order, so the runs of one seed are pairs.
"""

import json
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from kvlab import paths
from kvlab.model.decoder import Decoder
from kvlab.model.load import load
from kvlab.training.evaluate import held_out_loss
from kvlab.training.train import train
from kvlab.training.variants import VARIANTS, Recipe, Stage

RESULTS = Path(__file__).with_name("comparison.json")
SEEDS = (11, 12, 13, 14, 15)
SHORT = Recipe(stages=(Stage(600, 16, 128, 0.25),))
# As long as a twentieth of the whole training, which is what the GQA paper found to be enough (section 3.2).
UPTRAIN = Recipe(stages=(Stage(180, 16, 256, 0.25),), learning_rate=1e-3, warmup=20, seed=2)


def pool_heads(model, num_kv_heads):
    """The same decoder with fewer KV heads: each is the mean of those it replaces -> Decoder.

    (GQA, Ainslie et al. 2023, section 2.1.) Raises ValueError where the heads do not divide.
    """
    old = model.config
    if old.latent is not None or old.num_kv_heads % num_kv_heads:
        raise ValueError(f"{old.num_kv_heads} KV heads cannot be pooled into {num_kv_heads}")
    pooled = Decoder(replace(old, num_kv_heads=num_kv_heads)).to(model.dtype)
    weights = dict(model.state_dict())
    for name, weight in weights.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            groups = weight.unflatten(0, (num_kv_heads, -1, old.head_dim))  # [Hkv, G, D, hidden]
            weights[name] = groups.mean(dim=1).flatten(0, 1)
    pooled.load_state_dict(weights)
    return pooled


def values_per_token(config):
    """Numbers that one token leaves in the cache, all layers together -> int."""
    layers = [config.layer_kv(layer) for layer in range(config.num_layers)]
    return sum(kv.num_kv_heads * (kv.key_dim + (0 if kv.values_in_keys else kv.value_dim)) for kv in layers)


def short_run(variant, seed, folder):
    """One short training -> {variant, seed, loss on held-out text in nats a token}."""
    model, _ = train(variant, replace(SHORT, seed=seed), folder / f"seed-{seed}", quiet=True)
    return {"variant": variant, "seed": seed, "loss": round(held_out_loss(model, 128, 128), 4)}


def uptrained(num_kv_heads, folder):
    """The shipped tiny-mha with pooled heads: its loss at once, and after a short further training.

    With all its heads it is the control: what the further training alone does.
    """
    pooled = pool_heads(load("tiny-mha")[0], num_kv_heads)
    before = held_out_loss(pooled)
    name = f"tiny-mha pooled to {num_kv_heads}"
    model, _ = train(name, UPTRAIN, folder, quiet=True, start=pooled)
    return {"kv_heads": num_kv_heads, "at_once": round(before, 4), "after": round(held_out_loss(model), 4)}


def compare():
    """Do what comparison.json lacks."""
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"short": [], "pooled": []}
    folder = paths.ROOT / "build" / "comparison"
    runs = [(variant, seed) for seed in SEEDS for variant in VARIANTS]
    known = [(run["variant"], run["seed"]) for run in done["short"]]
    for variant, seed in tqdm([run for run in runs if run not in known], desc="short runs"):
        done["short"].append(short_run(variant, seed, folder))
        _write(done)
    for heads in tqdm([n for n in (6, 3, 2, 1) if n not in [run["kv_heads"] for run in done["pooled"]]]):
        done["pooled"].append(uptrained(heads, folder))
        _write(done)


def _write(done):
    RESULTS.write_text(json.dumps(done, indent=1) + "\n")
