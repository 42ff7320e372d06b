"""What the calculator refuses, and how it says so."""

import difflib

from kvlab.checkpoint import CheckpointError


class UnknownName(ValueError):
    """A model, device, dtype or anything else by a name that nobody has given us."""


class UnknownArchitecture(CheckpointError):
    """A config.json of an architecture whose cache we do not know; guessing would give a wrong number."""


class TokenLimitWarning(UserWarning):
    """More tokens than the model was made for."""


def known(names, asked=None):
    """'did you mean ...?' where a name comes close to what was asked, else all of them."""
    names = list(names)
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(asked.lower(), lower, n=3, cutoff=0.6) if asked else []
    if close:
        return f"did you mean {' or '.join(lower[name] for name in close)}?"
    return f"known: {', '.join(names)}"


def whole(value, name, least=0):
    """A whole number, checked -> int. Raises TypeError or ValueError, which name it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; it must be a whole number")
    number = value.__index__()
    if number < least:
        raise ValueError(f"{name} is {number}; it must be {least} or more")
    return number
