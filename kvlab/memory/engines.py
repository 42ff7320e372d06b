"""What named engines set aside, as they count it: their logs can be reproduced to the last printed digit.

The ideal bytes are in ``ideal``, the plain pool of blocks in ``pool``. Each function here follows one engine
and says where the rule stands in its source. What it does not cover is refused.
"""

from dataclasses import dataclass, replace

from kvlab.memory.errors import whole
from kvlab.memory.formats import format_named
from kvlab.memory.ideal import asked
from kvlab.memory.layers import heads_on_rank


@dataclass(frozen=True)
class Buffers:
    """Bytes of one buffer for keys and one for values, over all its layers."""

    keys: int
    values: int

    @property
    def total(self):
        return self.keys + self.values


@dataclass(frozen=True)
class Blocks:
    """vLLM's pool on one rank.

    ``block_size``    tokens whose keys and values one block holds
    ``block_bytes``   bytes of a block: a page in each layer of a group
    ``groups``        groups of layers that grow: each takes a block for every block_size tokens
    ``state_blocks``  blocks that the states of one text take, however long it is
    """

    block_size: int
    block_bytes: int
    groups: int = 1
    state_blocks: int = 0

    def cut(self, available):
        """How many blocks the available memory gives (kv_cache_utils.py, get_num_blocks) -> int."""
        return whole(available, "available") // self.block_bytes

    def needed(self, tokens):
        """Blocks that one text takes (kv_cache_utils.py, _max_memory_usage_bytes_from_groups) -> int."""
        return self.groups * -(-whole(tokens, "tokens") // self.block_size) + self.state_blocks

    def longest(self, blocks):
        """The longest text for which so many blocks suffice: vLLM's "estimated maximum model length"."""
        return max(0, whole(blocks, "blocks") - self.state_blocks) // self.groups * self.block_size

    def reported(self, blocks, max_tokens):
        """The log's "GPU KV cache size" in tokens (kv_cache_utils.py, get_kv_cache_capacity) -> int.

        It is the number of texts of ``max_tokens`` tokens that fit, times ``max_tokens``. Where states take
        blocks too, one long text gets a different number.
        """
        max_tokens = whole(max_tokens, "max_tokens", least=1)
        return whole(blocks, "blocks") * max_tokens // self.needed(max_tokens)


def vllm_blocks(model, dtype=None, tp=1, block_size=16, speculative_tokens=0, prefix_caching=True):
    """How vLLM cuts its memory into blocks -> :class:`Blocks`.

    For layers that see all tokens a block is ``block_size`` tokens in every layer. A hybrid needs one size of
    page for keys and for states (platforms/interface.py, _align_hybrid_block_size): block_size grows, in
    steps of the ``block_size`` given, until a page of keys and values is as large as a state. Layers then
    form groups of one size, which take their blocks from one pool (kv_cache_utils.py,
    _get_kv_cache_groups_uniform_page_size): as many layers as the rarer kind has, or as the commoner where
    that has less than 1.5 times as many.

    A state takes one block a text, one more with prefix caching (the mode "align"), and one for each token
    drafted ahead, whose inputs its convolution keeps too (kv_cache_interface.py, MambaSpec; mamba_utils.py,
    gated_delta_net_state_shape). ``block_size`` is 16, or 64 on Intel's GPUs.
    """
    spec, form, tp = asked(model, dtype, tp)
    block_size = whole(block_size, "block_size", least=1)
    speculative_tokens = whole(speculative_tokens, "speculative_tokens")
    _only(spec, "vllm_blocks", "full", "latent", "state", "shared", "no attention")
    rows = [layer.row_bytes(form, tp) for layer in spec.layers if layer.grows]
    states = [
        replace(layer, columns=layer.columns + speculative_tokens).state_bytes(tp)
        for layer in spec.layers
        if layer.kind == "state"
    ]
    if not states:
        return Blocks(block_size, block_size * sum(rows))
    if len(set(rows)) != 1:
        raise ValueError(f"{spec.name}: the layers that grow need one size beside states, not {set(rows)}")
    block_size *= -(-max(states) // (block_size * rows[0]))
    few, many = sorted((len(rows), len(states)))
    group = many if many < 1.5 * few else few
    of_states = -(-len(states) // group)
    return Blocks(
        block_size,
        group * block_size * rows[0],
        groups=-(-len(rows) // group),
        state_blocks=of_states * (1 + prefix_caching + speculative_tokens),
    )


def sglang_buffers(model, tokens, dtype=None, tp=1, page_size=1):
    """SGLang's buffers for ``tokens`` tokens on one rank -> :class:`Buffers`.

    Each has a page more than it serves, for writes that go nowhere (python/sglang/srt/mem_cache/
    memory_pool.py, MHATokenToKVPool._create_buffers). The log's "GB" are GiB.
    """
    spec, form, tp = asked(model, dtype, tp)
    _only(spec, "sglang_buffers", "full", "state", "no attention")
    rows = whole(tokens, "tokens") + whole(page_size, "page_size", least=1)
    return _buffers([layer for layer in spec.layers if layer.grows], rows, form, tp)


def llamacpp_cells(tokens, window=None, sequences=1, ubatch=512):
    """Cells of a layer of llama.cpp: rows of its buffer, shared by all sequences, a multiple of 256 -> int.

    A window keeps its tokens of every sequence, and those of the batch being computed (src/llama-context.cpp;
    src/llama-kv-cache-iswa.cpp, llama_kv_cache_iswa; with kv_unified, one buffer for all sequences).
    """
    cells = -(-whole(tokens, "tokens") // 256) * 256
    sequences, ubatch = whole(sequences, "sequences", least=1), whole(ubatch, "ubatch", least=1)
    if window is None:
        return cells
    return -(-min(cells, sequences * whole(window, "window", least=1) + ubatch) // 256) * 256


def llamacpp_buffers(model, tokens, dtype="fp16", sequences=1, ubatch=512, swa_full=False):
    """llama.cpp's two caches for a context of ``tokens`` tokens -> {"full": Buffers, "sliding": Buffers}.

    ``swa_full`` gives windows as many cells as full layers have. A layer that reads another's cache has none.
    """
    spec, form, _ = asked(model, dtype, 1)
    _only(spec, "llamacpp_buffers", "full", "sliding", "shared", "state", "no attention")
    if form.name not in ("fp32", "fp16", "bf16", "q8_0", "q4_0"):
        raise ValueError(f"llama.cpp has no cache in {form.name}")
    layers = {None: []}
    for layer in spec.layers:
        if layer.kind in ("full", "sliding"):
            layers.setdefault(layer.window, []).append(layer)
    windows = [
        _buffers(some, llamacpp_cells(tokens, None if swa_full else window, sequences, ubatch), form)
        for window, some in layers.items()
        if window is not None
    ]
    return {
        "full": _buffers(layers[None], llamacpp_cells(tokens, None, sequences, ubatch), form),
        "sliding": Buffers(sum(each.keys for each in windows), sum(each.values for each in windows)),
    }


def llamacpp_states(model, sequences=1, rollback=0):
    """llama.cpp's buffer for recurrent states -> int.

    All in fp32, whatever the model says, and ``rollback`` copies more ("rs_seq" in the log) where tokens
    drafted ahead may have to be taken back (src/llama-memory-recurrent.cpp, llama_memory_recurrent).
    """
    spec, fp32 = asked(model, None, 1)[0], format_named("fp32")
    one = sum(
        replace(layer, conv_form=fp32, state_form=fp32).state_bytes()
        for layer in spec.layers
        if layer.kind == "state"
    )
    return whole(sequences, "sequences", least=1) * (1 + whole(rollback, "rollback")) * one


def _buffers(layers, rows, form, tp=1):
    heads = [heads_on_rank(layer.kv_heads, tp) for layer in layers]
    keys = sum(n * form.row_bytes(layer.key_dim) for n, layer in zip(heads, layers, strict=True))
    values = sum(n * form.row_bytes(layer.value_dim) for n, layer in zip(heads, layers, strict=True))
    return Buffers(rows * keys, rows * values)


def _only(spec, function, *kinds):
    if other := spec.kinds().keys() - set(kinds):
        raise ValueError(f"{function} does not cover layers of kind {', '.join(sorted(other))} ({spec.name})")
