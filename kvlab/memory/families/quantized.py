"""The formats of weights and cache that a config.json asks for, and what it leaves open."""

import reprlib

# A file's words for formats that we have: methods, ModelOpt's algorithms, compressed-tensors' formats.
_WORDS = {
    **{"fp8": "fp8", "float-quantized": "fp8", "int-quantized": "int8"},
    **dict.fromkeys(("nvfp4", "nvfp4-pack-quantized"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "mxfp4-pack-quantized"), "mxfp4"),
}


def stated(*configs):
    """How weights are quantised, by the first of the objects that says so -> dict, empty where none does."""
    said = [config.get(name) for config in configs for name in ("quantization_config", "compression_config")]
    return next((each for each in said if each and isinstance(each, dict)), {})


def of_weights(config, quantization, notes):
    """(format of the weights, format of the routed experts), each None where the file names none of its own.

    MXFP4 is one of experts alone: transformers converts nothing else to it, and files of others in it
    leave the rest out. DeepSeek-V4's fp4 is MXFP4 too, by the size of its files.
    """
    names, places = ("quant_algo", "format", "quant_method"), _places(quantization)
    said = [place[name] for name in names for place in places if place.get(name)]
    weights = next(filter(None, map(_format, said)), None)
    experts = _format(quantization.get("moe_quant_algo"))
    if weights == "mxfp4":
        weights, experts = None, "mxfp4"
    if experts is None and config.get("expert_dtype") == "fp4":
        experts = "mxfp4"
    if quantization and not weights and not experts:
        words = ", ".join(map(reprlib.repr, said)) or "by a method without a name"
        notes.append(
            f"Its weights are quantised ({words}), in a way that is not read here: they are counted in its "
            "dtype unless you ask for another weights_dtype."
        )
    return weights, experts


def _format(word):
    return _WORDS.get(word.lower()) if isinstance(word, str) else None


def _places(quantization):
    """The objects in which its words may stand."""
    inner = quantization.get("quantization")
    return [inner, quantization] if isinstance(inner, dict) else [quantization]


def remark(spec):
    """In what formats a model's weights are counted, where its file names some, and what that leaves open."""
    rest = (
        ": those that the checkpoint keeps in another, the embeddings and often more, take what that takes."
    )
    weights, experts = spec.weights_dtype, spec.expert_dtype
    if experts and spec.expert_parameters is not None:
        said = f"Its experts are counted in {experts}, and its other weights in {weights or spec.dtype}"
        return said + (rest if weights else ".")
    if experts:
        return f"All its weights are counted in {experts}, which the file names for its experts{rest}"
    return f"All its weights are counted in {weights}, which the file names{rest}" if weights else None


def cache_dtype(quantization, dtype, notes):
    """The format that the file asks of the cache and that engines take from there unasked, else None.

    That is the fp8 of ModelOpt's files (vLLM, utils/torch_utils.py, get_kv_cache_quant_algo_string). Of any
    other a note says what it asks.
    """
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    said = [(name, place[name]) for name in names for place in _places(quantization) if place.get(name)]
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
