"""The engine against the library that people would reach for: the same requests, one run, the same threads.

A random Llama of about 19 million parameters; prompts and answers of lengths that differ. transformers serves
them as one padded batch, which runs until the longest answer is done, and by its continuous batching. Only
tokens that were asked for count.
"""

import time

import torch

from kvlab.engine import Engine
from kvlab.model.config import Config
from kvlab.model.decoder import Decoder
from kvlab.training.publish import hf_config
from kvlab.training.train import initialise

CONFIG = Config(
    vocab_size=8192,
    hidden_size=384,
    num_layers=10,
    num_heads=6,
    num_kv_heads=2,
    head_dim=64,
    mlp_size=1024,
    max_positions=1024,
)
REQUESTS = 32


@torch.no_grad()
def engine():
    """Rows of the benchmark: tokens a second, and how many times transformers'."""
    model = random_model()
    requests = _requests()
    ours, texts = _timed(lambda: _engine(model, requests))
    _check(model, requests, texts)
    what = f"{REQUESTS} requests, greedy, threads: {torch.get_num_threads()}"
    asked = sum(new for _, new in requests)
    rows = [("kvlab", f"{asked / ours:.0f}", "tokens a second", what)]
    try:
        import transformers
    except ImportError:
        return [*rows, ("transformers", "", "not installed: pip install transformers==5.24.0", what)]
    transformers.utils.logging.set_verbosity_error()
    peer = _peer(transformers, model)
    padded, other = _timed(lambda: _padded(peer, requests))
    same = sum(a == b for a, b in zip(texts, other, strict=True))
    rows.append(
        _row("transformers, one padded batch", padded, ours, asked, f"{same} of {REQUESTS} texts equal")
    )
    continuous, other = _timed(lambda: _continuous(transformers, peer, requests))
    same = sum(a == b for a, b in zip(texts, other, strict=True))
    rows.append(
        _row(
            "transformers, continuous batching", continuous, ours, asked, f"{same} of {REQUESTS} texts equal"
        )
    )
    return rows


def random_model():
    model = Decoder(CONFIG).requires_grad_(False).eval()
    initialise(model, seed=0)
    return model


def _row(name, seconds, ours, asked, conditions):
    return (
        name,
        f"{asked / seconds:.0f}",
        f"tokens a second; kvlab is {seconds / ours:.1f} times as fast",
        conditions,
    )


def _requests():
    """[(prompt, new tokens)], log-normal lengths."""
    random = torch.Generator().manual_seed(1)
    prompts = (torch.randn(REQUESTS, generator=random) * 0.8 + 4.2).exp().clamp(8, 400).long().tolist()
    answers = (torch.randn(REQUESTS, generator=random) * 0.6 + 3.3).exp().clamp(8, 128).long().tolist()
    ids = [torch.randint(2, CONFIG.vocab_size, (n,), generator=random).tolist() for n in prompts]
    return list(zip(ids, answers, strict=True))


def _timed(serve):
    serve()  # the first time pays for memory and caches
    start = time.perf_counter()
    texts = serve()
    return time.perf_counter() - start, texts


def _engine(model, requests):
    server = Engine(model, num_blocks=1500, max_batch_tokens=512)
    queued = [server.submit(prompt, new) for prompt, new in requests]
    server.run()
    return [request.outputs[0] for request in queued]


def _check(model, requests, texts):
    """Every token is the likeliest, or within 1e-4 of it, by one teacher-forced pass in float64."""
    from kvlab.caches import NoCache

    exact = Decoder(CONFIG).double().requires_grad_(False)
    exact.load_state_dict({name: weight.double() for name, weight in model.state_dict().items()})
    for (prompt, _), text in zip(requests, texts, strict=True):
        logits = exact(torch.tensor(prompt + text), NoCache(CONFIG))[len(prompt) - 1 : -1]  # [new, vocab]
        chosen = logits.gather(1, torch.tensor(text)[:, None])[:, 0]
        if float((logits.max(dim=-1).values - chosen).max()) > 1e-4:
            raise AssertionError("the engine wrote a token that is not the likeliest: its time means nothing")


def _peer(transformers, model):
    fields = {k: v for k, v in hf_config(CONFIG).items() if k not in ("model_type", "architectures", "dtype")}
    peer = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).eval()
    weights = model.state_dict()
    peer.load_state_dict({n if n.startswith("lm_head") else f"model.{n}": w for n, w in weights.items()})
    return peer


def _padded(peer, requests):
    longest = max(len(prompt) for prompt, _ in requests)
    ids = torch.zeros(len(requests), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, (prompt, _) in enumerate(requests):
        ids[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = torch.tensor(prompt), 1
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    out = peer.generate(ids, attention_mask=mask, max_new_tokens=max(new for _, new in requests), **options)
    return [row[longest : longest + new].tolist() for row, (_, new) in zip(out, requests, strict=True)]


def _continuous(transformers, peer, requests):
    options = transformers.GenerationConfig(
        do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=1
    )
    with peer.continuous_batching_context_manager(
        generation_config=options, block=True, timeout=5
    ) as manager:
        names = [manager.add_request(prompt, max_new_tokens=new) for prompt, new in requests]
        results = {}
        while len(results) < len(names):
            result = manager.get_result(timeout=5)
            if result is not None and result.is_finished():
                results[result.request_id] = result.generated_tokens
    return [results[name] for name in names]
