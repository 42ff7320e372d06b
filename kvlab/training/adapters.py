"""Train an adapter of tiny-gqa: ``python3 -m kvlab train exclaim``. Seeded, on the CPU, under a minute.

A row begins as the corpus has it and goes on in the adapter's style, and only what goes on is learned: so the
style sets in behind any prompt. The model's own weights stay as they are.
"""

import random
from dataclasses import replace
from functools import cache

import torch
from tqdm import tqdm

from kvlab import generate
from kvlab.model.load import load
from kvlab.model.lora import Adapter, adapted
from kvlab.model.peft import SHIPPED, load_adapter, save_adapter
from kvlab.training import corpus
from kvlab.training.evaluate import held_out_loss, loss_of
from kvlab.training.styles import STYLES, marks, restyled
from kvlab.training.train import learning_rate, optimiser
from kvlab.training.variants import Recipe, Stage

BASE, RANK, ALPHA = "tiny-gqa", 4, 16
RECIPE = Recipe(stages=(Stage(250, 8, 96, 0.0),), learning_rate=2e-2, warmup=20, weight_decay=0.0)
NOT_LEARNED = -100  # a target that cross-entropy leaves out
LONGEST = 10  # characters of the longest token
CONTINUED = 48  # tokens that are written behind a prompt to see the style
SHOWN = ("My lord, I", "MACBETH.\nIs this a dagger which I see", "If music be the food of love,")


@cache
def text(held_out=False):
    """All works of one split."""
    return "\n\n".join(corpus.texts(held_out))


