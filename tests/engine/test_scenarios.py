"""What has gone wrong in real engines: each moment at which a text can lose its blocks, come back, or end."""

import pytest

from tests.engine.cases import LETTERS, Watched, alone, engine, prompt
from tests.engine.referee import Referee


def served(referee, *watched):
    """Run to the end and compare each with what it is alone -> the trace."""
    trace = referee.run()
    for each in watched:
        each.compare()
    return trace


def two(first=(5, 20), second=(5, 20), **options):
    """An old text and a young one, in a pool with room for one and a half of them."""
    server = engine(9)
    old = Watched(server, prompt(first[0]), first[1])
    return Referee(server), old, Watched(server, prompt(second[0], 1), second[1], **options)


def preempted_at(trace, name):
    return [step.number for step in trace.steps for who, _ in step.preempted if who == name]


def test_preempted_anywhere_in_a_block():
    """One token past the boundary of a block, at it, and before it."""
    found = set()
    for first, second in [(4, 6), (5, 6), (6, 6), (6, 1)]:
        referee, old, young = two((first, 21), (second, 21))
        trace = served(referee, old, young)
        assert old.preempted == 0 < young.preempted
        found |= {stored % 4 for step in trace.steps for _, stored in step.preempted}
    assert found == {0, 1, 2, 3}


def test_preempted_twice():
    server = engine(8)
    texts = [Watched(server, prompt(n, n), new) for n, new in ((3, 9), (3, 20), (3, 16))]
    referee = Referee(server)
    trace = served(referee, *texts)
    assert texts[2].preempted == len(preempted_at(trace, 2)) >= 2
    lives = trace.lives()[2]
    for number in preempted_at(trace, 2):
        assert lives[number] == ("waiting", 0)


