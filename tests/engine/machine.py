"""Requests that come, run, fork, are preempted, cancelled and end in any order, checked after every step."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kvlab
from kvlab.engine import Engine
from tests.models import SMALL, random_model

CONFIG = replace(SMALL, num_layers=2)
MODEL = random_model(CONFIG)


class EngineMachine(RuleBasedStateMachine):
    """The oracle of a text is the one that ``generate`` writes alone."""

    @initialize(
        blocks=st.integers(6, 14),
        size=st.sampled_from([1, 3, 4]),
        budget=st.integers(3, 20),
        spare=st.integers(0, 2),
    )
    def begin(self, blocks, size, budget, spare):
        self.engine = Engine(MODEL, blocks * 4 // size, size, budget, spare)
        self.wanted, self.waited = {}, {}

    @rule(data=st.data())
    def submit(self, data):
        room = self.engine.pool.num_blocks * self.engine.pool.block_size
        prompt = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=min(14, room)))
        new = data.draw(st.integers(1, min(12, room - len(prompt) + 1)))
        n = data.draw(st.integers(1, min(3, self.engine.scheduler.max_batch_tokens)))
        options = {"temperature": 1.0, "seed": data.draw(st.integers(0, 99))} if n > 1 else {}
        stop = data.draw(st.sets(st.integers(0, CONFIG.vocab_size - 1), max_size=4))
        request = self.engine.submit(prompt, new, n=n, stop=stop, **options)
        self.wanted[request] = prompt, new, stop, options

    @rule()
    def step(self):
        record = self.engine.step()
        assert record.tokens <= self.engine.scheduler.max_batch_tokens
        assert record.tokens or self.engine.idle  # somebody always gets on

    @precondition(lambda self: any(not request.done for request in self.wanted))
    @rule(data=st.data())
    def cancel(self, data):
        self.engine.cancel(data.draw(st.sampled_from([each for each in self.wanted if not each.done])))

    @invariant()
    def everything_is_in_order(self):
        if not hasattr(self, "engine"):
            return
        self.engine.check()
        for request in [each for each in self.wanted if each.done]:
            self.compare(request, *self.wanted.pop(request))

    def compare(self, request, prompt, new, stop, options):
        for i, written in enumerate(request.outputs):
            more = options | ({"seed": options["seed"] + i} if options else {})
            alone = list(kvlab.generate(MODEL, prompt, new, stop=stop, **more))
            assert written == alone[: len(written)]
            assert request.status == "cancelled" or len(written) == len(alone)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        left = sum(new for _, new, _, _ in self.wanted.values()) * 3
        for _ in range(20 * (left + len(self.wanted) * 20)):
            if self.engine.idle:
                break
            self.step()
            self.everything_is_in_order()
        assert self.engine.idle and not self.wanted
        assert self.engine.pool.num_free == self.engine.pool.num_blocks
