"""The engine: requests come at any time, each step computes one packed batch for all that run.

(Orca, Yu et al. 2022; PagedAttention, Kwon et al. 2023, sections 4.3 to 4.5.)
"""

import time
from contextlib import nullcontext
from itertools import chain

import torch

from kvlab.caches import HostTier, PagedStep, Pages
from kvlab.caches.base import CacheOverflow
from kvlab.engine.metrics import Metrics
from kvlab.engine.request import Request, Sequence
from kvlab.engine.scheduler import Scheduler
from kvlab.engine.stopping import Stop
from kvlab.engine.trace import Step, Trace
from kvlab.generation.arguments import checked_prompt, whole
from kvlab.generation.sampling import Sampler
from kvlab.model.lora import adapted, is_adapted
from kvlab.paging import BlockHashes, RadixTree

PREFIX_CACHES = {"radix": RadixTree, "hash": BlockHashes}


class Engine:
    """Serves requests with one model and one pool.

    num_blocks, block_size: of the pool. max_batch_tokens: new tokens of one step, all requests together; it
    bounds how long a step takes, and how many texts can be written at a time. spare_blocks: free blocks that
    are left for each running text when another one is admitted. tokenizer: for texts and stop strings.
    prefix_cache: "radix" or "hash" keeps what was computed, for texts that begin alike; None forgets it.
    overtaking: so many that came later may be admitted before a request, if more of their text is cached.
    """

    def __init__(
        self,
        model,
        num_blocks,
        block_size=16,
        max_batch_tokens=512,
        spare_blocks=1,
        tokenizer=None,
        prefix_cache=None,
        overtaking=0,
    ):
        if not hasattr(model, "config"):
            raise TypeError(f"model is {type(model).__name__}; kvlab.load gives two things: model, tokenizer")
        if tokenizer is not None and not hasattr(tokenizer, "decode"):
            raise TypeError(
                f"tokenizer is {type(tokenizer).__name__}; it must have decode(ids), as kvlab's do"
            )
        num_blocks = whole("num_blocks", num_blocks, at_least=1)
        block_size = whole("block_size", block_size, at_least=1)
        max_batch_tokens = whole("max_batch_tokens", max_batch_tokens, at_least=1)
        spare_blocks = whole("spare_blocks", spare_blocks, at_least=0)
        overtaking = whole("overtaking", overtaking, at_least=0)
        if prefix_cache not in (None, *PREFIX_CACHES):
            raise ValueError(f"prefix_cache is {prefix_cache!r}; it is 'radix', 'hash' or None")
        if overtaking and prefix_cache is None:
            raise ValueError(f"overtaking is {overtaking}, and there is no prefix cache to go by: give one")
        self.model, self.tokenizer = model, tokenizer
        self.pages = Pages(model.config, num_blocks, block_size)
        self.prefix_cache = prefix_cache and PREFIX_CACHES[prefix_cache](self.pool)
        self.scheduler = Scheduler(self.pool, max_batch_tokens, spare_blocks, self.prefix_cache, overtaking)
        self.trace, self.requests = Trace(num_blocks, block_size, max_batch_tokens), []
        self._made, self._record, self._free = self.clock(), Step(0), num_blocks

    clock = staticmethod(time.perf_counter)
    wait = staticmethod(time.sleep)

    @property
    def now(self):
        """Seconds since the engine was made."""
        return self.clock() - self._made

    @property
    def pool(self):
        return self.pages.pool

    @property
    def idle(self):
        """Is nobody waiting and nobody running?"""
        return not (self.scheduler.waiting or self.scheduler.running)

    def submit(
        self,
        prompt_ids,
        max_new_tokens=32,
        *,
        n=1,
        temperature=0.0,
        top_k=None,
        top_p=None,
        seed=None,
        stop=(),
        stop_strings=(),
        adapter=None,
        salt=None,
    ):
        """Queue a request -> :class:`Request`. Text number i of its n draws with ``seed + i``.

        stop_strings: one or several; a text ends when it contains one, and ``texts`` has what is before it.
        adapter: a :class:`~kvlab.model.lora.Adapter` of this model; a step may have many.
        Its weights must not change as long as a prefix cache has keys of it.
        salt: a string; texts of different salts share nothing in a prefix cache, nor do those of different
        adapters.
        The other arguments are those of :func:`~kvlab.generate`. Raises ValueError or TypeError for what is
        wrong with them, and for a text that is longer than the model or the pool; nothing is queued then.
        """
        prompt = checked_prompt(self.model, prompt_ids)
        max_new_tokens = whole("max_new_tokens", max_new_tokens, at_least=1)
        n = whole("n", n, at_least=1)
        self._check_fits(len(prompt), max_new_tokens, n)
        seeds = [None if seed is None else whole("seed", seed, at_least=0) + i for i in range(n)]
        samplers = [Sampler(temperature, top_k, top_p, each) for each in seeds]
        stop = Stop(stop, stop_strings, self.model.config.vocab_size, self.tokenizer)
        if not (salt is None or isinstance(salt, str)):
            raise TypeError(f"salt is {salt!r}; it must be a string, or None")
        if adapter is not None:
            with adapted(self.model, [(adapter, 1)]):
                pass  # it fits
        request = Request(len(self.requests), prompt, max_new_tokens, samplers, stop, adapter, salt)
        first = request.sequences[0]
        request.note("submitted", len(self.trace), self.now)
        self._record.submitted.append([first.name, len(prompt), max_new_tokens, n])
        self.requests.append(request)
        self.scheduler.waiting.append(first)
        return request

    def spill_to(self, host):
        """From now on full blocks that are let go of go to a :class:`~kvlab.caches.HostTier`, too, and come
        back from there when the prefix cache has lost them. ValueError for a tier of other pages."""
        if not isinstance(host, HostTier):
            raise TypeError(f"host is {type(host).__name__}; make a HostTier(engine.pages, num_blocks)")
        if self.prefix_cache is None:
            raise ValueError("there is no prefix cache, behind which a host's memory could stand: give one")
        if host.pages is not self.pages:
            raise ValueError("this tier is of other pages: make it with HostTier(engine.pages, num_blocks)")
        self.scheduler.host = host

    def cancel(self, request):
        """End a request now, whatever its state; what it has written stays in ``outputs``.

        Raises ValueError for one that has ended already, or is not of this engine.
        """
        self._check_own(request)
        if request.done:
            raise ValueError(f"request {request.number} has ended already: it is {request.status}")
        for sequence in request.sequences:
            if not sequence.ended:
                self._end(sequence, "cancelled", self._record)
        request.why = [why or "cancelled" for why in request.why]
        request.note("ended", len(self.trace), self.now)

    def run(self):
        """Steps until everybody is done -> the trace."""
        while not self.idle:
            self.step()
        return self.trace

    def stream(self, request, index=0):
        """The tokens of one of its texts as they are written: an iterator that makes the engine's steps."""
        self._check_text(request, index)
        return chain.from_iterable(self._more(request, index, lambda: request.outputs[index]))

    def stream_text(self, request, index=0):
        """Its text as it is written, in pieces: never half a character, or what may become a stop string."""
        self._check_text(request, index)
        stop, tokens = request.stop, request.outputs[index]
        stop.cut(tokens)  # where there is no tokenizer it says so now
        return self._more(request, index, lambda: (stop.cut if request.why[index] else stop.sure)(tokens))

    def step(self):
        """One step for everybody -> its :class:`Step`; an empty one where there is nothing to do.

        Where the model fails, or is interrupted, nobody's text is lost: the next step does what this one did
        not. The trace has what it did.
        """
        record = self._record
        record.began = self.now
        try:
            try:
                plan = self.scheduler.plan()
            finally:
                self._note(self.scheduler.planned, record)
            if plan.steps:
                self._compute(plan.steps, record)
        except BaseException:
            self.scheduler.step_back()
            raise
        finally:
            record.freed = record.taken + self.pool.num_free - self._free
            record.waiting = len(self.scheduler.waiting)
            record.seconds = self.now - record.began
            self.trace.steps.append(record)
            self._record, self._free = Step(len(self.trace)), self.pool.num_free
        return record

    def _note(self, plan, record):
        """What was planned, as far as it came."""
        record.admitted = [each.name for each in plan.admitted]
        record.loaded = [[each.name, tokens] for each, tokens in plan.loaded if tokens]
        record.taken = sum(tokens for _, tokens in plan.loaded) // self.pool.block_size
        record.preempted = [[each.name, stored] for each, stored in plan.preempted]
        record.short, record.because, record.evicted = plan.short, plan.because, plan.evicted
        for each, _ in plan.preempted:
            each.request.preempted += 1
        for each in plan.admitted:
            if "admitted" not in each.request.steps:
                each.request.cached_tokens = each.stored
            each.request.note("admitted", record.number, self.now)
            if self.prefix_cache is not None:
                record.found.append([each.name, each.table.found, len(each.tokens)])

    def metrics(self):
        """How it has served so far -> :class:`~kvlab.engine.Metrics`."""
        return Metrics.of(self)

    def check(self):
        """Verify every invariant of pool, tables and queues. AssertionError names the broken one."""
        running, waiting = self.scheduler.running, self.scheduler.waiting
        owners = [each.table for each in running]
        if self.prefix_cache is not None:
            self.prefix_cache.check()
            owners.append(self.prefix_cache)
        if self.scheduler.host is not None:
            self.scheduler.host.check()
        self.pool.check(owners)
        if any(each.table is not None for each in waiting):
            raise AssertionError("somebody waits and holds blocks")
        queued = [*running, *waiting]
        alive = [each for request in self.requests if not request.done for each in request.sequences]
        if {id(each) for each in queued} != {id(each) for each in alive if not each.ended}:
            raise AssertionError("a text that is not done is in no queue, or one that is done still is")
        if sum(each.places for each in running) > self.scheduler.max_batch_tokens:
            raise AssertionError("more texts run than one step can serve")

    def _compute(self, steps, record):
        complete, free = [each for each, n in steps if each.missing == n], self.pool.num_free
        ran = [[each.name, n, "decode" if each.decodes else "prefill"] for each, n in steps]
        try:
            logits = self._logits(steps)  # [complete, vocab]
        finally:
            record.taken += free - self.pool.num_free
            record.held = self.pool.num_held
        record.ran = ran
        for each, row in zip(complete, logits, strict=True):
            for sequence in self._forked(each, record):
                self._write(sequence, row, record)
        for each, _ in steps:
            each.store()

    @torch.no_grad()
    def _logits(self, steps):
        """Store all new tokens -> logits after those that make a text complete."""
        ids, ends = [], []
        for each, n in steps:
            ids += each.tokens[each.stored : each.stored + n]
            ends += [len(ids) - 1] * (each.missing == n)
        view = PagedStep(self.pages, [each.table for each, _ in steps], [n for _, n in steps])
        runs = [(each.request.adapter, n) for each, n in steps]
        own = any(adapter is not None for adapter, _ in runs)
        if not own and is_adapted(self.model):
            raise ValueError("the model is adapted outside of the engine: give the adapter to submit")
        with adapted(self.model, runs) if own else nullcontext():
            return self.model(torch.tensor(ids, device=self.model.device), view, rows=ends)

    def _forked(self, sequence, record):
        """The sequence, and where it is a prompt of which n texts are to be written, its forks."""
        request = sequence.request
        if len(request.sequences) == request.n:
            return [sequence]
        for index in range(1, request.n):
            table, tokens = sequence.table.fork(), list(sequence.tokens)
            request.sequences.append(Sequence(request, index, tokens, request.samplers[index], table))
        forks = request.sequences[1:]
        self.scheduler.running += forks
        record.forked += [each.name for each in forks]
        return request.sequences

    def _write(self, sequence, logits, record):
        request, written = sequence.request, sequence.request.outputs[sequence.index]
        token = sequence.sampler.pick(logits)
        request.note("first token", record.number, self.now)
        if token in request.stop.ids:
            self._end(sequence, "stop", record)
            return
        stops = request.stop.ends([*written, token])  # before anything changes: a tokenizer may fail
        sequence.tokens.append(token)
        written.append(token)
        if stops:
            self._end(sequence, "stop", record)
        elif len(written) == request.max_new_tokens:
            self._end(sequence, "length", record)

    def _end(self, sequence, why, record):
        request = sequence.request
        sequence.ended, request.why[sequence.index] = True, why
        record.ended.append([sequence.name, why])
        self.scheduler.remove(sequence)
        if request.done:
            request.note("ended", record.number, self.now)

    def _more(self, request, index, so_far):
        """What a text has more than the last time, with steps where that is nothing, until it has ended."""
        given = 0
        while True:
            ended, more = request.why[index], so_far()[given:]
            given += len(more)
            if more:
                yield more
            elif ended:
                return
            else:
                self.step()

    def _check_own(self, request):
        if request not in self.requests:
            name = f"request {request.number}" if isinstance(request, Request) else repr(request)
            raise ValueError(f"{name} is not of this engine: give what its submit returned")

    def _check_text(self, request, index):
        self._check_own(request)
        if whole("index", index, at_least=0) >= request.n:
            raise ValueError(
                f"there is no text {index} of request {request.number}: it has {request.n}, numbered from 0"
            )

    def _check_fits(self, prompt, max_new_tokens, n):
        """The last new token is never fed back, so it needs neither a position nor a slot."""
        fed, limit = prompt + max_new_tokens - 1, self.model.config.max_positions
        if fed > limit:
            raise ValueError(
                f"a prompt of {prompt} and {max_new_tokens} new tokens need {fed} positions, but the model "
                f"has {limit}: shorten the prompt or ask for fewer"
            )
        slots = self.pool.num_blocks * self.pool.block_size
        if fed > slots:
            raise CacheOverflow(
                f"a prompt of {prompt} and {max_new_tokens} new tokens need {fed} slots, but the pool has "
                f"{slots}: shorten the prompt, ask for fewer, or make the engine with more blocks"
            )
        if n > self.scheduler.max_batch_tokens:
            raise ValueError(
                f"n is {n} texts, but a step has room for {self.scheduler.max_batch_tokens} tokens: ask for "
                "fewer, or raise max_batch_tokens"
            )
