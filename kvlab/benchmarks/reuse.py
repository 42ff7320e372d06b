"""What a prefix cache saves those whose texts begin alike: the same users, with one and without."""

import torch

from kvlab.benchmarks.engine import random_model
from kvlab.engine import Engine, agents, chat, converse, few_shot

NEW, AT_ONCE = 24, 8
USERS = {
    "few-shot": lambda vocab: few_shot(questions=24, sets=2, vocab=vocab),
    "chat": lambda vocab: chat(users=8, vocab=vocab),
    "agents": lambda vocab: agents(tasks=4, vocab=vocab),
}


@torch.no_grad()
def reuse():
    """Rows of the benchmark: how many times the tokens a second of an engine that forgets."""
    model, rows = random_model(), []
    for name, users in USERS.items():
        before, texts = _served(model, users, None)
        for kind in ("radix", "hash"):
            after, same = _served(model, users, kind)
            equal = sum(a == b for a, b in zip(texts, same, strict=True))
            conditions = (
                f"{after.hit_rate:.1%} found; {after.computed:,} tokens computed, not {before.computed:,}; "
                f"TTFT {1000 * after.ttft.median:.0f} ms, not {1000 * before.ttft.median:.0f} (median); "
                f"{equal} of {len(texts)} texts equal"
            )
            ratio = f"{after.throughput / before.throughput:.2f}"
            rows.append((f"{name}, {kind}", ratio, "times the tokens a second of none", conditions))
    return rows


def _served(model, users, kind):
    """-> the metrics of the faster of two runs, and the texts in the order of their prompts."""
    runs = []
    for _ in range(2):  # the first time pays for memory and caches
        engine = Engine(model, num_blocks=1_000, max_batch_tokens=256, prefix_cache=kind)
        served = converse(engine, users(model.config.vocab_size), NEW, AT_ONCE)
        runs.append(engine.metrics())
    fastest = max(runs, key=lambda metrics: metrics.throughput)
    return fastest, [each.outputs for each in sorted(served, key=lambda each: each.prompt)]
