"""Users whose texts begin alike: few-shot questions, chats, agents that branch.

A user is an iterator: it gives the prompts that it asks next, all at once, and is sent their answers (token
ids, both). So what it asks can depend on what was written. Lengths are means: each is drawn from half of it
to one and a half.
"""

from collections import deque
from random import Random


def few_shot(questions=64, sets=4, examples=400, question=40, vocab=32_000, seed=0):
    """Each user asks one question, after one of several sets of examples that many use."""
    words = Words(vocab, seed)
    shared = [words(examples) for _ in range(sets)]
    return [_once(words.pick(shared) + words(question)) for _ in range(questions)]


def chat(users=16, turns=4, system=200, turn=40, vocab=32_000, seed=0):
    """All begin with one system prompt; each turn repeats the whole conversation so far."""
    words = Words(vocab, seed)
    shared = words(system)
    return [_conversation(shared, [words(turn) for _ in range(turns)]) for _ in range(users)]


def agents(tasks=8, branches=3, system=300, task=60, step=40, vocab=32_000, seed=0):
    """Each makes a plan, follows several branches of it at once, and reads all that came of them."""
    words = Words(vocab, seed)
    shared = words(system)
    return [
        _agent(shared + words(task), [words(step) for _ in range(branches)], words(step))
        for _ in range(tasks)
    ]


def converse(engine, users, max_new_tokens, at_once=None):
    """Serve users, at most so many at a time; each goes on when it has its answers -> list of Request."""
    waiting, asked, served = deque(users), [], []
    at_once = len(waiting) if at_once is None else at_once
    if at_once < 1 <= len(waiting):
        raise ValueError(f"{at_once} users at once serve nobody: give 1 or more")

    def go_on(user, answers=None):
        prompts = _next(user, answers)
        if prompts:
            requests = [engine.submit(prompt, max_new_tokens) for prompt in prompts]
            asked.append((user, requests))
            served.extend(requests)

    while waiting or asked:
        while waiting and len(asked) < at_once:
            go_on(waiting.popleft())
        engine.step()
        for user, requests in [each for each in asked if all(request.done for request in each[1])]:
            asked.remove((user, requests))
            go_on(user, [request.outputs[0] for request in requests])
    return served


def talk(users, answer=60, vocab=32_000, seed=0):
    """What the users ask, each in turn, where answers are any tokens -> [(prompt, answer)]."""
    words, turns, texts = Words(vocab, seed), deque((user, None) for user in users), []
    while turns:
        user, answers = turns.popleft()
        prompts = _next(user, answers)
        if prompts:
            answers = [words(answer) for _ in prompts]
            texts += zip(prompts, answers, strict=True)
            turns.append((user, answers))
    return texts


class Words:
    """Random tokens; so many, within a half."""

    def __init__(self, vocab, seed):
        self.vocab, self.random = vocab, Random(seed)

    def __call__(self, n):
        length = self.random.randint(max(1, n // 2), n + n // 2)
        return [self.random.randrange(self.vocab) for _ in range(length)]

    def pick(self, several):
        return self.random.choice(several)


def _next(user, answers):
    try:
        return user.send(answers)
    except StopIteration:
        return None


def _once(prompt):
    yield [prompt]


def _conversation(text, turns):
    for turn in turns:
        text = text + turn
        (answer,) = yield [text]
        text = text + answer


def _agent(text, branches, last):
    (plan,) = yield [text]
    text = text + plan
    findings = yield [text + branch for branch in branches]
    yield [text + [token for finding in findings for token in finding] + last]
