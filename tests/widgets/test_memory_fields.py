"""The fields of the memory widgets: what is typed counts as typed, or is refused in words."""

import json

import pytest

from kvlab import memory
from kvlab.paths import ROOT
from kvlab.widgets.memory import ArchitectureComparison, MemoryCalculator, RooflineExplorer
from kvlab.widgets.memory.controls import READ_ONLY, over, slider
from kvlab.widgets.memory.numbers import MOST_TOKENS, Tokens, stops, whole_number
from kvlab.widgets.memory.words import parameters_of
from tests.widgets.live import field, live, total, words

pytestmark = pytest.mark.filterwarnings("error")
WIDGETS = ROOT / "kvlab" / "widgets"
CONFIG = memory.models()["Llama-3.2-1B"]["config"]


def test_a_refusal_is_said_and_the_last_answer_stays_marked():
    widget, good = live(MemoryCalculator("Phi-4 (14B)"))
    field(widget, "kv-tp").value = 8
    page = field(widget, "kv-answer").value
    assert "10 KV heads" in words(page) and "Below is the last answer" in words(page)
    assert 'class="kv-stale"' in page and total(page) == total(good)
    field(widget, "kv-tp").value = 2
    assert 'class="kv-fresh"' in field(widget, "kv-answer").value


@pytest.mark.parametrize("page", [MemoryCalculator, RooflineExplorer])
def test_a_wrong_name_is_answered_with_near_ones(page):
    widget, shown = live(page(), kv_model="Llama-3.1-80B")
    assert "unknown model" in words(shown) and "did you mean Llama-3.1-8B" in words(shown)
    field(widget, "kv-model").value = " "
    assert "no model is chosen" in words(field(widget, "kv-answer").value)
    field(widget, "kv-model").value = "qwen/qwen3-8b"
    assert "kv-fresh" in field(widget, "kv-answer").value


def pasted(text, **values):
    return live(MemoryCalculator(), kv_source="pasted", kv_config=text, **values)[1]


def test_a_pasted_config_is_answered():
    page = pasted(json.dumps(CONFIG), kv_parameters="1.24B")
    assert total(page) == str(memory.kv_bytes("Llama-3.2-1B", 8192)) and "kv-fresh" in page
    assert "weights 2.31 GiB" in page
    without = pasted(json.dumps(CONFIG))
    assert "its weights are left out" in words(without) and "beside the weights" not in words(without)
    assert total(without) == total(page)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "paste a config.json"),
        ("{", "this is no JSON"),
        ("[]", "this is a JSON list"),
        (json.dumps(CONFIG | {"model_type": "mystery", "architectures": ["Mystery"]}), "mystery"),
        (json.dumps({key: CONFIG[key] for key in CONFIG if key != "num_hidden_layers"}), "num_hidden_layers"),
    ],
)
def test_a_pasted_config_is_refused_in_words(text, said):
    page = pasted(text)
    assert said in words(page) and "Not computed" in page and "Llama-3.1-8B" in page


def test_what_to_do_is_seen_before_a_long_list_of_what_is_known():
    page = pasted(json.dumps(CONFIG | {"model_type": "mystery"}))
    error = page[page.index('class="kv-error"') : page.index('class="kv-stale"')]
    seen = words(error[: error.index("<details>")])
    assert "model_type 'mystery'" in seen and "ModelSpec.uniform(layers=..., kv_heads=" in seen
    assert "llama" not in seen and "max-height" not in error
    folded = words(error[error.index("<details>") : error.index("</details>")])
    assert f"{len(memory.FAMILIES)} are known" in folded and all(name in folded for name in memory.FAMILIES)
    assert "Below is the last answer" in words(error[error.index("</details>") :])
    _, page = live(MemoryCalculator(), kv_model="xyzzy")
    assert "unknown model 'xyzzy'" in words(page) and page.index("<details>") < page.index("Qwen3-8B")


def test_another_config_empties_the_numbers_of_the_last_one():
    numbers = {"kv_parameters": "400B", "kv_active": "17B"}
    widget, page = live(MemoryCalculator(), kv_source="pasted", kv_config=json.dumps(CONFIG), **numbers)
    assert "weights 745.06 GiB" in page
    field(widget, "kv-config").value = json.dumps(CONFIG | {"num_hidden_layers": 5})
    page = words(field(widget, "kv-answer").value)
    assert "its weights are left out" in page and "GiB of cache" not in page
    for name, number in numbers.items():
        emptied = field(widget, name.replace("_", "-"))
        assert emptied.value == "" and emptied.placeholder == f"emptied: {number} was of the config before"
    field(widget, "kv-config").value = json.dumps(CONFIG)
    assert field(widget, "kv-active").placeholder == "such as 8.03B"


def test_numbers_typed_before_the_first_config_stay():
    page = live(MemoryCalculator(), kv_source="pasted", kv_parameters="1.24B", kv_config=json.dumps(CONFIG))[
        1
    ]
    assert "weights 2.31 GiB" in page
    assert "say both numbers" in words(pasted(json.dumps(CONFIG), kv_active="1B"))


