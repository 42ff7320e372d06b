"""What generation is asked for, checked at the call: each refusal names the value and the remedy."""

from operator import index


def whole(name, value, at_least):
    """An integer of any kind (Python's, numpy's, a tensor's) as int."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if isinstance(value, bool) or number < at_least:
        raise ValueError(f"{name} is {value!r}; it must be an integer of {at_least} or more")
    return number


def stop_ids(stop, vocab):
    stop = () if stop is None else [stop] if hasattr(stop, "__index__") and not _is_list(stop) else stop
    if isinstance(stop, str):
        raise TypeError(f"stop is {stop!r}; it takes token ids, such as tokenizer.stop_ids")
    ids = {whole("a stop id", token, at_least=0) for token in stop}
    if ids and max(ids) >= vocab:
        raise ValueError(f"stop id {max(ids)} is outside the vocabulary: 0 to {vocab - 1}")
    return ids


def _is_list(value):
    return getattr(value, "shape", ()) != ()


def checked_prompt(model, prompt_ids):
    if isinstance(prompt_ids, str):
        raise TypeError("prompt_ids is text; encode it first: tokenizer.encode(text)")
    tokens = prompt_ids.tolist() if hasattr(prompt_ids, "tolist") else prompt_ids
    try:
        tokens = list(tokens)
    except TypeError:
        raise TypeError(f"prompt_ids is {prompt_ids!r}; a prompt is a flat list of int") from None
    if not tokens:
        raise ValueError("the prompt is empty; there must be at least one token to continue from")
    vocab = model.config.vocab_size
    for position, token in enumerate(tokens):
        if isinstance(token, bool) or not hasattr(token, "__index__") or _is_list(token):
            raise TypeError(f"prompt_ids[{position}] is {token!r}; a prompt is a flat list of int")
        if not 0 <= index(token) < vocab:
            raise ValueError(
                f"token id {token} at position {position} is outside the vocabulary: 0 to {vocab - 1}"
            )
    return [index(token) for token in tokens]


def check_room(model, cache, prompt, max_new_tokens):
    """The last new token is never fed back, so it needs neither a position nor room."""
    if cache.length > prompt:
        raise ValueError(
            f"the cache holds {cache.length} tokens and the prompt has {prompt}: a prompt is all of the text "
            "so far; truncate the cache or use a new one"
        )
    fed = prompt + max(max_new_tokens, 1) - 1
    if fed == cache.length:
        return
    if cache.capacity is not None and fed > cache.capacity:
        raise ValueError(
            f"a prompt of {prompt} and {max_new_tokens} new tokens need room for {fed} tokens, but the cache "
            f"has room for {cache.capacity}: shorten the prompt, ask for fewer, or make a larger cache (the "
            f"model takes {model.config.max_positions})"
        )
    limit = model.config.max_positions
    if int(cache.positions(fed - cache.length).max()) >= limit:
        raise ValueError(
            f"a prompt of {prompt} and {max_new_tokens} new tokens need {fed} positions, but the model has "
            f"{limit}: shorten the prompt or ask for fewer"
        )
