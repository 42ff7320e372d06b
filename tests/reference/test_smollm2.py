"""SmolLM2 as set-up converted it, against transformers' own reading of the same GGUF file."""

import pytest
import torch
import transformers

import kvlab
from kvlab.model import smollm2

pytestmark = pytest.mark.skipif(
    not smollm2.installed(), reason="smollm2-135m is not there; `python3 -m kvlab setup` fetches it"
)

TEXTS = [
    "Hello world, it's 2024 and pi is 3.14159!",
    "  two  spaces,\n\nlines\tand tabs",
    "naïve 漢字 🙂 def f(x):\n    return x",
    "<|im_start|>user\nHi<|im_end|>\n",
    "",
]


@pytest.fixture(scope="module")
def ours():
    return kvlab.load("smollm2-135m")


@pytest.fixture(scope="module")
def reference():
    return transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.folder(), gguf_file=smollm2.GGUF, dtype=torch.float32
    ).eval()


@torch.no_grad()
def test_logits(ours, reference):
    """Ours are the GGUF's weights rounded to bf16; with the reference's rounded alike, 1e-3 on logits of
    size 30 leaves room for 30 layers of float32 sums in another order (8e-5 when measured)."""
    for parameter in reference.parameters():
        parameter.copy_(parameter.to(torch.bfloat16).float())
    model, tokenizer = ours
    ids = torch.tensor(tokenizer.chat("What is the capital of France?"))
    expected = reference(ids[None]).logits[0]
    assert expected.abs().max() > 10
    cache = kvlab.caches.GrowingCache(model.config)
    chunked = torch.cat([model(chunk, cache) for chunk in ids.split([20, 1, 1, len(ids) - 22])])
    for logits in (model(ids, kvlab.caches.NoCache(model.config)), chunked):
        assert (logits - expected).abs().max() < 1e-3


def test_tokens(ours):
    _, tokenizer = ours
    reference = transformers.AutoTokenizer.from_pretrained(smollm2.folder(), gguf_file=smollm2.GGUF)
    for text in TEXTS:
        assert tokenizer.encode(text) == reference.encode(text)
        assert reference.decode(tokenizer.encode(text), skip_special_tokens=True) == tokenizer.decode(
            tokenizer.encode(text)
        )


def test_chat_template(ours):
    _, tokenizer = ours
    reference = transformers.AutoTokenizer.from_pretrained(smollm2.folder())
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    expected = reference.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert tokenizer.chat("Hi", "Hello.", "Bye", system="Be brief.") == expected


def test_it_answers(ours):
    model, tokenizer = ours
    ids = tokenizer.chat("What is the capital of France?")
    answer = tokenizer.decode(kvlab.generate(model, ids, 16, stop=tokenizer.stop_ids))
    assert answer == "The capital of France is Paris."


def test_the_conversion_refuses_a_damaged_file(tmp_path):
    damaged = tmp_path / smollm2.GGUF
    damaged.write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="SHA-256"):
        smollm2.convert(damaged, tmp_path)
