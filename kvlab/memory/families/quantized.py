"""The formats of weights and cache that a config.json asks for, and what it leaves open."""

import reprlib

from kvlab.memory.formats import FORMATS

ALL_IN_ONE = (
    "All its weights are counted in the format that quantization_config names; those that the checkpoint "
    "keeps in another, the embeddings and often more, take what that takes."
)


def stated(*configs):
    """How weights are quantised, by the first of the objects that says so -> dict, empty where none does."""
    said = [config.get(name) for config in configs for name in ("quantization_config", "compression_config")]
    return next((each for each in said if each and isinstance(each, dict)), {})


def weights_dtype(quantization, notes):
    """The format of quantised weights, where it is one that we know; None where they are not quantised."""
    method = quantization.get("quant_method")
    if method == "mxfp4":
        return None  # which holds for experts alone
    if isinstance(method, str) and method in FORMATS:
        notes.append(ALL_IN_ONE)
        return method
    if quantization:
        notes.append(
            f"Its weights are quantised by {method!r}; they are counted in its dtype unless you say more."
        )
    return None


def expert_dtype(config, quantization, notes):
    """The format of the routed experts, where it is one of their own, else None.

    That is transformers' mxfp4, which converts nothing else, and the FP4 of DeepSeek-V4, whose files are as
    large as with one scale for 32 values.
    """
    if quantization.get("quant_method") == "mxfp4" or config.get("expert_dtype") == "fp4":
        if ALL_IN_ONE not in notes:
            notes.append(ALL_IN_ONE)
        return "mxfp4"
    return None


def cache_dtype(quantization, dtype, notes):
    """The format that the file asks of the cache and that engines take from there unasked, else None.

    That is the fp8 of ModelOpt's files (vLLM, utils/torch_utils.py, get_kv_cache_quant_algo_string). Of any
    other a note says what it asks.
    """
    inner = quantization.get("quantization")
    places = [inner, quantization] if isinstance(inner, dict) else [quantization]
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    said = [(name, place[name]) for name in names for place in places if place.get(name)]
    if not said:
        return None
    name, scheme = said[0]
    if not _is_fp8(scheme):
        notes.append(
            f"Of its cache the file says {name} {reprlib.repr(scheme)}, which is not read here: it is "
            f"counted in {dtype} unless you ask for another dtype."
        )
        return None
    if str(quantization.get("quant_method")).startswith("modelopt"):
        notes.append(
            f"The file asks for a cache in fp8 ({name}), and vLLM and SGLang follow it unless told "
            f"otherwise: it is counted so unless you ask for another dtype, such as {dtype}."
        )
        return "fp8"
    notes.append(
        f"The file asks for a cache in fp8 ({name}), which not every engine follows: it is counted in "
        f"{dtype}; ask for dtype fp8 to count it so."
    )
    return None


def _is_fp8(scheme):
    if isinstance(scheme, dict):
        return scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    return isinstance(scheme, str) and scheme.lower() == "fp8"
