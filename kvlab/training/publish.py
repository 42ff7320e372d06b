"""Write a trained model as a Hugging Face checkpoint folder with a model card."""

import json

import torch
from safetensors.torch import save_file

from kvlab import generate
from kvlab.model import hf
from kvlab.model.load import WEIGHTS
from kvlab.training import corpus
from kvlab.training.data import stream
from kvlab.training.evaluate import copying_losses, held_out_loss
from kvlab.training.tokenizer import train_tokenizer

PROMPTS = ("HAMLET.\n", "My lord, I", "Enter the ")


def publish(variant, model, recipe, losses, folder=None):
    """Round the weights to fp16 and write config.json, model.safetensors, tokenizer.json and README.md."""
    folder = folder or WEIGHTS / variant
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.to(torch.float16) for name, tensor in model.state_dict().items()}
    if model.config.tied_embeddings:
        del tensors["lm_head.weight"]
    names = {name: name if name == "lm_head.weight" else f"model.{name}" for name in tensors}
    save_file({names[name]: t for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    train_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(hf_config(model.config), indent=2) + "\n")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "README.md").write_text(card(variant, folder, recipe, losses))
    print(f"written: {folder}")


def hf_config(config):
    """The config.json of a Llama with these numbers, or of a dense DeepSeek-V3 where there is a latent."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.mlp_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_embeddings,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float16",
    }
    if config.latent is not None:
        del fields["head_dim"]  # transformers would take it for the rotary part's width
        fields |= _latent_fields(config)
    return fields


def _latent_fields(config):
    sizes = config.latent
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "kv_lora_rank": sizes.rank,
        "q_lora_rank": sizes.query_rank,
        "qk_nope_head_dim": sizes.nope_dim,
        "qk_rope_head_dim": sizes.rope_dim,
        "v_head_dim": sizes.value_dim,
        "rope_interleave": False,  # our weights are half-split
        "first_k_dense_replace": config.num_layers,
        "n_routed_experts": 0,  # transformers takes no null here
        "num_nextn_predict_layers": 0,
    }


def _head_rows(config):
    """The card's lines on heads."""
    sizes = config.latent
    if sizes is None:
        heads = f"{config.num_heads}, {config.num_kv_heads}, {config.head_dim}"
        return f"| query heads, KV heads, head size | {heads} |"
    widths = f"{sizes.nope_dim}, {sizes.rope_dim}, {sizes.value_dim}"
    return (
        f"| attention | latent (MLA), {config.num_heads} heads |\n"
        f"| latent and rope key, kept for each token and layer | {sizes.rank} + {sizes.rope_dim} numbers |\n"
        f"| a head's nope, rope and value widths | {widths} |\n"
        f"| query latent | {sizes.query_rank or 'none'} |"
    )


def card(variant, folder, recipe, losses):
    """The model card, measured on the weights as they were written."""
    model, tokenizer = hf.load(folder)
    config = model.config
    short, long = (held_out_loss(model, length, rows) for length, rows in ((256, 64), (1024, 16)))
    tokens, characters = len(stream(held_out=True)), sum(map(len, corpus.texts(held_out=True)))
    first, again = copying_losses(model)
    stages = "; ".join(
        f"{stage.steps} steps of {stage.rows} rows of {stage.length}, {stage.repeats:.0%} with repeats"
        for stage in recipe.stages
    )
    samples = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        new = generate(model, ids, 80, temperature=0.8, top_p=0.95, seed=7, stop=tokenizer.stop_ids)
        samples.append(f"```text\n{prompt}{tokenizer.decode(new)}\n```")
    return (
        f"""# {variant}

A Llama-style decoder trained for this course on a CPU, small enough to come with it.

| | |
|---|---|
| parameters | {sum(p.numel() for p in model.parameters()):,} |
| layers, width | {config.num_layers}, {config.hidden_size} |
{_head_rows(config)}
| context | {config.max_positions} tokens |
| vocabulary | {config.vocab_size} byte-pair tokens; every byte is one, so any text can be encoded |
| trained on | {recipe.tokens:,} tokens: {stages}; seed {recipe.seed} |
| training loss at the end | {sum(losses[-50:]) / len(losses[-50:]):.3f} nats a token |
| held-out loss | {short:.3f} nats a token in rows of 256, {long:.3f} in rows of 1024 |
| the same by character | {short * tokens / characters:.3f} and {long * tokens / characters:.3f} nats |
| random tokens, first time and repeated | {first:.2f} and {again:.2f} nats a token |

**Text.** The works of William Shakespeare, in the public domain, from Project Gutenberg's plain texts
(`kvlab/training/corpus.py` says how they came here). {" and ".join(corpus.HELD_OUT)} are held out.

**Repeated spans.** In the rows "with repeats" above, the end of the row is an earlier span of it, over and
over, so that the model learns to copy. It is better at repeating, and readier to, than prose alone would
have made it.

**Made by** `python3 -m kvlab train {variant}`. Weights are rounded to fp16.
Licence: Apache-2.0, like the course.

## Samples

Temperature 0.8, top-p 0.95:

"""
        + "\n\n".join(samples)
        + "\n"
    )
