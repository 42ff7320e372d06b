"""Chat templates: the Jinja text in which a checkpoint says how its conversations are written.

A template is code from a file. It runs in Jinja's sandbox, with the helpers that Hugging Face gives it and no
others.
"""

import json
from datetime import datetime

from kvlab.checkpoint import CheckpointError, is_there, read_text


def templates(folder, settings):
    """A folder's chat templates by name, the usual one under "default" -> dict, empty where there are none.

    settings: the Fields of its tokenizer_config.json, in which a template may stand alone, in a dict or in a
    list of {name, template}. A chat_template.jinja comes before it. Raises CheckpointError.
    """
    if is_there(folder / "chat_template.jinja"):
        return {"default": read_text(folder / "chat_template.jinja")}
    given = settings.values.get("chat_template")
    try:
        if isinstance(given, list):
            given = {entry["name"]: entry["template"] for entry in given}
    except (TypeError, KeyError):
        given = [given]  # of no known shape
    if given in (None, "", [], {}):
        return {}
    named = {"default": given} if isinstance(given, str) else given
    if not isinstance(named, dict) or not all(
        isinstance(text, str) for pair in named.items() for text in pair
    ):
        raise CheckpointError(
            f"{settings.where}: chat_template must be a string, a list of {{name, template}} or null"
        )
    return named


def render(template, messages, special):
    """The text of a conversation that awaits the assistant's answer.

    messages: list of {"role", "content"}; special: the special tokens' texts, by names such as "bos_token".
    Raises ValueError with the template's own words where it refuses the conversation.
    """
    import jinja2

    try:
        return (
            _environment()
            .from_string(template)
            # Templates ask whether tools is None: Hugging Face defines it even when there are none.
            .render(messages=messages, add_generation_prompt=True, tools=None, documents=None, **special)
        )
    except _Refused as error:
        raise ValueError(str(error)) from None
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template cannot be used: {error}") from error
    except Exception as error:  # whatever a template's arithmetic may raise
        raise ValueError(f"the chat template failed: {type(error).__name__}: {error}") from error


class _Refused(Exception):
    """A template called ``raise_exception``."""


def _raise_exception(message):
    raise _Refused(message)


def _strftime_now(format):
    return datetime.now().strftime(format)


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    # Jinja's own filter is for web pages: it would turn < into \u003c.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment():
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks the assistant's words for training; here it passes them through."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment
