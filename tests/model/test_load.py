"""Models by name."""

import subprocess
import sys

import pytest
import torch

import kvlab
from kvlab.model import smollm2
from kvlab.model.load import ModelNotInstalled
from kvlab.paths import ROOT


def test_an_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="unknown model 'tiny-gpt'; known: .*tiny-gqa.*smollm2-135m"):
        kvlab.load("tiny-gpt")


def test_a_model_that_was_not_fetched_says_how(monkeypatch, tmp_path):
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path))
    assert not smollm2.installed()
    with pytest.raises(ModelNotInstalled, match="python3 -m kvlab setup"):
        kvlab.load("smollm2-135m")


def test_the_tiny_model_knows_its_text():
    """Trained, and not random: it finds Shakespeare far likelier than the same letters shuffled."""
    model, tokenizer = kvlab.load("tiny-gqa")
    text = "My lord, I came to see your father's funeral."

    def loss(text):
        ids = torch.tensor(tokenizer.encode(text))
        logits = model(ids, kvlab.caches.NoCache(model.config))
        return float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:]))

    assert loss(text) < 4.0 < loss("funeral's your came father see my to lord I I") < 9


def test_the_form_of_latent_attention_has_no_effect_without_a_latent():
    assert kvlab.load("tiny-gqa", absorbed=False)[0].config == kvlab.load("tiny-gqa")[0].config
    with pytest.raises(TypeError, match="absorbed is 'no'"):
        kvlab.load("tiny-gqa", absorbed="no")


def test_any_text_survives_the_tiny_tokenizer():
    _, tokenizer = kvlab.load("tiny-gqa")
    text = "naïve 漢字 🙂\n\n\ttabs  and  spaces\x00"
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.bos_id == 0
    assert max(ids) < tokenizer.vocab_size == 1280
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode("") == [0]
    assert "".join(tokenizer.pieces(tokenizer.encode("To be"))) == "<bos>To be"


def test_no_chat_with_a_model_that_cannot():
    _, tokenizer = kvlab.load("tiny-gqa")
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.chat("Hello")


def test_loading_does_not_import_torchs_compiler():
    """It takes longer than all the rest."""
    code = "import sys, kvlab; kvlab.load('tiny-gqa'); sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
