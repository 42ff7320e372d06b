"""The logits that transformers computes with a tiny model's weights; those of tiny-gqa are stored beside it.

Lesson 03 compares with these where transformers is not installed. ``python -m kvlab.training.reference``
makes them again; it needs transformers (tests/requirements.txt).
"""

import torch
from safetensors.torch import save_file

from kvlab.model.load import WEIGHTS
from kvlab.model.tokenizer import Tokenizer

TEXT = "HAMLET.\nTo be, or not to be, that is the question:\n"
FILE = "reference.safetensors"


@torch.no_grad()
def reference(variant="tiny-gqa"):
    """{"ids": int64 [T], "logits": float32 [T, vocab]} by transformers, in float32."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    ids = torch.tensor(Tokenizer.from_folder(WEIGHTS / variant).encode(TEXT))
    model = transformers.AutoModelForCausalLM.from_pretrained(WEIGHTS / variant, dtype=torch.float32)
    return {"ids": ids, "logits": model(ids[None]).logits[0].contiguous()}


if __name__ == "__main__":
    save_file(reference(), WEIGHTS / "tiny-gqa" / FILE)
