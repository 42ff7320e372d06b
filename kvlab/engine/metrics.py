"""How an engine has served: what its users felt, and how well it used its budget and its pool."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Of some seconds: the one in the middle, the one that 9 in 10 do not exceed, and the longest."""

    median: float
    p90: float
    longest: float

    @classmethod
    def of(cls, values):
        """None where there are no values."""
        ordered = sorted(value for value in values if value is not None)
        if not ordered:
            return None
        return cls(*(ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 1)))


@dataclass(frozen=True)
class Metrics:
    """The four spreads are over requests that have come so far, None where none has."""

    finished: int  # requests
    steps: int  # that computed something
    written: int  # tokens, of all texts
    computed: int  # tokens that went through the model
    given_up: int  # stored tokens that preemption gave up, to be found or computed again
    sought: int  # tokens of texts for which a prefix cache was asked, when they were admitted
    found: int  # tokens of these that it had
    evicted: int  # blocks of it
    loaded: int  # tokens that came from the host's memory
    seconds: float  # from the first submission to the end of the last step
    budget_used: float  # tokens of a step, of those that it may have: mean over steps
    pool_used: float  # blocks held while a step is computed, of all: mean over steps
    running: float  # texts in a step: mean
    queueing: Spread | None  # from the submission to the admission
    ttft: Spread | None  # time to first token
    tpot: Spread | None  # time per further token
    latency: Spread | None  # from the submission to the end

    @property
    def throughput(self):
        """Tokens written a second."""
        return self.written / self.seconds if self.seconds else 0.0

    @property
    def hit_rate(self):
        """Tokens that the prefix cache had, of those it was asked for: 0 to 1."""
        return self.found / self.sought if self.sought else 0.0

    @classmethod
    def of(cls, engine):
        trace, requests = engine.trace, engine.requests
        steps = [step for step in trace.steps if step.ran]
        count, computed = max(len(steps), 1), sum(step.tokens for step in steps)
        first = min((request.times["submitted"] for request in requests), default=0.0)
        last = steps[-1].began + steps[-1].seconds if steps else first
        return cls(
            finished=sum(request.status == "finished" for request in requests),
            steps=len(steps),
            written=sum(len(output) for request in requests for output in request.outputs),
            computed=computed,
            given_up=sum(tokens for step in trace.steps for _, tokens in step.preempted),
            sought=sum(length for step in trace.steps for _, _, length in step.found),
            found=sum(found for step in trace.steps for _, found, _ in step.found),
            evicted=sum(step.evicted for step in trace.steps),
            loaded=sum(tokens for step in trace.steps for _, tokens in step.loaded),
            seconds=last - first,
            budget_used=computed / (count * trace.max_batch_tokens),
            pool_used=sum(step.held for step in steps) / (count * trace.num_blocks),
            running=sum(len(step.ran) for step in steps) / count,
            queueing=Spread.of(request.queueing for request in requests),
            ttft=Spread.of(request.ttft for request in requests),
            tpot=Spread.of(request.tpot for request in requests),
            latency=Spread.of(request.latency for request in requests),
        )
