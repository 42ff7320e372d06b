"""The memory widgets: what they show is what kvlab.memory says, and what it refuses is said in words."""

import json
import re
import warnings

import pytest

from kvlab import memory
from kvlab.widgets.memory import ArchitectureComparison, MemoryCalculator, RooflineExplorer
from tests.viz.sheets import faults
from tests.widgets.live import field, live, total, words

pytestmark = pytest.mark.filterwarnings("error")
MODELS = list(memory.models())
TIME = re.compile(" (h|min|s|ms|µs)\\b")
OTHERS = ["Llama-2-7B", "Gemma-3-27B", "DeepSeek-V3", "Nemotron-H-56B", "DeepSeek-V4-Flash", "Gemma-3n-E4B"]


def quiet(call, *arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **more)


@pytest.mark.parametrize("model", OTHERS)
def test_the_calculator_shows_kv_bytes(model):
    widget, _ = live(MemoryCalculator(model))
    settings = [
        (1, 1, "", 1),
        (96, 3, "fp8", 1),
        (1024, 1, "bf16", 1),
        (131072, 16, "", 2),
        (2**20, 7, "fp32", 1),
    ]
    for tokens, sequences, dtype, tp in settings:
        wanted = {"kv-tokens": tokens, "kv-sequences": sequences, "kv-dtype": dtype, "kv-tp": tp}
        for name, value in wanted.items():
            field(widget, name).value = value
        exact = quiet(memory.kv_bytes, model, tokens, sequences, dtype or None, tp)
        page = field(widget, "kv-answer").value
        assert total(page) == str(exact)
        assert f"{memory.size(exact)} of cache for {sequences:,} sequence" in words(page)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_shows(model):
    page = MemoryCalculator(model, tokens=5000, page_size=16)
    assert f"{quiet(memory.kv_bytes, model, 5000):,} bytes" in page.text()
    assert page.text().splitlines()[0].startswith("The cache for 1 sequence of 5,000 tokens")
    for sheet in page.sheets(page.answer, memory.size):
        assert faults(sheet) == []
    steps = RooflineExplorer(model)
    for sheet in (*steps.sheets(steps.steps, "token"), *steps.sheets(steps.steps, "step")):
        assert faults(sheet) == []
    assert (
        model in live(page)[1] and model in steps.text() and model in ArchitectureComparison([model]).text()
    )


@pytest.mark.parametrize("device", memory.devices())
def test_every_device_shows(device):
    for model in ("SmolLM2-135M", "Llama-3.1-405B"):
        page = MemoryCalculator(model, device=device)
        capacity = memory.device(device).memory_bytes
        assert f"the device ends: {memory.size(capacity)}" in live(page)[1]
        parts = page.answer.parts
        assert sum(parts.values()) - 2 * parts["too much"] == capacity
    _, shown = live(RooflineExplorer("SmolLM2-135M", device=device))
    known = memory.device(device).flops.get("bf16") is not None
    assert ("prefill, one text" in shown) == known == ("arithmetic rate of" not in words(shown))
    assert f"Roofline of {device}" in live(RooflineExplorer("Llama-3.1-405B", device=device))[1]


@pytest.mark.parametrize("model", ["Llama-3.1-405B", "DeepSeek-V3"])
def test_no_speed_where_the_weights_alone_do_not_fit(model):
    for page in (MemoryCalculator(model), RooflineExplorer(model)):
        widget, shown = live(page)
        assert "The weights alone do not fit: " in words(shown)
        for still in (words(shown), page.text()):
            assert not TIME.search(still) and "tokens a second" not in still and "0 sequences" not in still
        assert "the weights alone do not fit" in page.text()
        field(widget, "kv-tp").value = 16
        field(widget, "kv-weights-dtype").value = "fp8"
        shown = words(field(widget, "kv-answer").value)
        assert "do not fit" not in shown and TIME.search(shown)
    assert "the weights alone do not fit" in RooflineExplorer(model).static_figure().alt
    _, shown = live(MemoryCalculator("Llama-3.1-70B", weights_dtype="fp8", reserve=0.3))
    assert "fits beside the weights nothing the weights and what is kept back fill the device" in words(shown)
    assert "kv-fact-floor" not in shown and "weights alone" not in shown
    _, shown = live(MemoryCalculator("Llama-3.1-8B", sequences=500))
    assert "tokens a second, by the roofline, if all of it fitted" in words(shown)


