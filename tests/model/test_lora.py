"""Adapters: equal to merged weights, token by token in mixed batches; and nothing is left behind."""

from dataclasses import replace

import pytest
import torch

import kvlab
from kvlab.caches import GrowingCache, NoCache, PagedStep, Pages
from kvlab.model import lora
from kvlab.model.lora import Adapter, adapted
from kvlab.paging import BlockTable
from tests.model.adapters import merged, random_adapter
from tests.models import ABSORBED, NAIVE, SMALL, random_ids, random_model

TOLERANCE = 1e-10
IDS = random_ids(12)
QWEN = replace(SMALL, qkv_bias=True, qk_norm=True)  # both stand between the projection and the cache


@pytest.fixture
def model():
    return random_model()


@pytest.fixture
def adapters():
    return [random_adapter(seed=1), random_adapter(seed=2, rank=2, alpha=7.0)]


def hooks(model):
    return [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


@pytest.mark.parametrize("config", [SMALL, QWEN, replace(SMALL, num_layers=1, num_kv_heads=6)])
def test_one_adapter_equals_merged_weights(config):
    model, adapter = random_model(config), random_adapter(config)
    expected = merged(model, adapter)(IDS, NoCache(config))
    cache = GrowingCache(config)
    with adapted(model, [(adapter, 5)]):
        first = model(IDS[:5], cache)
    with adapted(model, [(adapter, 3), (adapter, 4)]):
        rest = model(IDS[5:], cache)
    assert (torch.cat([first, rest]) - expected).abs().max() < TOLERANCE
    assert (model(IDS, NoCache(config)) - expected).abs().max() > 1e-2


def test_the_weights_of_q_and_of_v_count_both(model):
    adapter = random_adapter()
    with adapted(model, adapter):
        whole = model(IDS, NoCache(SMALL))
    for target in lora.TARGETS:
        half = random_adapter()
        for layer in half.layers:
            layer[target].lora_B.weight.zero_()
        with adapted(model, half):
            assert (model(IDS, NoCache(SMALL)) - whole).abs().max() > 1e-3


def test_a_new_adapter_changes_nothing(model):
    adapter = Adapter(SMALL).to(torch.float64)
    assert (adapter.rank, adapter.alpha, adapter.dtype) == (4, 8.0, torch.float64)
    assert all(p.requires_grad for p in adapter.parameters())
    before = model(IDS, NoCache(SMALL))
    with adapted(model, adapter):
        assert torch.equal(model(IDS, NoCache(SMALL)), before)
    assert adapter.layers[2]["q_proj"].lora_A.weight.abs().max() > 0


def test_its_shapes_are_those_of_the_projections(model):
    shapes = {name: list(tensor.shape) for name, tensor in random_adapter().state_dict().items()}
    assert len(shapes) == 2 * 2 * SMALL.num_layers
    assert [shapes[f"layers.2.q_proj.lora_{x}.weight"] for x in "AB"] == [[3, 20], [48, 3]]
    assert [shapes[f"layers.2.v_proj.lora_{x}.weight"] for x in "AB"] == [[3, 20], [16, 3]]


def stepped(model, tables, pages, new, runs):
    """One packed step -> logits of each sequence."""
    view, lens = PagedStep(pages, tables, [len(ids) for ids in new]), [len(ids) for ids in new]
    with adapted(model, runs):
        return model(torch.cat(new), view).split(lens)


@pytest.mark.parametrize("order", [[0, None, 1, 0, 1], [None, 0, 0, None, 1], [1, 0, None, 1, 0]])
def test_a_mixed_batch_equals_each_alone(model, adapters, order):
    """A prompt, chunks and decode steps of five sequences; adapters come twice, apart and side by side."""
    owners = [None if number is None else adapters[number] for number in order]
    pages = Pages(SMALL, 40, 4)
    tables = [BlockTable(pages.pool) for _ in owners]
    texts, at = [random_ids(11, seed=seed) for seed in range(5)], [0] * 5
    alone = [merged(model, owner)(text, NoCache(SMALL)) for owner, text in zip(owners, texts, strict=True)]
    for lens in ([5, 1, 3, 2, 4], [1, 6, 1, 1, 0], [3, 1, 5, 1, 1]):
        new = [text[start : start + n] for text, start, n in zip(texts, at, lens, strict=True)]
        got = stepped(model, tables, pages, new, list(zip(owners, lens, strict=True)))
        for expected, start, n, logits in zip(alone, at, lens, got, strict=True):
            assert n == 0 or (logits - expected[start : start + n]).abs().max() < TOLERANCE
        at = [start + n for start, n in zip(at, lens, strict=True)]


def test_rows_of_the_model_alone_are_the_same_to_the_bit(model, adapters):
    def run(owners):
        pages, lens = Pages(SMALL, 20, 4), [3, 4, 2, 3]
        tables = [BlockTable(pages.pool) for _ in lens]
        return stepped(model, tables, pages, IDS.split(lens), list(zip(owners, lens, strict=True)))

    plain, mixed = run([None] * 4), run([None, adapters[0], None, adapters[1]])
    for number in (0, 2):
        assert torch.equal(plain[number], mixed[number])
    for number in (1, 3):
        assert (plain[number] - mixed[number]).abs().max() > 1e-3


def test_runs_of_one_adapter_are_computed_together(model, adapters):
    one, two = adapters
    calls = []
    for adapter in adapters:
        for layer in adapter.layers:
            for target in lora.TARGETS:
                layer[target].register_forward_hook(
                    lambda module, arguments, out: calls.append(len(arguments[0]))
                )
    with adapted(model, [(one, 2), (two, 1), (one, 3), (None, 4), (one, 1), (two, 1)]):
        model(IDS, NoCache(SMALL, rows=2))
    assert sorted(calls) == sorted([6, 2] * 2 * SMALL.num_layers)


def test_one_adapter_may_take_all_tokens(model, adapters):
    """However many come: a prompt, then one by one."""
    expected = list(kvlab.generate(merged(model, adapters[0]), IDS, 6))
    with adapted(model, adapters[0]):
        assert list(kvlab.generate(model, IDS, 6)) == expected
    alone = list(kvlab.generate(model, IDS, 6))
    with adapted(model, None):
        assert list(kvlab.generate(model, IDS, 6)) == alone != expected


def test_a_run_of_no_tokens_is_none(model, adapters):
    before = model(IDS, NoCache(SMALL))
    with adapted(model, [(adapters[0], 0), (None, 12), (adapters[1], 0)]):
        assert torch.equal(model(IDS, NoCache(SMALL)), before)


def test_the_bill(model, adapters):
    def flops(runs):
        with kvlab.Ledger() as bill, adapted(model, runs):
            model(IDS, NoCache(SMALL))
        return bill.flops

    def products(n, rank):
        return SMALL.num_layers * sum(2 * n * rank * (20 + out) for out in (48, 16))

    plain = flops(None)
    assert flops([(None, 12)]) == plain
    assert flops([(adapters[0], 5), (None, 2), (adapters[1], 4), (adapters[0], 1)]) - plain == (
        products(6, 3) + products(4, 2)
    )
    assert flops(adapters[1]) - plain == products(12, 2)


class Seen(NoCache):
    """Notes what each layer hands to its cache."""

    def attend(self, layer, q, k, v):
        self.kv = {**getattr(self, "kv", {}), layer: (k, v)}
        return super().attend(layer, q, k, v)


def test_no_prefix_can_be_shared_between_adapters():
    """By trying, on the course's model: only layer 0's keys are alike, since k_proj and its input are."""
    model, _ = kvlab.load("tiny-gqa", dtype=torch.float64)
    ids = random_ids(9, vocab=model.config.vocab_size)
    caches = []
    for adapter in (None, *(kvlab.load_adapter(name, model) for name in ("ask", "exclaim"))):
        caches.append(Seen(model.config))
        with adapted(model, adapter):
            model(ids, caches[-1])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        for layer in range(model.config.num_layers):
            (k, v), (other_k, other_v) = caches[one].kv[layer], caches[other].kv[layer]
            assert torch.equal(k, other_k) == (layer == 0)
            for token in range(len(ids)):  # from the first token on
                assert (v[token] - other_v[token]).abs().max() > 1e-6
                assert layer == 0 or (k[token] - other_k[token]).abs().max() > 1e-6


def test_only_the_adapters_learn(model, adapters):
    for adapter in adapters:
        adapter.requires_grad_(True)
    with adapted(model, [(adapters[0], 4), (None, 3), (adapters[1], 5)]):
        model(IDS, NoCache(SMALL))[2:9].square().sum().backward()
    assert all(p.grad.abs().max() > 0 for adapter in adapters for p in adapter.parameters())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("total", [11, 13, 1, 0, 24])
def test_runs_that_do_not_add_up(model, adapters, total):
    pages = Pages(SMALL, 9, 4)
    table = BlockTable(pages.pool)
    runs = [(adapters[0], total // 2), (None, total - total // 2)]
    with pytest.raises(ValueError, match=f"runs are of {total} tokens and the model was given 12"):
        stepped(model, [table], pages, [IDS], runs)
    assert not hooks(model) and table.length == 0 and pages.layers == [None] * SMALL.num_layers
    stepped(model, [table], pages, [IDS], [(None, 12)])


REFUSED = {
    "another shape": (lambda: random_adapter(replace(SMALL, num_kv_heads=3)), ValueError, "adapter was made"),
    "as wide, but fewer layers": (
        lambda: random_adapter(replace(SMALL, num_layers=2)),
        ValueError,
        "adapter was made for a model of another shape",
    ),
    "another dtype": (
        lambda: random_adapter(dtype=torch.float32),
        TypeError,
        r"adapter is torch.float32 and the model torch.float64: use adapter.to\(model.dtype\)",
    ),
    "another device": (
        lambda: random_adapter().to("meta"),
        ValueError,
        "adapter is on meta and the model on",
    ),
    "a name": (lambda: "ask", TypeError, "adapter is str; it must be an Adapter, or None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_adapters_that_do_not_fit(model, case):
    make, error, says = REFUSED[case]
    for runs in ([(None, 4), (make(), 8)], *([make()] if case != "a name" else [])):
        with pytest.raises(error, match=says), adapted(model, runs):
            raise AssertionError("not reached")
        assert not hooks(model)
    with adapted(model, None):
        pass


@pytest.mark.parametrize(
    ("n", "error", "says"),
    [(-1, ValueError, "runs have -1 tokens"), (1.0, TypeError, "integer"), (None, TypeError, "integer")],
)
def test_counts_that_are_none(model, adapters, n, error, says):
    with pytest.raises(error, match=says):
        adapted(model, [(None, n), (adapters[0], 3)]).__enter__()


@pytest.mark.parametrize("inner", [None, [(None, 12)]])
def test_blocks_do_not_nest(model, adapters, inner):
    with adapted(model, adapters[0]):
        once = model(IDS, NoCache(SMALL))
        with pytest.raises(ValueError, match="model is adapted already"), adapted(model, inner):
            raise AssertionError("not reached")
        assert torch.equal(model(IDS, NoCache(SMALL)), once), "the outer block is still in force"
        with adapted(random_model(), adapters[0]):
            pass
    with adapted(model, adapters[1]):
        pass


class Broken(RuntimeError):
    pass


def test_an_error_in_the_block_leaves_no_hook(model, adapters):
    before = model(IDS, NoCache(SMALL))
    with pytest.raises(Broken), adapted(model, adapters[0]):
        assert len(hooks(model)) == 2 * SMALL.num_layers
        raise Broken
    assert not hooks(model) and torch.equal(model(IDS, NoCache(SMALL)), before)
    with adapted(model, adapters[0]):
        assert (model(IDS, NoCache(SMALL)) - before).abs().max() > 1e-3
    assert not hooks(model) and torch.equal(model(IDS, NoCache(SMALL)), before)


def test_an_error_on_the_way_in_leaves_no_hook(model, adapters, monkeypatch):
    last = model.layers[-1].self_attn.v_proj

    def refuse(hook):
        raise Broken

    monkeypatch.setattr(last, "register_forward_hook", refuse)
    with pytest.raises(Broken), adapted(model, adapters[0]):
        raise AssertionError("not reached")
    assert not hooks(model)
    monkeypatch.undo()
    with adapted(model, adapters[0]):
        pass


@pytest.mark.parametrize("config", [ABSORBED, NAIVE])
def test_latent_attention_is_refused_by_name(config):
    for make in (lambda: Adapter(config), lambda: adapted(random_model(config), None).__enter__()):
        with pytest.raises(ValueError, match=r"this model has latent attention \(MLA\).*no v_proj"):
            make()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"rank": 0}, ValueError, "rank is 0; it must be from 1 to the model's width, 20"),
        ({"rank": 21}, ValueError, "rank is 21; it must be from 1 to the model's width, 20"),
        ({"rank": 2.0}, TypeError, "integer"),
        ({"alpha": 0}, ValueError, "alpha is 0; it must be a number above 0"),
        ({"alpha": -1.0}, ValueError, "alpha is -1.0"),
        ({"alpha": float("nan")}, ValueError, "alpha is nan"),
        ({"alpha": float("inf")}, ValueError, "alpha is inf"),
    ],
)
def test_sizes_that_are_none(options, error, says):
    with pytest.raises(error, match=says):
        Adapter(SMALL, **options)
    Adapter(SMALL, rank=20, alpha=1)