def test_a_fault_of_the_calculator_is_not_passed_over(monkeypatch):
    widget, _ = live(MemoryCalculator())
    monkeypatch.setattr(memory, "cost", lambda *_: {}["nothing"])
    field(widget, "kv-sequences").value = 2
    assert "failed (KeyError: 'nothing')" in words(field(widget, "kv-answer").value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8.03B", 8_030_000_000),
        ("1_000", 1000),
        (" 70m ", 70_000_000),
        ("", None),
        ("1.5T", 15 * 10**11),
        ("8.03e9", 8_030_000_000),
    ],
)
def test_parameters_as_people_write_them(text, number):
    assert parameters_of(text) == number


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "0.0000001K"])
def test_parameters_that_are_none(text):
    with pytest.raises(ValueError, match="number of parameters"):
        parameters_of(text)


def test_only_sliders_over_options_have_a_readout_that_is_not_typed_into():
    """Of a slider over whole numbers it is a field: what is typed there counts."""
    assert READ_ONLY.startswith("<style>.kv-options .widget-readout {")
    made = [over([1, 2], 1, "n", "kv-n"), slider({1, 2}, 1, "n", "kv-n"), Tokens(8).slider]
    assert all("kv-options" in each._dom_classes for each in made)
    assert {type(each).__name__ for each in made} == {"SelectionSlider"}
    anywhere = [path for path in WIDGETS.rglob("*.py") if "SelectionSlider(" in path.read_text("utf-8")]
    assert anywhere == [WIDGETS / "memory" / "controls.py"]


def test_the_slider_has_powers_of_two_and_any_count_asked_for():
    assert {2**power for power in range(24)} <= set(stops()) and stops()[-1] == MOST_TOKENS
    assert all(later / earlier < 2.01 for earlier, later in zip(stops(), stops()[1:], strict=False))
    assert 5000 in stops(5000)
    slider = field(MemoryCalculator(tokens=5000).widget(), "kv-tokens")
    assert slider.value == 5000 and slider.label == "5,000"


def test_the_slider_and_the_number_follow_each_other():
    for page in (MemoryCalculator(), ArchitectureComparison(), RooflineExplorer()):
        widget = page.widget()
        slider, exact = field(widget, "kv-tokens"), field(widget, "kv-tokens-exact")
        for typed, count in (("5000", 5000), ("128,000", 128_000), (" 7_001 ", 7001)):
            exact.value = typed
            assert slider.value == count and slider.label == f"{count:,}" and exact.value == typed
        assert 128_000 not in [value for _, value in slider.options]  # what was typed last is enough
        slider.value = 4096
        assert exact.value == "4,096"
        exact.value = "none"
        assert slider.value == 4096 and "'none' is no whole number" in words(field(widget, "kv-answer").value)
        slider.value = 8192
        assert "kv-fresh" in field(widget, "kv-answer").value


def test_a_typed_count_of_tokens_is_answered_once(monkeypatch):
    widget, _ = live(MemoryCalculator("Llama-2-7B"))
    answer, asked = memory.budget, []
    monkeypatch.setattr(
        memory, "budget", lambda spec, tokens, *more: asked.append(tokens) or answer(spec, tokens, *more)
    )
    field(widget, "kv-tokens-exact").value = "3001"
    field(widget, "kv-tokens").value = 2048
    assert asked == [3001, 2048]
    assert total(field(widget, "kv-answer").value) == str(memory.kv_bytes("Llama-2-7B", 2048))


@pytest.mark.parametrize("name", ["kv-sequences", "kv-tp", "kv-tokens-exact"])
@pytest.mark.parametrize("typed", ["1.5", "0", "-5", "999999999", "", "4k", "1,0"])
def test_what_is_no_count_is_refused_and_not_altered(name, typed):
    widget, good = live(MemoryCalculator())
    field(widget, name).value = typed
    page = field(widget, "kv-answer").value
    assert "kv-stale" in page and total(page) == total(good) and field(widget, name).value == typed
    number = f"{int(typed):,} " if typed.lstrip("-").isdigit() else f"{typed!r} is no whole number of "
    of = {"kv-sequences": "sequences", "kv-tp": "ranks", "kv-tokens-exact": "tokens"}[name]
    assert f"Not computed: {number}{of}" in words(page)


def test_a_start_beyond_a_field_s_usual_end_is_kept():
    _, page = live(MemoryCalculator(sequences=2_000_000))
    assert "kv-fresh" in page and "2,000,000 sequences" in words(page)
    assert whole_number("12", "eggs", 12) == 12
    with pytest.raises(ValueError, match="13 eggs are not possible here; write a number from 1 to 12"):
        whole_number("13", "eggs", 12)


@pytest.mark.parametrize("page", [MemoryCalculator, RooflineExplorer])
def test_it_is_said_how_many_models_there_are(page):
    widget = page().widget()
    said = field(widget, "kv-all-models").value
    assert f"{len(memory.models())} models are known by name" in said
    assert all(name in words(said) for name in memory.models())
    field(widget, "kv-model").value = "meta-llama/Llama-3.1-405B"
    assert (
        "Llama-3.1-405B" in field(widget, "kv-answer").value
        and "kv-fresh" in field(widget, "kv-answer").value
    )
