"""The calculator against the caches of transformers: models of every family, made small, run for real.

Ours is what is alive while the last token is computed: in a full layer T rows, in a window of W min(T, W).
transformers keeps W - 1 between two steps, and hands attention W in a step; so what is compared is what its
cache hands over in the last step, and the buffers of its StaticCache.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
import transformers
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from kvlab.checkpoint import CheckpointError
from kvlab.memory import FAMILIES, FORMATS, ModelSpec, cost
from kvlab.memory.layers import Attention, Compressed, Latent, Layer, State
from tests.reference.shrunk import cases

pytestmark = pytest.mark.filterwarnings("ignore")
BF16 = FORMATS["bf16"]
CASES = cases()
LENGTHS = (1, 300, 4096)
# Checkpoints whose own code transformers has under another name.
CLASS = {"kimi_k2": "deepseek_v3", "minimax_m3": "minimax_m3_vl_text"}
ABSENT = {"nemotron-nas"}
NAMES = sorted(CASES.keys() - ABSENT)
TOKENS = {"vocab_size": 61, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@cache
def config_of(name):
    raw = CASES[name]
    family = CLASS.get(raw["model_type"], raw["model_type"])
    return transformers.AutoConfig.for_model(**raw | TOKENS | {"model_type": family})


@cache
def model_of(name):
    config = config_of(name)
    torch.manual_seed(0)
    if config.model_type == "step3p5":  # its text model has no automatic class
        return Step3p7TextModel(config).to(torch.bfloat16).eval()
    return transformers.AutoModel.from_config(config, dtype=torch.bfloat16).eval()


def nbytes(tensors):
    """Bytes of tensors; one that is there twice, as key and as value, counts once."""
    return sum(each.nbytes for each in {id(each): each for each in tensors}.values())


class Recorder:
    """A DynamicCache that notes what each layer hands to attention: its keys and values in the last step."""

    def __init__(self, name):
        model_of(name)  # some families' layers are known to the cache once their code is loaded
        self.cache = transformers.DynamicCache(config=config_of(name))
        self.handed = {}
        for number, layer in enumerate(self.cache.layers):
            if hasattr(layer, "update"):
                layer.update = self._noting(number, layer.update)

    def _noting(self, number, update):
        def noted(*args, **kwargs):
            self.handed[number] = update(*args, **kwargs)
            return self.handed[number]

        return noted

    def kv(self):
        return [nbytes(self.handed.get(number, ())) for number in range(len(self.cache.layers))]


@cache
@torch.no_grad()
def run(name, tokens):
    """A prompt of all tokens but the last, and then the last -> Recorder."""
    recorder, ids = Recorder(name), torch.arange(tokens)[None] % TOKENS["vocab_size"]
    for part in (ids[:, :-1], ids[:, -1:]):
        if part.numel():
            model_of(name)(part, past_key_values=recorder.cache, use_cache=True)
    return recorder


def fed(name, tokens):
    """As run, without the model: zeros of the shapes that it handed over for one token."""
    recorder = Recorder(name)
    for number, (key, value) in run(name, 1).handed.items():
        for rows in (tokens - 1, 1):
            parts = [each.new_zeros(*each.shape[:2], rows, each.shape[-1]) for each in (key, value)]
            recorder.cache.layers[number].update(*parts)
    return recorder


# transformers repeats each KV head of Falcon's new decoder for its query heads before it stores them, and
# counts MiMo's window without the token itself; engines do neither.
REPEATED = {"Falcon-40B": 3}
LONGER = {"mimo_v2_flash": 1}


def expected(name, tokens):
    """Our bytes of keys and values, layer by layer, without what is looked at by itself further down."""
    spec, found = ModelSpec.from_config(CASES[name]), []
    for layer, held in zip(spec.layers, cost(spec, tokens, dtype="bf16").by_layer, strict=True):
        if isinstance(layer, State):
            held = 0
        elif isinstance(layer, Compressed):
            held -= layer.compressed(tokens) * (layer.row_bytes(BF16) + layer.index_bytes)
            held *= 2 if layer.ratio is None else 1  # key and value are one row, there stored twice
        else:
            held -= tokens * layer.index_bytes
        if layer.window is not None and tokens > layer.window:
            held += LONGER.get(name, 0) * layer.row_bytes(BF16)
        found.append(held * REPEATED.get(name, 1))
    return found


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_keys_and_values_of_every_layer(name, tokens):
    """To the byte: after real steps up to 300 tokens, fed by hand beyond."""
    recorder = run(name, tokens) if tokens <= 300 else fed(name, tokens)
    assert recorder.kv() == expected(name, tokens)
    assert sum(recorder.kv()) > 0


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"deepseek_v4"}))  # which has no static cache
def test_buffers_of_a_static_cache(name, tokens):
    handed = run(name, 1).handed
    static = transformers.StaticCache(config=config_of(name), max_cache_len=tokens)
    for number, (key, value) in handed.items():
        static.layers[number].lazy_initialization(key, value)
    sides = [[getattr(each, side, None) for side in ("keys", "values")] for each in static.layers]
    assert [nbytes([each for each in pair if each is not None]) for pair in sides] == expected(name, tokens)


def heads_unheard(self, form, ranks=1):
    return form.row_bytes(self.key_dim) + form.row_bytes(self.value_dim)


MUTATIONS = {
    "windows in full": (Attention, "held", lambda self, tokens: tokens, "gemma2"),
    "a latent twice": (Latent, "vector_bytes", lambda self, *_: 2 * BF16.row_bytes(self.key_dim), "kimi_k2"),
    "no rope key": (Latent, "vector_bytes", lambda self, *_: BF16.row_bytes(self.value_dim), "deepseek_v2"),
    "one head": (Attention, "vector_bytes", heads_unheard, "llama"),
    "an MLP that caches": (Layer, "held_bytes", lambda self, *_: 40, "nemotron_h"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_comparison_notices(monkeypatch, mutation):
    *patch, name = MUTATIONS[mutation]
    assert run(name, 300).kv() == expected(name, 300)
    monkeypatch.setattr(*patch)
    assert run(name, 300).kv() != expected(name, 300)


def test_every_family_of_ours_that_transformers_has():
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    covered = {CLASS.get(config["model_type"], config["model_type"]) for config in CASES.values()}
    names_of_files = {"qwen2_vl", "qwen2_5_vl", "step3p7"}  # of which the text parts are covered
    assert {family for family in FAMILIES if family in known} - covered <= names_of_files
    assert not ABSENT & known.keys()


KINDS = ["full", "sliding", "chunked", "latent", "compressed", "shared", "state", "no attention"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_is_among_them(kind):
    assert any(kind in ModelSpec.from_config(CASES[name]).kinds() for name in NAMES)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa", "minimax_m3"])
def test_index_keys(name):
    """As many values as ours. transformers keeps them in the model's dtype; we count them as engines store
    them, in 8 bits with a scale of 4 bytes a token."""
    recorder, spec, owners = run(name, 300), ModelSpec.from_config(CASES[name]), 0
    for layer, theirs in zip(spec.layers, recorder.cache.layers, strict=True):
        keys = getattr(theirs, "indexer_keys", getattr(theirs, "idx_keys", None))
        assert (0 if keys is None else keys.numel()) == 300 * layer.index_dim
        assert layer.index_bytes == (layer.index_dim + 4 if layer.index_dim else 0)
        owners += layer.index_dim > 0
    assert owners == (4 if name == "deepseek_v32" else 3)


@pytest.mark.parametrize("tokens", [1, 3, 4, 127, 128, 300])
def test_compressed_rows(tokens):
    """DeepSeek-V4: a row for every 4 or 128 tokens, and an index key beside each of the 4's. What is on its
    way into the next row lies in buffers that we do not count."""
    recorder, spec = run("deepseek_v4", tokens), ModelSpec.from_config(CASES["deepseek_v4"])
    for layer, theirs in zip(spec.layers, recorder.cache.layers, strict=True):
        rows = getattr(theirs, "compressed_kv", {})
        sizes = {part: 0 if each is None else each.numel() for part, each in rows.items()}
        assert sizes.get("compressor", 0) == layer.compressed(tokens) * layer.dim
        assert sizes.get("indexer", 0) == layer.compressed(tokens) * layer.index_dim
    assert [layer.compressed(tokens) for layer in spec.layers] == [0, tokens // 4, tokens // 128]
    assert all(torch.equal(key, value) for key, value in recorder.handed.values())


def states(name, number, layer):
    """(convolution inputs, state) of a recurrent layer of transformers after a run."""
    if name == "recurrent_gemma":  # which keeps them in the model itself
        block = model_of(name).layers[number].temporal_block
        return block.conv1d_state, block.rg_lru.recurrent_states
    [conv], [state] = layer.conv_states.values(), layer.recurrent_states.values()
    return conv, state


RECURRENT = ["granitemoehybrid", "jamba", "kimi_linear", "nemotron_h", "recurrent_gemma"]
RECURRENT += ["qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"]


@pytest.mark.parametrize("tokens", [1, 300])
@pytest.mark.parametrize("name", RECURRENT)
def test_states(name, tokens):
    """The state to the byte. Of the convolution's inputs transformers keeps as many columns as the kernel is
    wide, the newest among them; engines, we, and its own RecurrentGemma keep one less."""
    run.cache_clear()  # for what the model itself keeps
    recorder, spec, found = run(name, tokens), ModelSpec.from_config(CASES[name]), 0
    for number, layer in enumerate(spec.layers):
        if isinstance(layer, State):
            conv, state = states(name, number, recorder.cache.layers[number])
            columns = layer.columns + (name != "recurrent_gemma")
            assert (conv.shape[-1], layer.columns) == (columns, 4)
            assert conv.nbytes // columns * layer.columns + state.nbytes == layer.state_bytes()
            found += 1
    assert found == spec.kinds()["state"] > 1


@pytest.mark.parametrize("name", ["llama", "mimo_v2_flash", "step3p5"])
def test_query_heads_of_every_layer(name):
    """As many as its projection has; sliding layers may have more than the rest."""
    spec, blocks = ModelSpec.from_config(CASES[name]), model_of(name).layers
    for layer, block in zip(spec.layers, blocks, strict=True):
        wide = block.self_attn.q_proj.out_features
        assert wide == (layer.query_heads or spec.query_heads) * layer.key_dim
    assert {layer.query_heads for layer in spec.layers} == ({None, 12} if name == "step3p5" else {None})


# transformers saves these under fields of its own, which we may not know; then we must say so.
MAY_BE_REFUSED = {"deepseek_v4", "gemma4_text", "minimax_m3", "step3p5"}


@pytest.mark.parametrize("name", NAMES)
def test_a_config_that_transformers_saved_again(name):
    """With the defaults of its class written out, and fields renamed: read alike, or refused, and never read
    as something else."""
    saved = config_of(name).to_dict()
    try:
        layers = ModelSpec.from_config(saved).layers
    except CheckpointError:
        assert name in MAY_BE_REFUSED
        return
    layers = tuple(
        replace(layer, window=layer.window - LONGER[name]) if name in LONGER and layer.window else layer
        for layer in layers
    )
    assert layers == ModelSpec.from_config(CASES[name]).layers


OUTER = {
    **{"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "mistral3": "mistral", "llama4": "llama4_text"},
    **{"qwen3_vl": "qwen3_vl_text", "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "deepseek_v3"},
    **{"llava": "llama", "paligemma": "gemma", "aya_vision": "cohere2"},
}


@pytest.mark.parametrize("outer", OUTER)
def test_a_multimodal_model_around_it(outer):
    """The file as transformers writes it, with a vision tower and all: the text part is found, and alone."""
    text = CASES[OUTER[outer]]
    whole = transformers.AutoConfig.for_model(outer, text_config=text).to_dict()
    assert whole["vision_config"]
    assert ModelSpec.from_config(whole).layers == ModelSpec.from_config(text).layers


def test_overrides_by_layer():
    """transformers 5 may say of any family that single layers differ: a layer without its window, say."""
    config = CASES["mistral"] | {"per_layer_config": {"1": {"sliding_window": None}}}
    theirs = transformers.DynamicCache(config=transformers.AutoConfig.for_model(**config)).layers
    assert [each.is_sliding for each in theirs] == [True, False, True, True]
    try:
        ours = ModelSpec.from_config(config).layers
    except CheckpointError:
        return
    assert [layer.window is not None for layer in ours] == [True, False, True, True]