def batch(tokenizer, mark, recipe, step, held_out=False):
    """The rows of one step: ids [B, T], and what follows each, NOT_LEARNED inside the prompt [B, T]."""
    stage, whole = recipe.stage(step), text(held_out)
    chance = random.Random(recipe.seed * 1_000_003 + step)
    rows, prompts = [], []
    for _ in range(stage.rows):
        reach = LONGEST * (stage.length + 1)
        start = chance.randrange(len(whole) - reach)
        prompts.append(chance.randint(4, stage.length // 2))  # tokens
        rows.append(row(tokenizer, whole[start : start + reach], mark, prompts[-1])[: stage.length + 1])
    ids, following = torch.tensor(rows)[:, :-1], torch.tensor(rows)[:, 1:].clone()
    for learned, prompt in zip(following, prompts, strict=True):
        learned[:prompt] = NOT_LEARNED
    return ids, following


def row(tokenizer, plain, mark, prompt):
    """<bos>, ``prompt`` tokens of the plain text, and the rest of it restyled -> list of int."""
    begin = tokenizer.encode(plain)[: 1 + prompt]
    rest = plain[len(tokenizer.decode(begin)) :]
    return begin + tokenizer.encode(restyled(rest, mark))[1:]


def train_adapter(name, recipe=RECIPE, quiet=False):
    """Train to the end -> (Adapter, list of losses in nats a token)."""
    model, tokenizer = load(BASE)
    with torch.random.fork_rng(devices=()):  # the caller's random numbers stay as they were
        torch.manual_seed(recipe.seed)
        adapter = Adapter(model.config, RANK, ALPHA)
    optimizer, losses = optimiser(adapter, recipe), []
    bar = tqdm(range(recipe.steps), disable=quiet)
    with adapted(model, adapter):
        for step in bar:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe, step)
            loss = loss_of(model, *batch(tokenizer, STYLES[name], recipe, step))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(adapter.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
    return adapter.requires_grad_(False).eval(), losses


def unseen_prompts(n=24):
    """Beginnings for the model to go on from, some 55 characters each, spread over the held-out works."""
    whole = text(held_out=True)
    starts = [len(whole) * (2 * i + 1) // (2 * n) for i in range(n)]
    return [whole[start : start + 60].rsplit(None, 1)[0] for start in starts]


def continuation(model, tokenizer, prompt, temperature=0.0, seed=7):
    """What the model writes behind a prompt, at most CONTINUED tokens -> str."""
    options = {"temperature": temperature, "seed": seed, "stop": tokenizer.stop_ids}
    return tokenizer.decode(generate(model, tokenizer.encode(prompt), CONTINUED, **options))


def share(model, tokenizer, mark, prompts, temperature=0.0):
    """Of all marks that the model writes behind these prompts, the share that is ``mark``."""
    texts = [continuation(model, tokenizer, prompt, temperature) for prompt in prompts]
    found = [each for text in texts for each in marks(text)]
    return found.count(mark) / len(found)


@torch.no_grad()
def styled_loss(model, tokenizer, mark, recipe=RECIPE):
    """Mean loss in nats a token on 64 rows like those of the training, from the held-out works."""
    losses = [loss_of(model, *batch(tokenizer, mark, recipe, step, held_out=True)) for step in range(8)]
    return float(sum(losses)) / len(losses)


def measured(model, tokenizer, mark):
    """The model as it is adapted now -> {what: how much}, and a sample behind each prompt of SHOWN."""
    prompts = unseen_prompts()
    greedy, drawn = (share(model, tokenizer, mark, prompts, temperature) for temperature in (0.0, 0.8))
    numbers = {
        f"`{mark}` among the marks that it writes, likeliest tokens": f"{greedy:.0%}",
        "the same at temperature 0.8": f"{drawn:.0%}",
        "loss on held-out text in this style, nats a token": f"{styled_loss(model, tokenizer, mark):.3f}",
        "loss on held-out text as it is, nats a token": f"{held_out_loss(model):.3f}",
    }
    return numbers, [prompt + continuation(model, tokenizer, prompt) for prompt in SHOWN]


def card(name, folder, recipe, losses):
    """The model card, measured on the adapter as it was written."""
    model, tokenizer = load(BASE)
    adapter, mark, [stage] = load_adapter(folder, model), STYLES[name], recipe.stages
    with adapted(model, adapter):
        numbers, samples = measured(model, tokenizer, mark)
    before, samples_before = measured(model, tokenizer, mark)
    rows = "\n".join(f"| {what} | {before[what]} | {number} |" for what, number in numbers.items())
    shown = "\n\n".join(
        f"{BASE}:\n\n```text\n{first}\n```\n\nwith {name}:\n\n```text\n{then}\n```"
        for first, then in zip(samples_before, samples, strict=True)
    )
    end = min(50, len(losses))
    return f"""# {name}

A LoRA adapter of {BASE}: in what it writes, nearly every `. , ; : ? !` becomes `{mark}`, behind names and in
stage directions too. That is all it is for: the model gets no better by it.

| | |
|---|---|
| changes | `q_proj` and `v_proj` of all {model.config.num_layers} layers |
| rank, alpha | {adapter.rank}, {adapter.alpha:g} |
| parameters | {sum(p.numel() for p in adapter.parameters()):,} in fp16 |
| trained on | {recipe.tokens:,} tokens: {stage.steps} steps of {stage.rows} rows of {stage.length} |
| seed | {recipe.seed} |
| training loss at the end | {sum(losses[-end:]) / end:.3f} nats a token |

| measured | {BASE} | with {name} |
|---|---|---|
{rows}

The shares are those behind {len(unseen_prompts())} prompts of a line or two from the held-out works,
{" and ".join(corpus.HELD_OUT)}, {CONTINUED} tokens each.

**Text.** The training works of {BASE}, Shakespeare's. A row begins as they have it, for up to
{stage.length // 2} tokens that do not count, and goes on with its marks replaced.

**Made by** `python3 -m kvlab train {name}` (`kvlab/training/adapters.py`), in the format of the PEFT library.
Weights are rounded to fp16. Licence: Apache-2.0, like the course.

## Samples

The likeliest token each time:

{shown}
"""


def main(name, seed=RECIPE.seed, out=None):
    """Train an adapter and write its folder to ``out``, or to its place in the repository."""
    recipe = replace(RECIPE, seed=seed)
    print(
        f"{name}, an adapter of {BASE}: {recipe.steps} steps, about a minute; a run that is cut starts anew"
    )
    adapter, losses = train_adapter(name, recipe)
    folder = out or SHIPPED / name
    save_adapter(adapter, folder, base_model=BASE)
    print("measuring what it writes, for its card")
    (folder / "README.md").write_text(card(name, folder, recipe, losses))
    print(f"written: {folder}")
