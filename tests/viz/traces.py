"""Traces of engines to which random things happen, a step that fails among them."""

from contextlib import suppress
from dataclasses import replace
from random import Random

from kvlab.engine import Engine
from kvlab.engine.trace import Step, Trace
from tests.models import SMALL, random_ids, random_model

MODEL = random_model(replace(SMALL, num_layers=1))


class Fragile:
    """The model; at some of its calls it fails."""

    config, device = MODEL.config, MODEL.device

    def __init__(self, fails):
        self.fails = fails

    def __call__(self, *arguments, **more):
        if self.fails():
            raise RuntimeError("no power")
        return MODEL(*arguments, **more)


def story():
    """Five requests, one of them preempted in step 8 -> Trace of 29 steps."""
    engine = Engine(MODEL, 12, 4, 16)
    for seed in range(4):
        engine.submit(random_ids(9, seed=seed).tolist(), 14)
    engine.step()
    engine.submit([1, 2, 3], 5)
    return engine.run()


def walk(seed, requests=6):
    """-> (Trace, the names that waited after each step, in their order)."""
    choose = Random(seed)
    budget, size = choose.choice([3, 8, 16, 70, 600]), choose.choice([1, 4, 5])
    blocks = choose.choice([24, 32, 40, 900]) // size
    model, cache = Fragile(lambda: choose.random() < 0.06), choose.choice([None, "radix", "hash"])
    engine = Engine(model, blocks, size, budget, choose.randint(0, 2), prefix_cache=cache)
    asked, queues = [], []
    while len(engine.trace) < 3 or len(asked) < requests or not engine.idle:
        if len(asked) < requests and choose.random() < 0.5:
            n = choose.choice([1, 1, 1, 2, 3])
            more = {"n": n, "temperature": 1.0, "seed": seed} if n > 1 else {}
            prompt = random_ids(choose.randint(1, 13), seed=seed).tolist()
            asked.append(engine.submit(prompt, choose.randint(1, 8), stop={choose.randint(0, 36)}, **more))
        alive = [request for request in asked if not request.done]
        if alive and choose.random() < 0.06:
            engine.cancel(choose.choice(alive))
        with suppress(RuntimeError):
            engine.step()
        queues.append([each.name for each in engine.scheduler.waiting])
    return engine.trace, queues


def crowd(texts, steps, budget=64):
    """So many texts, of which all but the first wait -> Trace."""
    trace = Trace(100, 4, budget)
    for number in range(steps):
        step = Step(number, ran=[[0, 1, "decode"]], waiting=texts - 1, because="texts", held=number % 9)
        trace.steps.append(step)
    trace.steps[0].submitted = [[name, 1, steps, 1] for name in range(texts)]
    trace.steps[0].admitted = [0]
    return trace