MOMENTS = {
    "waiting": lambda each: each.status == "waiting" and not each.preempted and "admitted" not in each.steps,
    "in the middle of its prompt": lambda each: 0 < each.sequences[0].stored < len(each.ids),
    "written": lambda each: len(each.outputs[0]) > 2,
    "preempted": lambda each: (
        any(one.table is None and not one.ended for one in each.sequences) and each.preempted
    ),
    "resumed": lambda each: each.preempted and all(one.table or one.ended for one in each.sequences),
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("moment", MOMENTS)
def test_cancelled_at_any_moment(moment, n):
    server = engine(9, max_batch_tokens=7, tokenizer=LETTERS)
    other = Watched(server, prompt(5), 20)
    Referee.step(referee := Referee(server))
    gone = Watched(server, prompt(11, 1), 11, n=n, temperature=0.7, seed=3)
    behind = Watched(server, prompt(6, 2), 9)
    while not MOMENTS[moment](gone):
        assert not gone.done, "the moment has come"
        referee.step()
    runs = [one for one in gone.sequences if one.table]
    assert moment != "preempted" or n == 1 or 0 < len(runs) < n, "some of its texts run, some do not"
    held, before = server.pool.num_held, [list(output) for output in gone.outputs]
    why = [each or "cancelled" for each in gone.why]
    gone.cancel()
    server.check()
    assert (gone.status, gone.outputs, gone.why) == ("cancelled", before, why) and "cancelled" in why
    assert (server.pool.num_held < held) == bool(runs)
    with pytest.raises(ValueError, match="request 1 has ended already: it is cancelled"):
        gone.cancel()
    served(referee, other, gone, behind)


def test_ending_in_the_step_in_which_another_is_preempted():
    referee, old, young = two()
    number = preempted_at(served(referee, old, young), 1)[0]
    written = number + 1  # one in each step
    referee, old, young = two((5, written))
    trace = served(referee, old, young)
    assert trace[number].ended == [[0, "length"]] and trace[number].preempted[0][0] == 1
    assert trace[number + 1].admitted == [1], "it comes back at once"


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("why", ["length", "stop token", "stop string"])
def test_ending_soon_after_it_came_back(why, later):
    """In the step in which it is computed again, and in the next ones."""
    referee, old, young = two(second=(5, 24))
    trace = served(referee, old, young)
    back = [step.number for step in trace.steps if step.admitted == [1]][-1]
    assert len(preempted_at(trace, 1)) == 1
    at = preempted_at(trace, 1)[0] + later  # the place of the token that is written then
    drawn = {"temperature": 5.0, "seed": 0}
    while (tokens := alone(prompt(5, 1), 24, **drawn)[0]).index(tokens[at]) < at:
        drawn["seed"] += 1  # until that token has not been written before
    options = {
        "length": {},
        "stop token": {"stop": (tokens[at],)},
        "stop string": {"stop_strings": (LETTERS.decode(tokens[: at + 1]),)},
    }[why]
    server = engine(9, tokenizer=LETTERS)
    old = Watched(server, prompt(5), 20)
    young = Watched(server, prompt(5, 1), 24 if options else at + 1, **drawn, **options)
    trace = served(Referee(server), old, young)
    assert young.preempted == 1 and young.steps["ended"] == back + later
    assert young.why == [why.split()[0]]


def test_two_preempted_in_one_step_keep_their_order_and_come_before_later_ones():
    server = engine(4)
    texts = [Watched(server, prompt(3, i), 6 + i) for i in range(4)]
    referee = Referee(server)
    for _ in range(3):
        step = referee.step()
    assert step.short == 4, "each needed one more, and none was free"
    assert step.preempted == [[3, 4], [2, 4]] and [each.name for each in server.scheduler.waiting] == [2, 3]
    texts.append(Watched(server, prompt(1, 4), 1))  # it would fit at once
    trace = served(referee, *texts)
    admitted = [name for step in trace.steps for name in step.admitted]
    assert admitted[:6] == [0, 1, 2, 3, 2, 3] and admitted.index(4) == len(admitted) - 1


def test_some_of_n_texts_preempted():
    server = engine(13)
    other = Watched(server, prompt(6), 9)
    several = Watched(server, prompt(7, 1), 17, n=4, temperature=0.9, seed=8)
    trace = served(Referee(server), other, several)
    names = [name for step in trace.steps for name, _ in step.preempted]
    assert "1.3" in names and "1.0" not in names and several.preempted == len(names)
    assert len({tuple(output) for output in several.outputs}) == 4


def test_n_texts_preempted_before_their_prompt_is_complete():
    """Then they are still one, and are forked when it is."""
    server = engine(6, max_batch_tokens=4)
    old = Watched(server, prompt(4), 12)
    referee = Referee(server)
    referee.step()
    several = Watched(server, prompt(16, 1), 3, n=3, temperature=0.9, seed=8)
    trace = served(referee, old, several)
    assert preempted_at(trace, "1.0") and [step.forked for step in trace.steps if step.forked] == [
        ["1.1", "1.2"]
    ]


@pytest.mark.parametrize(("n", "budget"), [(5, 5), (1, 1), (2, 3)])
def test_as_many_texts_as_a_step_has_tokens(n, budget):
    server = engine(40, max_batch_tokens=budget)
    options = {"n": n, "temperature": 0.9, "seed": 1}
    first, second = (Watched(server, prompt(5, i), 6, **options) for i in range(2))
    trace = served(Referee(server), first, second)
    assert max(step.tokens for step in trace.steps) == budget
    assert {step.because for step in trace.steps if step.waiting} == {"texts"}
    assert second.steps["admitted"] == first.steps["ended"] + 1


@pytest.mark.parametrize("model", ["plain", "windows", "latent"])
def test_blocks_of_one_token(model):
    server = engine(24, 1, model=model)
    texts = [Watched(server, prompt(4 + i, i), 9, model=model) for i in range(4)]
    texts.append(Watched(server, prompt(5, 9), 7, model=model, n=3, temperature=0.8, seed=4))
    trace = served(Referee(server), *texts)
    assert any(step.preempted for step in trace.steps)


@pytest.mark.parametrize(("tokens", "new"), [(20, 1), (19, 2), (1, 20)])
@pytest.mark.parametrize("budget", [3, 64])
@pytest.mark.parametrize("spare", [0, 2])
def test_a_text_of_exactly_the_pool(tokens, new, budget, spare):
    server = engine(5, 4, budget, spare)
    texts = [Watched(server, prompt(tokens, i), new) for i in range(3)]
    trace = served(Referee(server), *texts)
    assert max(step.held for step in trace.steps) == 5
    with pytest.raises(ValueError, match="21 slots, but the pool has 20"):
        server.submit(prompt(tokens), new + 1)


def test_long_prompts_do_not_hold_up_those_that_write():
    server = engine(99, max_batch_tokens=6)
    writing = [Watched(server, prompt(2, i), 30) for i in range(3)]
    referee = Referee(server)
    for _ in range(2):
        referee.step()
    long = [Watched(server, prompt(40, 7), 3), Watched(server, prompt(25, 8), 3)]
    trace = served(referee, *writing, *long)
    for each in writing:
        times = [number for number, (what, _) in trace.lives()[each.number].items() if what == "decode"]
        assert times == list(range(1, 30)), "a token in every step"
    chunks = [n for step in trace.steps for name, n, what in step.ran if name == 3 and what == "prefill"]
    assert len(chunks) > 10 and sum(chunks) in (39, 40)
    assert any(step.because == "budget" for step in trace.steps)
    assert long[1].steps["admitted"] > long[0].steps["admitted"]


def test_more_blocks_to_spare_means_fewer_preempted():
    given_up = []
    for spare in (0, 1, 5):
        server = engine(14, spare_blocks=spare)
        texts = [Watched(server, prompt(5, i), 14) for i in range(6)]
        trace = served(Referee(server), *texts)
        given_up.append(sum(stored for step in trace.steps for _, stored in step.preempted))
    assert given_up[0] > given_up[1] > given_up[2] == 0


def test_an_engine_lives_on_when_all_were_cancelled():
    server = engine(9, max_batch_tokens=7)
    referee = Referee(server)
    for seed in range(3):
        texts = [Watched(server, prompt(9, 10 * seed + i), 9) for i in range(4)]
        for _ in range(3 * seed):
            referee.step()
        for each in texts:
            each.cancel()
        assert server.idle and server.pool.num_free == 9
        referee.step()
    last = Watched(server, prompt(9), 9)
    served(referee, last)
    assert last.outputs == [alone(prompt(9), 9)[0]]
