"""Users whose texts begin alike: what they ask, that it depends on the answers, and what is found of it."""

import pytest

from kvlab.engine import Simulation
from kvlab.engine.users import agents, chat, converse, few_shot, talk
from tests.engine.cases import VOCAB, engine

SMALL = {
    "few-shot": lambda: few_shot(questions=6, sets=2, examples=16, question=4, vocab=VOCAB),
    "chat": lambda: chat(users=3, turns=3, system=9, turn=4, vocab=VOCAB),
    "agents": lambda: agents(tasks=2, branches=3, system=12, task=5, step=3, vocab=VOCAB),
}
kinds = pytest.mark.parametrize("kind", SMALL)


@kinds
@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_the_same_is_asked_and_written_with_and_without_a_prefix_cache(kind, at_once):
    runs = {}
    for cache in (None, "radix", "hash"):
        server = engine(200, prefix_cache=cache)
        served = converse(server, SMALL[kind](), 6, at_once)
        server.check()
        runs[cache] = sorted((request.prompt, request.outputs) for request in served)
    assert runs[None] == runs["radix"] == runs["hash"]


@kinds
def test_at_most_so_many_at_once(kind):
    server = Simulation(200)
    served = converse(server, SMALL[kind](), 6, at_once=1)
    most = max(len(step.ran) for step in server.trace.steps)
    assert most == (3 if kind == "agents" else 1) and all(request.done for request in served)


def test_questions_share_one_of_the_sets():
    prompts = [prompt for prompt, _ in talk(few_shot(questions=40, sets=3, examples=50, question=8))]
    beginnings = {tuple(prompt[:25]) for prompt in prompts}
    assert len(prompts) == 40 and len(beginnings) == 3 and len(set(map(tuple, prompts))) == 40


def test_each_turn_repeats_the_conversation():
    pairs = talk(chat(users=5, turns=4, system=30, turn=10), answer=7)
    assert len(pairs) == 20
    for user in range(5):
        turns = pairs[user::5]
        for (prompt, answer), (later, _) in zip(turns, turns[1:], strict=False):
            said = [*prompt, *answer]
            assert later[: len(said)] == said and 5 <= len(later) - len(said) <= 15
    assert len({tuple(prompt[:15]) for prompt, _ in pairs}) == 1


def test_agents_branch_and_join():
    pairs = talk(agents(tasks=2, branches=3, system=20, task=6, step=5), answer=8)
    assert len(pairs) == 2 * (1 + 3 + 1)
    (task, plan), branches, (last, _) = pairs[0], pairs[2:5], pairs[8]
    common = [*task, *plan]
    assert all(prompt[: len(common)] == common for prompt, _ in [*branches, (last, None)])
    findings = [token for _, answer in branches for token in answer]
    assert last[len(common) : len(common) + len(findings)] == findings
    assert len({tuple(prompt) for prompt, _ in branches}) == 3


def test_lengths_are_means():
    lengths = [len(prompt) for prompt, _ in talk(few_shot(questions=400, sets=1, examples=1, question=40))]
    assert min(lengths) >= 21 and max(lengths) <= 61 and 39 < sum(lengths) / 400 < 43


def test_a_seed_is_the_same_again_and_another_is_not():
    for make in (few_shot, chat, agents):
        assert talk(make()) == talk(make()) != talk(make(seed=1))


def test_nobody_at_once_is_refused():
    with pytest.raises(ValueError, match="0 users at once serve nobody: give 1 or more"):
        converse(Simulation(9), chat(), 3, at_once=0)
    assert converse(Simulation(9), [], 3) == []
