"""What somebody asked for, and the texts that are being written for it."""

from kvlab.paging import PrefixTable


class Sequence:
    """One text: the prompt and what has been written; the table holds the first ``stored`` tokens of it."""

    def __init__(self, request, index, tokens, sampler, table=None):
        self.request, self.index, self.tokens = request, index, tokens
        self.sampler, self.table = sampler, table
        self.ended = False
        self.overtaken = 0  # by so many that came later
        self.load = None  # (token, Load from there on), while it waits for a host's memory

    def __repr__(self):
        return f"Sequence({self.name}: {len(self.tokens)} tokens, {self.stored} stored)"

    @property
    def name(self):
        return self.request.number if self.request.n == 1 else f"{self.request.number}.{self.index}"

    @property
    def stored(self):
        return 0 if self.table is None else self.table.length

    @property
    def missing(self):
        """Tokens to compute before the next one is written."""
        return len(self.tokens) - self.stored

    @property
    def decodes(self):
        """Is only the token to compute that it wrote last? It prefills where it is more, or of the prompt."""
        return self.missing == 1 and len(self.tokens) > len(self.request.prompt)

    @property
    def places(self):
        """How many sequences it will be: all of its request's, until they have been forked from it."""
        return self.request.n if len(self.request.sequences) == 1 else 1

    def store(self):
        """Give the prefix cache, if there is one, what is computed."""
        if isinstance(self.table, PrefixTable):
            self.table.store(self.tokens)

    def let_go(self):
        """Give its blocks back."""
        if self.table is not None:
            self.store()
            self.table.release()
            self.table = None


class Request:
    """Made by ``Engine.submit``. ``outputs`` are the tokens written so far, a list for each of n texts.

    ``status``  "waiting", "running" where one of its texts runs, "finished" or "cancelled"
    ``why``     of each text that has ended: "length", "stop" or "cancelled"
    ``steps``   the numbers of the steps, and ``times`` the seconds since the engine was made, at which it was
                "submitted", "admitted" for the first time, had its "first token", and "ended"
    """

    def __init__(self, number, prompt, max_new_tokens, samplers, stop, adapter=None, salt=None):
        self.number, self.adapter, self.salt = number, adapter, salt
        self.prompt, self.max_new_tokens, self.stop, self.n = prompt, max_new_tokens, stop, len(samplers)
        self.samplers = samplers
        self.sequences = [Sequence(self, 0, list(prompt), samplers[0])]
        self.outputs, self.why = [[] for _ in samplers], [None] * self.n
        self.preempted = 0  # how many times one of its texts was
        self.cached_tokens = 0  # of its prompt, found or loaded when it was first admitted
        self.steps, self.times = {}, {}

    def __repr__(self):
        return f"Request({self.number}, {self.status}: {len(self.prompt)} tokens, {self.outputs})"

    @property
    def namespace(self):
        """Only texts of the same one share blocks in a prefix cache."""
        return None if self.adapter is self.salt is None else (self.adapter, self.salt)

    @property
    def done(self):
        return None not in self.why

    @property
    def status(self):
        if self.done:
            return "cancelled" if "cancelled" in self.why else "finished"
        return "running" if any(each.table is not None for each in self.sequences) else "waiting"

    @property
    def texts(self):
        """What has been written, decoded, up to where a stop string begins -> list of str.

        Raises ValueError where the engine has no tokenizer.
        """
        return [self.stop.cut(tokens) for tokens in self.outputs]

    @property
    def queueing(self):
        """Seconds from the submission until it was first admitted, None before."""
        return self._between("submitted", "admitted")

    @property
    def ttft(self):
        """Seconds from the submission to the first token, None before it."""
        return self._between("submitted", "first token")

    @property
    def tpot(self):
        """Seconds for each further token of the longest text, None before the end."""
        more = max(map(len, self.outputs)) - 1
        seconds = self._between("first token", "ended")
        return seconds / more if seconds is not None and more > 0 else None

    @property
    def latency(self):
        """Seconds from the submission to the end, None before."""
        return self._between("submitted", "ended")

    def note(self, what, step, seconds):
        """The first time that something happens to it."""
        if what not in self.steps:
            self.steps[what], self.times[what] = step, seconds

    def _between(self, first, last):
        return self.times[last] - self.times[first] if {first, last} <= self.times.keys() else None