def test_the_facts_are_those_of_the_library():
    model, device, tokens = "Llama-3.1-70B", "NVIDIA H200 SXM", 8192
    _, page = live(MemoryCalculator(model, tokens, 4, device=device, tp=2, page_size=32, reserve=0.05))
    free = memory.free_bytes(model, device, None, 2, 0.05)
    step = memory.decode(model, tokens, device, 4, None, None, 2)
    said = words(page)
    for expected in (
        f"fits beside the weights {memory.fits_sequences(model, tokens, free, None, 2, 32):,} sequences of",
        f"longest text that fits {memory.longest(model, free, 4, None, 2, 32):,} tokens",
        f"outgrows the weights from {memory.outgrows(model, 4, tp=2):,}",
        f"takes about {1000 * step.floor_s:.1f} ms {4 / step.floor_s:.0f} tokens a second",
        f"sets aside on each rank {memory.size(memory.allocation(model, tokens, 4, None, 2, 32).total)}",
        f"formula says {memory.size(memory.naive_bytes(model, tokens, 4))} 8.00 times the true size",
        f"one more token takes {memory.size(memory.cost(model, tokens, 4, None, 2).bytes_per_token)}",
    ):
        assert expected in said


def test_units_change_the_words_and_not_the_bytes():
    widget, before = live(MemoryCalculator("Llama-2-7B", 4096))
    assert "2.00 GiB of cache" in words(before) and " GB" not in words(before)
    field(widget, "kv-unit").value = "decimal"
    after = field(widget, "kv-answer").value
    assert "2.15 GB of cache" in words(after) and "iB" not in words(after)
    assert total(before) == total(after) == "2147483648"


def test_warnings_are_said():
    _, page = live(MemoryCalculator("Qwen3-235B-A22B"), kv_tokens=65536, kv_tp=8)
    assert "65,536 tokens are more than the 40,960" in words(page)
    assert "2 ranks keep copies of the same keys and values" in words(page)
    assert "kv-warning" not in live(MemoryCalculator("Qwen3-8B"))[1]


def test_the_textbook_is_compared_with_one_copy_of_the_cache():
    """On 32 ranks the copies of 8 KV heads take as much as the 32 heads that the formula counts."""
    widget, one = live(MemoryCalculator("Llama-3.1-8B"))
    assert "4.00 times the true size" in words(one)
    field(widget, "kv-tp").value = 8  # no copies
    assert "4.00 times the true size" in words(field(widget, "kv-answer").value)
    field(widget, "kv-tp").value = 32
    page = words(field(widget, "kv-answer").value)
    assert "4.00 times what one copy of the cache takes" in page and "right here" not in page
    assert "right here" in words(live(MemoryCalculator("Llama-2-7B"))[1])


def test_a_fixed_part_and_a_note_are_said_once_and_in_words():
    page = words(live(MemoryCalculator("Qwen3.5-27B"))[1])
    assert page.count("MTP") == 1 and "(s)" not in page
    assert "fixed part, at this length 146.81 MiB states and full windows" in page
    assert "fixed part, at this length none all of it grows" in words(live(MemoryCalculator("Llama-2-7B"))[1])


def test_bytes_are_grouped_alike_and_the_table_has_one_side():
    page = MemoryCalculator("Llama-3.1-8B", sequences=16)
    assert "17,179,869,184 bytes" in page.text()
    assert ".kv-three::before { content: ','" in live(page)[1]
    assert "text-align: right" not in page.html()
    ends = {line.index(row[1]) for line, row in zip(page.text().splitlines()[2:], page.rows(), strict=True)}
    assert len(ends) == 1


CONFIG = memory.models()["Llama-3.2-1B"]["config"]


