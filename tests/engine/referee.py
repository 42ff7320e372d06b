"""Watches an engine: after every step, what the trace says is what happened, and nobody was passed over."""

from kvlab.paging import Log
from kvlab.paging.log import Moment


def writes(sequence):
    """It has written, and nothing but its last token is to be computed."""
    return sequence.missing == 1 and sequence.tokens != sequence.request.prompt


class Referee:
    """``step`` makes one of the engine's, and checks all that must be so whatever was asked of it."""

    def __init__(self, engine):
        self.engine, self.scheduler, self.pool = engine, engine.scheduler, engine.pool
        self.free, self.queues, self.first_come, self.failed = self.pool.num_free, {}, [], set()
        self.cache = engine.prefix_cache
        logged = self.cache is None and self.pool.num_free == self.pool.num_blocks
        self.log = Log.of(self.pool) if logged else None
        self.seen, self.moment = 0, Moment(self.pool.num_blocks, self.pool.block_size)
        self.make, plan = engine.step, self.scheduler.plan
        if self.cache is not None:
            evict, self.cache.evict = self.cache.evict, self.evict_later

        def watched():
            self.before = [(each, each.missing) for each in self.scheduler.running]
            self.decoding = {each for each in self.scheduler.running if writes(each)}
            self.plan = plan()
            self.after_planning()
            if self.cache is not None:
                self.plan.evicted = evict(self.to_evict)
                assert self.plan.evicted == self.to_evict
            return self.plan

        self.scheduler.plan = watched

    def step(self):
        record = self.make()
        assert record is self.engine.trace[-1]
        self.after(record)
        assert record.ran or self.engine.idle  # somebody always gets on
        return record

    def failing_step(self, error):
        """A step that is known to fail -> its record."""
        try:
            self.engine.step()
        except error:
            record = self.engine.trace[-1]
            self.failed.add(record.number)
            self.after(record)
            return record
        raise AssertionError("it did not fail")

    def run(self, most=3000):
        """Until everybody has ended, and nobody holds a block -> the trace."""
        while not self.engine.idle and len(self.engine.trace) < most:
            self.step()
        assert self.engine.idle and self.pool.num_held == 0
        assert self.pool.num_kept == (self.cache.num_blocks if self.cache is not None else 0)
        self.check_lives()
        return self.engine.trace

    def after_planning(self):
        """The budget, who comes first, who gives way, who is let in."""
        plan, scheduler, size = self.plan, self.scheduler, self.pool.block_size
        self.held = self.pool.num_held
        self.ran = [[each.name, n, "decode" if writes(each) else "prefill"] for each, n in plan.steps]
        running = scheduler.running
        assert sum(n for _, n in plan.steps) <= scheduler.max_batch_tokens
        assert all(1 <= n <= each.missing for each, n in plan.steps)
        kinds = [not writes(each) for each, _ in plan.steps if each not in plan.admitted]
        assert kinds == sorted(kinds), "decodes, then chunks"
        decoding = [each for each, _ in self.before if each in self.decoding and each in running]
        assert [each for each, n in plan.steps][: len(decoding)] == decoding, "every one that decodes gets on"
        wanted = sum(min(each.missing, scheduler.max_batch_tokens) for each in running)
        assert sum(n for _, n in plan.steps) == min(wanted, scheduler.max_batch_tokens), "all of the budget"
        if running:
            assert running[0] in [each for each, _ in plan.steps], "the first gets on, whoever else does"
        if self.before:
            assert running[0] is self.before[0][0], "the first is never preempted"
        gone, came = [each for each, _ in plan.preempted], [each for each, _ in self.before]
        assert gone == came[::-1][: len(gone)], "those give way who came last"
        assert running == came[: len(came) - len(gone)] + plan.admitted
        assert [stored for _, stored in plan.preempted] == [
            len(each.tokens) - missing for each, missing in self.before[::-1][: len(gone)]
        ]
        assert list(scheduler.waiting)[: len(gone)] == gone[::-1], "they wait in front, in their order"
        assert not (gone and plan.admitted) and bool(plan.short) == bool(gone)
        room = sum(each.table.needed(each.missing) for each in running)
        if plan.admitted:
            spare = scheduler.spare_blocks * (len(running) - 1)
            assert room + spare <= self.room(), "room for all tokens of all, and something to spare"
        assert plan.because == self.why_waiting(bool(gone), room, size)

    def room(self):
        return self.pool.num_free + self.pool.num_kept

    def evict_later(self, n):
        """So that the cache is looked at as it was when the plan was made."""
        self.to_evict = n
        return 0

    def next(self):
        """Whose turn it was: who finds most, of the first and those that may still overtake it."""
        waiting, limit = list(self.scheduler.waiting), self.scheduler.overtaking
        tired = [place for place, each in enumerate(waiting) if each.overtaken >= limit]
        turn = waiting[: min([limit, *tired[:1]]) + 1]
        found = [self.cache.peek(each.tokens, each.request.namespace) if limit else 0 for each in turn]
        return turn[found.index(max(found))]

    def why_waiting(self, preempted, room, size):
        """Why the first that waits was not let in, worked out again."""
        scheduler = self.scheduler
        if not scheduler.waiting:
            return ""
        if preempted:
            return "preemption"
        first = self.next()
        if sum(each.places for each in [*scheduler.running, first]) > scheduler.max_batch_tokens:
            return "texts"
        if sum(n for _, n in self.plan.steps) == scheduler.max_batch_tokens:
            return "budget"
        found, unused = self.found(first)
        room += -(-len(first.tokens) // size) - found + scheduler.spare_blocks * len(scheduler.running)
        assert room > self.room() - unused, "it had no reason to wait"
        return "blocks"

    def found(self, sequence):
        """Blocks that a prefix cache has of its text, and how many of these nobody uses."""
        if self.cache is None:
            return 0, 0
        found = self.cache.match(sequence.tokens, sequence.request.namespace, len(sequence.tokens) - 1)
        return len(found.blocks), sum(not self.pool.count(block) for block in found.blocks)

    def after(self, record):
        engine, pool = self.engine, self.pool
        engine.check()
        assert record.number == len(engine.trace) - 1 and record.tokens <= self.scheduler.max_batch_tokens
        assert min(record.taken, record.freed, record.held, record.short, record.waiting) >= 0
        assert self.free - record.taken + record.freed == pool.num_free
        assert pool.num_held <= pool.num_blocks and record.held <= pool.num_blocks
        self.free = pool.num_free
        if self.log is not None:
            self.compare_log(record)
        most = self.held + record.taken if self.ran else 0
        if record.held != most:  # a block that is copied before it is written may be left to the cache, kept
            assert self.cache is not None and self.held <= record.held < most
        assert record.ran == self.ran or (record.ran == [] and record.number in self.failed)
        assert record.waiting == len(self.scheduler.waiting)
        assert [each.name for each in self.plan.admitted] == record.admitted
        assert [each.name for each, _ in self.plan.preempted] == [name for name, _ in record.preempted]
        for name, _ in record.preempted:  # somebody who came before gets on in its place
            assert record.number in self.failed or any(
                self.came(ran) < self.came(name) for ran, _, _ in record.ran
            )
        new = [each.request for each in self.plan.admitted if each.request not in self.first_come]
        self.first_come += new
        numbers = [request.number for request in self.first_come]
        for place, number in enumerate(numbers):
            overtook = sum(other > number for other in numbers[:place])
            assert overtook <= self.scheduler.overtaking, "first come, first served, but for so many"
        assert [name for name, *_ in record.found] == (record.admitted if self.cache is not None else [])
        assert all(0 <= found < of for _, found, of in record.found), "the last token is computed, always"
        ended = {name for name, why in record.ended if why != "cancelled"}
        running = {each.name for each in self.scheduler.running} | ended
        waiting = {each.name for each in self.scheduler.waiting}
        self.queues[record.number] = waiting, running - set(record.forked)

    def compare_log(self, record):
        """What the blocks' own log says of the time since the last step, cancellations included."""
        events, self.seen = self.log.events[self.seen :], len(self.log.events)
        kinds = [kind for kind, *_ in events]
        assert record.taken == kinds.count("allocated") + kinds.count("copied")
        assert record.freed == kinds.count("freed")
        for event in events:
            self.moment.apply(event)
        tables = [each.table for each in self.scheduler.running]
        assert self.moment.tables == {table.name: table.blocks for table in tables}
        assert self.moment.lengths == {table.name: table.length for table in tables}

    def came(self, name):
        """Where in the queue of those who ran before the step somebody stood."""
        order = [each.name for each, _ in self.before] + [each.name for each in self.plan.admitted]
        return order.index(name)

    def check_lives(self):
        """The trace's replay is what the queues were."""
        lives = self.engine.trace.lives()
        for number, (waiting, running) in self.queues.items():
            now = {name: life[number][0] for name, life in lives.items() if number in life}
            assert {name for name, what in now.items() if what == "waiting"} == waiting
            assert {name for name, what in now.items() if what != "waiting"} == running
            ran = {name: (what, n) for name, n, what in self.engine.trace[number].ran}
            assert ran == {name: lives[name][number] for name in ran}
            assert {now[name] for name in now.keys() - ran.keys()} <= {"waiting", "paused"}
