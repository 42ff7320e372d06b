"""A step that fails or is interrupted, anywhere: nobody's text is lost, and the trace goes on."""

import pytest

from kvlab.generation.sampling import Sampler
from tests.engine.cases import LETTERS, Watched, engine, failing, prompt
from tests.engine.referee import Referee

PLACES = [0, 1, "behind", "sampling"]


def crowd(server):
    """Long and short prompts, one of several texts, and more of them than the pool has room for."""
    drawn = {"temperature": 0.9, "seed": 2}
    texts = [Watched(server, prompt(n, n), 9) for n in (5, 13, 6)]
    texts.append(Watched(server, prompt(6, 3), 8, n=3, **drawn))
    texts.append(Watched(server, prompt(1, 4), 9, stop_strings=("ab", "k"), **drawn))
    return texts


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", PLACES)
def test_every_step_fails_once(where, error):
    server = engine(11, max_batch_tokens=8, tokenizer=LETTERS)
    texts, referee = crowd(server), Referee(server)
    while not server.idle:
        stored = sum(each.stored for each in server.scheduler.running)
        with failing(server, where, error):
            failed = referee.failing_step(error)
        if where != "sampling":
            assert failed.ran == failed.ended == []
            left = sum(each.stored for each in server.scheduler.running)
            assert left <= stored or where == "behind"  # chunks that were stored are
        referee.step()
    trace = referee.run()
    for each in texts:
        each.compare()
    assert any(step.preempted for step in trace.steps) and any(step.forked for step in trace.steps)


@pytest.mark.parametrize("where", PLACES)
def test_cancelled_after_the_failure(where):
    """What the next step would have done again is gone, and another's blocks may be free."""
    for number in range(1, 14, 3):
        server = engine(11, max_batch_tokens=8, tokenizer=LETTERS)
        texts, referee = crowd(server), Referee(server)
        for _ in range(number):
            referee.step()
        with failing(server, where, RuntimeError):
            referee.failing_step(RuntimeError)
        victim = texts[number % len(texts)]
        if not victim.done:
            victim.cancel()
        referee.run()
        for each in texts:
            each.compare()


def test_a_copy_that_was_made_for_a_step_that_failed_is_counted():
    server = engine(20)
    text, referee = Watched(server, prompt(6), 5, n=2, temperature=0.9, seed=1), Referee(server)
    referee.step()
    with failing(server, 0, RuntimeError):
        failed = referee.failing_step(RuntimeError)
    assert (failed.taken, failed.freed, server.pool.num_held) == (1, 0, 3)
    again = referee.step()
    assert (again.taken, again.freed) == (0, 0)
    referee.run()
    text.compare()


def test_a_tokenizer_that_fails_at_the_last_token():
    """The token is not counted, so that the text ends where it should."""

    class Failing:
        def decode(self, ids):
            if len(ids) == 4 and not self.failed:
                self.failed = True
                raise KeyboardInterrupt
            return LETTERS.decode(ids)

    Failing.failed = False
    server = engine(20, tokenizer=Failing())
    text, referee = Watched(server, prompt(6), 4, stop_strings=("never",)), Referee(server)
    for _ in range(3):
        referee.step()
    referee.failing_step(KeyboardInterrupt)
    assert len(text.outputs[0]) == 3
    referee.run()
    text.rows[0].pop(3)  # the same token was picked twice
    text.compare()


def test_numbers_that_are_none_are_refused_and_others_are_served_when_that_one_is_gone():
    server = engine(20)
    first, bad, last = (Watched(server, prompt(6, i), 5) for i in range(3))
    referee = Referee(server)
    bad.samplers[0].pick = lambda row: Sampler.pick(bad.samplers[0], row * float("nan"))
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN"):
            server.step()
        referee.after(server.trace[-1])
    assert [len(each.outputs[0]) for each in (first, bad, last)] == [2, 0, 0]
    bad.cancel()
    referee.run()
    for each in (first, bad, last):
        each.compare()