def test_a_wrong_argument_fails_where_it_is_written():
    with pytest.raises(memory.UnknownName, match="did you mean"):
        MemoryCalculator("Llama-3.1-9B")
    with pytest.raises(memory.UnknownName, match="H100"):
        RooflineExplorer(device="H100")
    with pytest.raises(memory.UnknownName):
        ArchitectureComparison(["Llama-3.1-9B"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MemoryCalculator(tokens=0), "tokens is 0; it must be 1 or more"),
        (lambda: MemoryCalculator(sequences=0), "sequences is 0; it must be 1 or more"),
        (lambda: MemoryCalculator(reserve=2**30), "reserve is 1073741824; it must be a share"),
        (lambda: MemoryCalculator(reserve=-0.1), "reserve is -0.1; it must be a share"),
        (lambda: MemoryCalculator(reserve=1), "reserve is 1; it must be a share"),
        (lambda: ArchitectureComparison(dtype="bf17"), "^unknown dtype 'bf17'"),
        (lambda: MemoryCalculator(units="GB"), "'GB' units are not known"),
        (lambda: ArchitectureComparison(tokens=0), "tokens is 0; it must be 1 or more"),
        (lambda: ArchitectureComparison([]), "no models to compare"),
        (lambda: ArchitectureComparison(["Pythia-2.8B"], dtype="q4_0"), "Pythia-2.8B: q4_0 packs blocks"),
        (lambda: RooflineExplorer(tokens=-1), "tokens is -1"),
        (lambda: RooflineExplorer(sequences=0), "sequences is 0; it must be 1 or more"),
    ],
)
def test_settings_that_have_no_answer_fail_where_they_are_written(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_spec_made_by_hand():
    spec = memory.ModelSpec.uniform(layers=3, kv_heads=2, head_dim=5, name="mine", parameters=10**9)
    for page in (
        MemoryCalculator(spec, 7),
        ArchitectureComparison([spec, "Llama-2-7B"], 7),
        RooflineExplorer(spec),
    ):
        assert "mine" in page.text() and "mine" in page.html()
    assert total(live(MemoryCalculator(spec, 7))[1]) == str(2 * 3 * 2 * 5 * 2 * 7)
    assert "mine" in live(ArchitectureComparison([spec]))[1]


def test_the_comparison_tells_exact_bytes_and_leaves_out_what_does_not_fit():
    widget, page = live(ArchitectureComparison(OTHERS, 4096), kv_tokens=65536)
    for model in OTHERS:
        assert f"{quiet(memory.kv_bytes, model, 65536):,}" in page
    field(widget, "kv-models").value = ("Llama-2-7B", "Phi-3-mini-4k", "Pythia-2.8B")
    field(widget, "kv-dtype").value = "q8_0"  # packs 32 values, and Pythia's heads are 80 wide
    page = field(widget, "kv-answer").value
    assert "Pythia-2.8B: q8_0 packs blocks of 32 values" in words(page)
    assert f"{quiet(memory.kv_bytes, 'Llama-2-7B', 65536, 1, 'q8_0'):,}" in page
    field(widget, "kv-models").value = ()
    assert "pick a model" in words(field(widget, "kv-answer").value)
    field(widget, "kv-models").value = tuple(MODELS[:9])
    assert "the first 8 are drawn" in words(field(widget, "kv-answer").value)


def test_the_comparison_goes_back_to_each_model_s_own_format():
    page = live(ArchitectureComparison(["Llama-2-7B"], 4096, dtype="fp8"), kv_dtype="")[1]
    assert f"{memory.kv_bytes('Llama-2-7B', 4096):,}" in page


def test_a_model_by_its_path(tmp_path):
    path = tmp_path / "small" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG))
    exact = memory.kv_bytes(path, 8192)
    assert total(live(MemoryCalculator(path))[1]) == total(live(MemoryCalculator(str(path)))[1]) == str(exact)
    assert f"{exact:,}" in live(ArchitectureComparison([path, str(path)], 8192))[1]


def test_the_explorer_follows_its_sliders():
    widget, page = live(
        RooflineExplorer("Mixtral-8x7B-v0.1", tokens=1024), kv_sequences=4, kv_tp=2, kv_per="step"
    )
    step = memory.decode("Mixtral-8x7B-v0.1", 1024, "NVIDIA H100 SXM", 4, None, None, 2)
    assert f"4: {1000 * step.floor_s:.3g} ms" in page
    assert (
        f"a batch of 4 reads {memory.touched(memory.ModelSpec.named('Mixtral-8x7B-v0.1'), 4):.0%}"
        in words(page)
    )
    field(widget, "kv-per").value = "token"
    assert f"4: {1000 * step.floor_s / 4:.3g} ms" in field(widget, "kv-answer").value
    field(widget, "kv-tokens").value = 2**20
    assert "1,048,576 tokens are more than the 32,768" in words(field(widget, "kv-answer").value)


@pytest.mark.parametrize("tokens", [1000, 8192, 50_000])
def test_calculator_and_explorer_agree_on_what_fits(tokens):
    page = RooflineExplorer(tokens=tokens)
    fits = MemoryCalculator(tokens=tokens).answer.fits
    assert page.steps.fits == fits
    last = {batch: row[-1] for batch, row in zip(page.steps.decode, page.rows()[1:], strict=True)}
    assert {batch for batch, said in last.items() if said == "does not fit"} == {
        batch for batch in last if batch > fits
    }
    assert len(page.steps.trail()) == sum(batch <= fits for batch in last)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "DeepSeek-V4-Flash", "Mixtral-8x7B-v0.1"])
def test_the_share_of_a_mixture_that_is_read_is_one_of_bytes(model):
    page, device = live(RooflineExplorer(model, "NVIDIA B300 SXM", 1024, 4))[1], memory.device("B300 SXM")
    share = memory.decode(model, 1024, device, 4).weights_read / memory.weight_bytes(model)
    assert f"a batch of 4 reads {share:.0%} of the weights" in words(page)


