"""When a text ends before its length: at a token, or at a string that tokens may cut anywhere."""

from kvlab.generation.arguments import stop_ids

HALF = "\ufffd"  # what the bytes of half a character decode to


class Stop:
    """ids: the first one met ends the text and is not part of it. strings: so does the first one complete in
    what has been written, decoded; the tokens that wrote it are kept, the text ends before it.

    Raises TypeError or ValueError for what is neither, and for strings without a tokenizer.
    """

    def __init__(self, ids, strings, vocab_size, tokenizer=None):
        self.ids, self.tokenizer = stop_ids(ids, vocab_size), tokenizer
        self.strings = _strings(strings)
        if self.strings and tokenizer is None:
            raise ValueError(
                f"stop strings {list(self.strings)} need the tokens' text: make the engine with tokenizer="
            )

    def ends(self, tokens):
        """Has one of the strings been written?"""
        return bool(self.strings) and self._found(self._decoded(tokens)) is not None

    def cut(self, tokens):
        """The text of tokens, up to the first stop string -> str."""
        text = self._decoded(tokens)
        return text[: self._found(text)]

    def sure(self, tokens):
        """What of the text no further token can take back: neither half a character nor what may become a
        stop string -> str."""
        text = self.cut(tokens).rstrip(HALF)
        begun = (text.endswith(string[:n]) * n for string in self.strings for n in range(1, len(string)))
        return text[: len(text) - max(begun, default=0)]

    def _found(self, text):
        """Where the stop string begins that is the first to be complete, however tokens cut the text."""
        places = [(at + len(string), at) for string in self.strings if (at := text.find(string)) >= 0]
        return min(places)[1] if places else None

    def _decoded(self, tokens):
        if self.tokenizer is None:
            raise ValueError("an engine without a tokenizer has no texts: make it with tokenizer=")
        return self.tokenizer.decode(tokens)


def _strings(strings):
    strings = (strings,) if isinstance(strings, str) else () if strings is None else strings
    if not hasattr(strings, "__iter__"):
        raise TypeError(f"stop_strings is {strings!r}; it must be a str or several")
    strings = tuple(strings)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"a stop string is {string!r}; it must be a str (token ids go to stop=)")
        if not string:
            raise ValueError("a stop string is empty; every text contains that")
    return strings
