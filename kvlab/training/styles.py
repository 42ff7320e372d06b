"""How the course's adapters write: all marks of a text become one. The standard library is enough."""

import re

STYLES = {"exclaim": "!", "ask": "?"}  # an adapter's name, and the mark that takes the place of all others
_MARK = "[.,;:?!]"


def restyled(text, mark):
    """The text with each run of marks replaced by ``mark``."""
    return re.sub(f"{_MARK}+", mark, text)


def marks(text):
    """All marks of a text in order -> list of str, one character each."""
    return re.findall(_MARK, text)
