"""The tokenizer's own files, sound and damaged, and the conversations that a chat template makes of turns."""

import json
import shutil
from datetime import datetime

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from kvlab.checkpoint import CheckpointError
from kvlab.model.load import WEIGHTS
from kvlab.model.tokenizer import Tokenizer

BOS, EOS = ("<bos>", 0), ("<eos>", 1)


@pytest.fixture
def folder(tmp_path):
    """The tiny model's files, less its weights."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(WEIGHTS / "tiny-gqa" / name, tmp_path)
    return tmp_path


def write(folder, name, **fields):
    """Add fields to a JSON file of the folder."""
    file = folder / name
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(before | fields))


def refused(folder, says):
    with pytest.raises(CheckpointError, match=says):
        Tokenizer.from_folder(folder)


def change_backend(folder, change):
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    change(backend)
    backend.save(str(folder / "tokenizer.json"))


def talk(folder, template, *turns, **options):
    """What a template makes of a conversation -> str, read back from its ids."""
    write(folder, "tokenizer_config.json", chat_template=template)
    tokenizer = Tokenizer.from_folder(folder)
    ids = tokenizer.chat(*turns or ["Hi"], **options)
    return tokenizer._backend.decode(ids, skip_special_tokens=False)


def test_a_text_is_encoded_whole_and_alone(folder):
    text = "My lord, I came to see your father's funeral."
    expected = Tokenizer.from_folder(folder).encode(text)
    change_backend(folder, lambda backend: backend.enable_truncation(4))
    assert Tokenizer.from_folder(folder).encode(text) == expected
    change_backend(folder, lambda backend: backend.enable_padding(length=64))
    assert Tokenizer.from_folder(folder).encode(text) == expected


@pytest.mark.parametrize(
    ("processor", "bos_id"),
    [
        (processors.TemplateProcessing(single="<bos> $A", special_tokens=[BOS]), 0),
        (processors.TemplateProcessing(single="$A <eos>", special_tokens=[EOS]), None),
        (processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[BOS, EOS]), 0),
        (processors.TemplateProcessing(single="<eos> <bos> $A", special_tokens=[BOS, EOS]), 1),
        (processors.RobertaProcessing(EOS, BOS), 0),
        (processors.ByteLevel(), None),
    ],
)
def test_what_opens_a_text(folder, processor, bos_id):
    change_backend(folder, lambda backend: setattr(backend, "post_processor", processor))
    assert Tokenizer.from_folder(folder).bos_id == bos_id


@pytest.mark.parametrize(
    ("single", "bos_token", "bos_id"),
    [("<bos> $A", "<bos>", 0), ("$A <eos>", "<bos>", None), ("$A <eos>", None, None)],
)
def test_what_opens_a_text_of_whole_words(tmp_path, single, bos_token, bos_id):
    """Without "a" in the vocabulary there is no text to look beside: bos_token decides."""
    backend = Backend(models.WordLevel({"<bos>": 0, "<eos>": 1, "word": 2}))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=[BOS, EOS])
    backend.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "tokenizer_config.json", bos_token=bos_token)
    assert Tokenizer.from_folder(tmp_path).bos_id == bos_id


@pytest.mark.parametrize(
    ("config", "generation", "stop_ids"),
    [
        (5, {}, (5,)),
        (5, {"eos_token_id": None}, (5,)),
        (5, {"eos_token_id": [None]}, (5,)),
        (5, {"eos_token_id": 6}, (6,)),
        (5, {"eos_token_id": [6, None, 7]}, (6, 7)),
        ([5, 6], {"eos_token_id": None}, (5, 6)),
        (None, {}, ()),
    ],
)
def test_what_ends_an_answer(folder, config, generation, stop_ids):
    write(folder, "config.json", eos_token_id=config)
    write(folder, "generation_config.json", **generation)
    assert Tokenizer.from_folder(folder).stop_ids == stop_ids


@pytest.mark.parametrize("value", [True, "1", 1.0, {"id": 1}, ["1"], [1, False], [[1]]])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_stop_ids_that_are_none(folder, name, value):
    write(folder, name, eos_token_id=value)
    refused(folder, f"{name}: eos_token_id is .*; it must be an integer or a list of them")


NAMES = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_folders_or_links_to_nowhere(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("nowhere")
    refused(folder, f"{name} is missing: .* wholly fetched")
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(folder, f"{name} is a folder; .* fetch it again")


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", NAMES[:3])
def test_files_that_are_damaged(folder, name, content):
    (folder / name).write_bytes(content)
    refused(folder, f"{name} .*: fetch it again")


def test_a_post_processor_that_names_tokens_it_lacks(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    write(folder, "tokenizer.json", post_processor=content["post_processor"] | {"special_tokens": {}})
    refused(folder, "tokenizer.json is not a tokenizer .*: fetch it again")


def test_files_that_are_absent(folder):
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").unlink()
    tokenizer = Tokenizer.from_folder(folder)
    assert (tokenizer.stop_ids, tokenizer.bos_id) == ((), 0)
    (folder / "tokenizer.json").unlink()
    assert Tokenizer.from_folder(folder) is None


@pytest.mark.parametrize("value", [5, ["<bos>"], {}, {"content": None}, True])
def test_special_tokens_that_are_none(folder, value):
    write(folder, "tokenizer_config.json", bos_token=value)
    refused(folder, "tokenizer_config.json: bos_token")


@pytest.mark.parametrize("bad", [-1, 1280, 2**40, -(2**70)])
@pytest.mark.parametrize("method", ["decode", "pieces"])
def test_ids_outside_the_vocabulary(folder, method, bad):
    tokenizer = Tokenizer.from_folder(folder)
    with pytest.raises(ValueError, match=f"token id {bad} is outside the vocabulary: 0 to 1279"):
        getattr(tokenizer, method)([5, bad])
    with pytest.raises(TypeError):
        getattr(tokenizer, method)([5.5])


def test_ids_of_the_model_that_have_no_text(folder):
    """Many models have more rows than the tokenizer has texts: such an id can be drawn, and says nothing."""
    write(folder, "config.json", vocab_size=1300)
    tokenizer = Tokenizer.from_folder(folder)
    ids = torch.tensor([*tokenizer.encode("To be"), 1299])
    assert tokenizer.decode(ids) == "To be"
    with pytest.raises(ValueError, match="0 to 1299"):
        tokenizer.decode([1300])


USUAL = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        USUAL,
        [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": USUAL}],
        {"default": USUAL, "rag": "documents"},
    ],
)
def test_where_the_usual_template_stands(folder, template):
    assert talk(folder, template, "Hi", "Ho", "Hu", system="") == "[system|][user|Hi][assistant|Ho][user|Hu]"
    (folder / "chat_template.jinja").write_text("{{ eos_token }}", encoding="utf-8-sig")
    assert talk(folder, template) == "<eos>"


@pytest.mark.parametrize(
    "template",
    [[{"name": "tool_use", "template": USUAL}, {"name": "rag", "template": ""}], {"tool_use": "", "rag": ""}],
)
def test_no_usual_template(folder, template):
    with pytest.raises(ValueError, match="chat templates are tool_use, rag: none is the default"):
        talk(folder, template)


@pytest.mark.parametrize("template", ["", None, [], {}])
def test_no_template(folder, template):
    with pytest.raises(ValueError, match="no chat template"):
        talk(folder, template)


@pytest.mark.parametrize(
    "template",
    [5, False, ["text"], [{"name": "default"}], [5], {"default": None}, [{"name": 1, "template": ""}]],
)
def test_templates_of_no_known_shape(folder, template):
    write(folder, "tokenizer_config.json", chat_template=template)
    refused(folder, "tokenizer_config.json: chat_template must be")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ {'a': '<é> & \"'} | tojson }}", '{"a": "<é> & \\""}'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=1, sort_keys=True) }}", '{\n "a": [\n  2\n ],\n "b": 1\n}'),
        ("{{ [1, 'é'] | tojson(True, separators=(',', ':')) }}", '[1,"\\u00e9"]'),
        ("{% for i in range(9) if i != 1 %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "023"),
        ("{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "2"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "Hi!"),
        ("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}", "True True True"),
        ("{{ bos_token }}{{ pad_token is defined }}", "<bos>False"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"),
    ],
)
def test_what_templates_may_use(folder, template, text):
    assert talk(folder, template) == text


def test_templates_know_the_date(folder):
    before = f"{datetime.now():%Y-%m-%d}"
    said = talk(folder, "{{ strftime_now('%Y-%m-%d') }}")
    assert said in [before, f"{datetime.now():%Y-%m-%d}"]  # midnight may fall between


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('System role not supported') }}", "^System role not supported$"),
        ("{% if %}", "the chat template cannot be used: "),
        ("{{ nothing.at.all }}", "the chat template cannot be used: 'nothing' is undefined"),
        ("{{ ().__class__.__bases__ }}", "the chat template cannot be used: .*unsafe"),
        ("{{ 1 / 0 }}", "the chat template failed: ZeroDivisionError"),
        ("{{ range(10 ** 9) }}", "the chat template failed: OverflowError"),
    ],
)
def test_templates_that_refuse_or_fail(folder, template, says):
    with pytest.raises(ValueError, match=says):
        talk(folder, template)


@pytest.mark.parametrize(
    ("turns", "system", "error", "says"),
    [
        ((), None, ValueError, "0 turns: give an odd number"),
        (("Hi", "Hello"), None, ValueError, "2 turns: give an odd number"),
        ((None,), None, TypeError, "turn 1 is a NoneType; each is a string"),
        ((["Hi", "Hello", "Bye"],), None, TypeError, "turn 1 is a list; each is a string"),
        (("Hi", "Hello", 5), None, TypeError, "turn 3 is a int"),
        (({"role": "user", "content": "Hi"},), None, TypeError, "turn 1 is a dict"),
        (("Hi",), 0, TypeError, "system is a int"),
        (("Hi",), [], TypeError, "system is a list"),
    ],
)
def test_conversations_that_are_none(folder, turns, system, error, says):
    write(folder, "tokenizer_config.json", chat_template=USUAL)
    with pytest.raises(error, match=says):
        Tokenizer.from_folder(folder).chat(*turns, system=system)
