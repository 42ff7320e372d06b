"""Text to token ids and back, by the ``tokenizers`` library; the folder's chat template and stop tokens."""

import json
from pathlib import Path

import tokenizers


class Tokenizer:
    """``encode`` text to a list of ids, ``decode`` ids to text.

    ``stop_ids``  the ids that end an answer
    ``bos_id``    the id that opens every text, or ``None``
    """

    def __init__(self, backend, stop_ids=(), bos_id=None, chat_template=None, special=None):
        self._backend = backend
        self.stop_ids, self.bos_id = tuple(stop_ids), bos_id
        self._chat_template, self._special = chat_template, special or {}

    @classmethod
    def from_folder(cls, folder):
        """From a checkpoint folder, or ``None`` where it has no tokenizer.json."""
        folder = Path(folder)
        if not (folder / "tokenizer.json").exists():
            return None
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

        def read(name):
            file = folder / name
            return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

        settings = read("tokenizer_config.json")
        stop = (read("config.json") | read("generation_config.json")).get("eos_token_id")
        stop = [] if stop is None else stop if isinstance(stop, list) else [stop]
        special = {name: settings.get(name) or "" for name in ("bos_token", "eos_token")}
        special = {
            name: token["content"] if isinstance(token, dict) else token for name, token in special.items()
        }
        template = settings.get("chat_template")
        if (folder / "chat_template.jinja").exists():
            template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        opening = backend.encode("").ids  # what the tokenizer puts before any text
        return cls(backend, stop, opening[0] if opening else None, template, special)

    @property
    def vocab_size(self):
        return self._backend.get_vocab_size()

    def encode(self, text):
        """Token ids, opened by ``bos_id`` where there is one -> list of int."""
        return self._backend.encode(text).ids

    def decode(self, ids):
        """The text of some ids, special tokens left out."""
        return self._backend.decode([int(i) for i in ids])

    def pieces(self, ids):
        """Each id's own text, special tokens included, for labels -> list of str."""
        return [self._backend.decode([int(i)], skip_special_tokens=False) for i in ids]

    def chat(self, *turns, system=None):
        """Ids of a conversation that awaits the assistant's answer; ``turns`` alternate, the user first.

        Raises ValueError where the checkpoint has no chat template.
        """
        if not self._chat_template:
            raise ValueError("this model has no chat template: encode plain text instead")
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # a template is code from a file

        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(self._chat_template)
        text = template.render(messages=messages, add_generation_prompt=True, **self._special)
        return self._backend.encode(text, add_special_tokens=False).ids
