"""Text to token ids and back, by the ``tokenizers`` library; the folder's chat template and stop tokens."""

import operator
from pathlib import Path

import tokenizers

from kvlab.checkpoint import CheckpointError, Fields, is_there, read_optional_json, read_text
from kvlab.model import chat


class Tokenizer:
    """``encode`` text to a list of ids, ``decode`` ids to text.

    ``stop_ids``  the ids that end an answer
    ``bos_id``    the id that opens every text, or ``None``
    """

    def __init__(self, backend, stop_ids=(), bos_id=None, chat_templates=None, special=None, num_ids=0):
        """num_ids: the model's count of ids, where it has more than the tokenizer has texts for."""
        self._backend = backend
        self.stop_ids, self.bos_id = tuple(stop_ids), bos_id
        self._chat_templates, self._special = chat_templates or {}, special or {}
        self._num_ids = max(num_ids, 1 + max(backend.get_vocab().values(), default=-1))

    @classmethod
    def from_folder(cls, folder):
        """From a checkpoint folder, or ``None`` where it has no tokenizer.json. Raises CheckpointError."""
        folder = Path(folder)
        if not is_there(folder / "tokenizer.json"):
            return None
        backend = _backend(folder / "tokenizer.json")
        settings = _fields(folder / "tokenizer_config.json")
        special = _special_tokens(settings)
        config = _fields(folder / "config.json")
        return cls(
            backend,
            # What generation_config.json does not say is said by config.json.
            _stop_ids(_fields(folder / "generation_config.json")) or _stop_ids(config),
            _opening(backend, special.get("bos_token")),
            chat.templates(folder, settings),
            special,
            config.integer("vocab_size") if "vocab_size" in config else 0,
        )

    @property
    def vocab_size(self):
        return self._backend.get_vocab_size()

    def encode(self, text):
        """Token ids, opened by ``bos_id`` where there is one -> list of int."""
        return self._backend.encode(text).ids

    def decode(self, ids):
        """The text of some ids, special tokens left out. Raises ValueError for an id that there is not."""
        return self._backend.decode(self._checked(ids))

    def pieces(self, ids):
        """Each id's own text, special tokens included, for labels -> list of str. Raises like ``decode``."""
        return [self._backend.decode([i], skip_special_tokens=False) for i in self._checked(ids)]

    def chat(self, *turns, system=None):
        """Ids of a conversation that awaits the assistant's answer; ``turns`` alternate, the user first.

        Raises ValueError where the last turn is not the user's, where the checkpoint has no chat template or
        where its template refuses them, and TypeError for turns that are not strings.
        """
        named = {f"turn {number}": turn for number, turn in enumerate(turns, 1)}
        for name, text in (named if system is None else named | {"system": system}).items():
            if not isinstance(text, str):
                raise TypeError(
                    f'{name} is a {type(text).__name__}; each is a string: chat("Hi", "Hello.", "And you?")'
                )
        if len(turns) % 2 == 0:
            raise ValueError(
                f"{len(turns)} turns: give an odd number, the user's first and last, the assistant's between"
            )
        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        text = chat.render(self._chat_template(), messages, self._special)
        return self._backend.encode(text, add_special_tokens=False).ids

    def _chat_template(self):
        if not self._chat_templates:
            raise ValueError("this model has no chat template: encode plain text instead")
        if "default" not in self._chat_templates:
            names = ", ".join(self._chat_templates)
            raise ValueError(f"this model's chat templates are {names}: none is the default, for plain chat")
        return self._chat_templates["default"]

    def _checked(self, ids):
        ids = [operator.index(i) for i in ids]
        for i in ids:
            if not 0 <= i < self._num_ids:
                raise ValueError(f"token id {i} is outside the vocabulary: 0 to {self._num_ids - 1}")
        return ids


def _backend(file):
    text = read_text(file)
    try:
        backend = tokenizers.Tokenizer.from_str(text)
        backend.encode("")  # a post-processor may name tokens that there are not
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises nothing narrower, and its panics are not Exceptions
        raise CheckpointError(f"{file} is not a tokenizer ({error}): fetch it again") from error
    # Settings of somebody's training run, saved along: here a text is encoded whole, and alone.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _fields(file):
    return Fields(read_optional_json(file), file)


def _stop_ids(fields):
    """eos_token_id: one id, a list of them, or nothing."""
    given = fields.values.get("eos_token_id")
    ids = [i for i in (given if isinstance(given, list) else [given]) if i is not None]
    if any(type(i) is not int for i in ids):
        raise CheckpointError(
            f"{fields.where}: eos_token_id is {given!r}; it must be an integer or a list of them"
        )
    return ids


def _special_tokens(settings):
    """The texts of the special tokens, by the names that chat templates know them by."""
    texts = {}
    for name in ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"):
        given = settings.values.get(name)
        if isinstance(given, dict):
            texts[name] = Fields(given, f"{settings.where}: {name}").text("content")
        elif given is not None:
            texts[name] = settings.text(name)
    return texts


def _opening(backend, bos_token):
    """The id that stands before every text, or ``None``; what stands after it, such as </s>, is not it."""
    try:
        marked = backend.encode("a")
    except Exception:  # a vocabulary of whole words may refuse it; the library raises nothing narrower
        marked = backend.encode("")
    if not marked.ids or not marked.special_tokens_mask[0]:
        return None
    if all(marked.special_tokens_mask):  # no text between: before and after cannot be told apart
        return marked.ids[0] if marked.tokens[0] == bos_token else None
    return marked.ids[0]