def test_prefill_is_of_one_text():
    """Which fits where the batch does not."""
    page = RooflineExplorer("Llama-3.1-8B", "NVIDIA H100 SXM", 8192, 256)
    named = {row[0]: row[-1] for row in page.rows()}
    assert named["decode, batch 256"] == "does not fit" != named["prefill of one"]
    assert "decode, batch 256, too much" in [point.words for point in page.steps.points()]


@pytest.mark.parametrize("parameters", [0, None])
def test_a_model_without_weights_has_no_roofline(parameters):
    spec = memory.ModelSpec.uniform(layers=2, kv_heads=2, head_dim=8, parameters=parameters)
    with pytest.raises(ValueError, match="with_parameters"):
        RooflineExplorer(spec)


WITH_STATES = [name for name in MODELS if "state" in memory.ModelSpec.named(name).kinds()]


@pytest.mark.parametrize("model", WITH_STATES)
def test_everything_in_the_strip_is_of_one_rank(model):
    found = MemoryCalculator(model, tp=2).answer
    layers = zip(found.spec.layers, found.cost.by_layer, strict=True)
    states = {memory.size(held) for layer, held in layers if layer.kind == "state"}
    _, strip = MemoryCalculator.sheets(found, memory.size)
    assert states == set(re.findall(r"state: (.*?) at any length", strip.title)[0].split(" or "))
    assert "of one sequence, on one rank" in strip.title


def test_what_a_reader_should_know_is_said_without_a_kernel_too():
    copied, long = "ranks keep copies of the same", "are more than the"
    for page in (MemoryCalculator("Llama-3.1-8B", tp=32), RooflineExplorer("Llama-3.1-8B", tp=32)):
        assert all(copied in said for said in (page.text(), page.html(), live(page)[1]))
        assert copied in page.static_figure().alt
    for page in (MemoryCalculator("Qwen3-8B", 100_000), RooflineExplorer("Qwen3-8B", tokens=100_000)):
        assert all(long in said for said in (page.text(), page.html(), live(page)[1]))
        assert long in page.static_figure().alt
    assert "NVIDIA H100 SXM, 10% kept back" in MemoryCalculator().text()
    noted = next(name for name in MODELS if memory.ModelSpec.named(name).notes)
    assert memory.ModelSpec.named(noted).notes[0] in MemoryCalculator(noted).text()


@pytest.mark.parametrize("tokens", [1, 5, 127, 128, 4096])
def test_a_mark_stands_on_its_line(tokens):
    for line in ArchitectureComparison(OTHERS, tokens).lines(OTHERS, tokens, None)[0]:
        assert line.points[0][0] <= tokens <= line.points[-1][0]
    page = ArchitectureComparison(OTHERS, tokens)
    said = "1 token" if tokens == 1 else f"{tokens:,} tokens"
    assert (
        f"At {said}:" in page.static_figure().alt
        and f"bytes at {said}" in page.text().splitlines()[0] + page.text()
    )


NEAR = 50  # pixels
CROWDED = [
    ("SmolLM2-135M", "NVIDIA B300 SXM", 32_768, 1, "fp8"),
    ("Gemma-3-27B", "NVIDIA B300 SXM", 524_288, 4, "int4"),
    ("Command-R v01 (35B)", "NVIDIA A100 80GB SXM", 262_144, 1, "int4"),
    ("GPT-2 XL", "NVIDIA T4", 131_072, 64, None),
    ("Llama-3.2-3B", "AMD MI355X", 2**20, 128, "int4"),
    ("Llama-3.1-8B", "NVIDIA H100 SXM", 4096, 64, None),
]


@pytest.mark.parametrize("asked", CROWDED, ids=lambda asked: asked[0])
def test_a_step_on_the_roofline_has_its_name_beside_it(asked):
    *first, weights_dtype = asked
    page = RooflineExplorer(*first, weights_dtype=weights_dtype)
    roof = page.sheets(page.steps, "token")[0]
    for point in page.steps.points():
        [name] = [thing for thing in roof.texts() if thing.text == point.words]
        [mark] = [thing for thing in roof.things if getattr(thing, "tip", "").startswith(point.words)]
        (x, y), (left, top, right, bottom) = mark.points[0], name.box
        assert max(left - x, x - right, top - y, y - bottom) < NEAR


@pytest.mark.parametrize("page", [MemoryCalculator(), ArchitectureComparison(), RooflineExplorer()])
def test_without_a_kernel_there_are_a_table_and_a_picture(page):
    data, _ = page._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"].startswith("<table>") and "<svg" not in data["text/html"]
    assert data["text/plain"] == page.text()
    picture = page.static_figure()
    assert picture.width > picture.height / 1.5 and len(picture.alt) > 80
