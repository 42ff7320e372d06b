"""The text and JSON files of a checkpoint folder; an error names the file, the field and the remedy.

Whatever stands in such a file was written elsewhere: nothing is taken on trust, and nothing half understood.
"""

import json
import math
import os
import reprlib


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, is damaged, or is of a model that the decoder does not cover."""


def is_there(file):
    """Whether the folder lists the file; a link to nowhere is listed, and then fails as it is read."""
    return os.path.lexists(file)


def read_text(file):
    """The text of a file, less a byte-order mark. Raises CheckpointError."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unreadable(file, error) from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is not UTF-8 text ({error}): fetch it again") from error


def read_json(file):
    """The object in a JSON file -> dict. Raises CheckpointError."""
    text = read_text(file)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON ({error}): fetch it again") from error
    except RecursionError:
        raise CheckpointError(f"{file} is nested too deeply to be read: fetch it again") from None
    if not isinstance(content, dict):
        kind = "null" if content is None else f"a {type(content).__name__}"
        raise CheckpointError(f"{file} holds {kind} where an object is expected: fetch it again")
    return content


def read_optional_json(file):
    """As :func:`read_json`; a file that is not there holds no fields."""
    return read_json(file) if is_there(file) else {}


def unreadable(file, error):
    """The CheckpointError for an OSError: what stands in the way is not damage, and fetching may not help."""
    if isinstance(error, FileNotFoundError):
        return CheckpointError(
            f"{file} is missing: is this a Hugging Face checkpoint folder, wholly fetched?"
        )
    if file.is_dir():  # asked of the file system: Windows reports a folder as a lack of permission
        return CheckpointError(f"{file} is a folder; a file is expected: fetch it again")
    if isinstance(error, PermissionError):
        return CheckpointError(f"{file} may not be read: you lack permission; change its owner or its mode")
    return CheckpointError(f"{file} cannot be read: {error.strerror or error}")


def check_tensors(where, tensors, expected, config, ask=""):
    """Have tensors the names and shapes of those expected by a config file of this name? CheckpointError says
    which has not, and ends with ``ask``."""
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    for problem, names in (("lacks", missing), (f"has, beyond what its {config} describes,", extra)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise CheckpointError(f"{where} {problem} {', '.join(names[:3])}{more}{ask}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{where}: {name} is {list(tensor.shape)}, but by {config} it is "
                f"{list(expected[name].shape)}{ask}"
            )


class Fields:
    """The fields of one JSON object, each asked for as one type; ``where`` opens every error.

    Null is a value of its own, refused unless ``null=True``. All methods raise CheckpointError.
    """

    def __init__(self, values, where):
        self.values, self.where = values, where

    def __contains__(self, name):
        return name in self.values

    def flag(self, name):
        return self._take(name, "true or false", lambda value: isinstance(value, bool))

    def integer(self, name, least=1, null=False):
        wanted = f"an integer, {least} or more"
        return self._take(name, wanted, lambda value: type(value) is int and value >= least, null)

    def number(self, name, zero=False):
        """A number above zero, or zero where it is allowed -> float."""
        wanted = "a number, 0 or above" if zero else "a number above 0"
        return float(
            self._take(name, wanted, lambda value: _is_positive(value) or (zero and _is_zero(value)))
        )

    def text(self, name):
        return self._take(name, "a string", lambda value: isinstance(value, str))

    def object(self, name, null=False):
        return self._take(name, "an object", lambda value: isinstance(value, dict), null)

    def texts(self, name, null=False):
        def fits(value):
            return isinstance(value, list) and all(isinstance(item, str) for item in value)

        return self._take(name, "a list of strings", fits, null)

    def only(self, name, *covered):
        """Refuse any value but null and those that the decoder covers."""
        value = self.values.get(name)
        if value is not None and not any(_same(value, good) for good in covered):
            known = " or ".join(map(repr, covered)) or "models without it"
            raise CheckpointError(
                f"{self.where}: {name} {value!r} is not covered; the decoder knows {known} only"
            )

    def require(self, names):
        """Refuse an object that lacks any of the names."""
        if missing := [name for name in names if name not in self.values]:
            raise CheckpointError(f"{self.where} lacks {', '.join(missing)}")

    def _take(self, name, wanted, fits, null=False):
        self.require([name])
        value = self.values[name]
        if not (fits(value) or (null and value is None)):
            given = "null" if value is None else reprlib.repr(value)
            raise CheckpointError(f"{self.where}: {name} is {given}; it must be {wanted}{' or null' * null}")
        return value


def _is_positive(value):
    try:
        return type(value) in (int, float) and 0 < float(value) < math.inf  # NaN compares false
    except OverflowError:  # JSON's integers have no bound
        return False


def _is_zero(value):
    return type(value) in (int, float) and value == 0


def _same(value, good):
    if type(good) in (int, float) and type(value) in (int, float):
        return math.isclose(value, good)
    return type(value) is type(good) and value == good
