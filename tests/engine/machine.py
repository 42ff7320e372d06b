"""Requests that come, run, fork, are preempted, cancelled and end in any order, in steps that may fail.

A referee watches every step; the oracle of a text is the one that ``generate`` writes alone.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.cases import LETTERS, VOCAB, Watched, engine, failing
from tests.engine.referee import Referee

strings = st.lists(st.text("abcé ", min_size=1, max_size=3), max_size=2)
seeds = st.integers(0, 3)
samplings = st.just({}) | st.builds(dict, temperature=st.sampled_from([0.7, 3.0]), seed=seeds)
shaped = st.builds(dict, temperature=st.just(2.0), seed=seeds, top_k=st.just(5), top_p=st.just(0.9))


class EngineMachine(RuleBasedStateMachine):
    prefix_cache = None
    steps = preemptions = failures = found = evicted = 0  # of all runs together

    @initialize(
        blocks=st.integers(6, 14),
        size=st.sampled_from([1, 3, 4]),
        budget=st.integers(1, 20),
        spare=st.integers(0, 2),
        model=st.sampled_from(["plain", "plain", "windows", "latent"]),
        overtaking=st.integers(0, 3),
    )
    def begin(self, blocks, size, budget, spare, model, overtaking):
        options = {"tokenizer": LETTERS, "prefix_cache": self.prefix_cache}
        if self.prefix_cache is not None:
            options["overtaking"] = overtaking
        self.model = model
        self.server = engine(blocks * 4 // size, size, budget, spare, model, **options)
        self.referee, self.texts, self.streams = Referee(self.server), [], []

    @rule(
        ids=st.lists(st.integers(0, 3), min_size=1, max_size=14),
        new=st.integers(1, 12),
        n=st.sampled_from([1, 1, 2, 3]),
        stop=st.sets(st.integers(0, VOCAB - 1), max_size=2),
        stop_strings=strings,
        sampling=samplings | shaped,
        data=st.data(),
    )
    def submit(self, ids, new, n, stop, stop_strings, sampling, data):
        server = self.server
        room = server.pool.num_blocks * server.pool.block_size
        if server.requests and data.draw(st.booleans()):  # it goes on where an earlier one was once
            earlier = data.draw(st.sampled_from(server.requests))
            whole = [*earlier.prompt, *earlier.outputs[0]]
            ids = [*whole[: data.draw(st.integers(0, len(whole)))], *ids][: min(24, room)]
        new = min(new, room - len(ids) + 1)
        n = min(n, server.scheduler.max_batch_tokens)
        options = {"n": n, "stop": stop, "stop_strings": stop_strings} | sampling
        if self.prefix_cache is not None:
            options["salt"] = data.draw(st.sampled_from([None, None, "a"]))
        self.texts.append(Watched(server, ids, new, model=self.model, **options))

    @rule(steps=st.integers(1, 4))
    def step(self, steps):
        for _ in range(steps):
            self.referee.step()

    @precondition(lambda self: not self.server.idle)
    @rule(
        where=st.sampled_from([0, 1, "behind", "sampling"]),
        error=st.sampled_from([KeyboardInterrupt, ValueError]),
    )
    def fail(self, where, error):
        with failing(self.server, where, error):
            self.referee.failing_step(error)
        type(self).failures += 1

    @precondition(lambda self: any(not each.done for each in self.texts))
    @rule(data=st.data())
    def cancel(self, data):
        data.draw(st.sampled_from([each for each in self.texts if not each.done])).cancel()

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def open_stream(self, data):
        each = data.draw(st.sampled_from(self.texts))
        index = data.draw(st.integers(0, each.n - 1))
        self.streams.append((each, index, self.server.stream_text(each.request, index), []))

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def read_on(self, data):
        """The steps that it makes are the referee's."""
        self.server.step = self.referee.step
        try:
            _, _, stream, pieces = data.draw(st.sampled_from(self.streams))
            pieces += [piece for piece in [next(stream, "")] if piece]
        finally:
            del self.server.step

    @invariant()
    def everything_is_in_order(self):
        self.server.check()
        for each in [each for each in self.texts if each.done]:
            each.compare()
            self.texts.remove(each)
        for each, index, _, pieces in self.streams:
            assert each.texts[index].startswith("".join(pieces))

    def teardown(self):
        if not hasattr(self, "server"):
            return
        self.referee.run()
        self.everything_is_in_order()
        assert not self.texts
        for each, index, stream, pieces in self.streams:
            assert "".join([*pieces, *stream]) == each.texts[index]
        metrics, kind = self.server.metrics(), type(self)
        kind.steps += len(self.server.trace)
        kind.preemptions += sum(len(step.preempted) for step in self.server.trace.steps)
        kind.found, kind.evicted = kind.found + metrics.found, kind.evicted + metrics.evicted


class RadixMachine(EngineMachine):
    prefix_cache = "radix"


class HashMachine(EngineMachine):
    prefix_cache = "hash"
