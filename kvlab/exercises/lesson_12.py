"""Exercises of lesson 12, continuous batching."""

from kvlab.exercises.exercise import exercise
from kvlab.exercises.questions import RECALL, Option, Recall


@exercise(
    "12.plan",
    cases=lambda: [
        dict(running=running, waiting=waiting, budget=budget)
        for running, waiting, budget in (
            ([1, 1], [9], 16),
            ([1, 1], [9, 4, 5], 12),
            ([30, 1, 1], [], 8),
            ([1, 3, 1, 9], [4], 8),
            ([1, 1, 1], [7], 3),
            ([], [5, 6], 8),
            ([30, 20, 1], [], 8),
            ([9], [1], 8),
            ([6, 1], [9], 8),
            ([6, 1], [4, 2], 24),
            ([40, 1], [3], 16),
        )
    ],
    minutes=15,
    difficulty="medium",
    hints=[
        "First give 1 to everybody in `running` who misses 1. What is left of the budget?",
        "Then through `running` once more, and through `waiting`: min(what it misses, what is left).",
    ],
)
def plan(running, waiting, budget):
    """New tokens of each text in the next step, 0 for none -> list of int: who runs, then who waits

    running, waiting: tokens that each still has to compute, in the order in which they came; one that runs
    and misses 1 token decodes. The budget is never smaller than the number of texts that run.
    Decodes go first, then prefills that have begun, then who waits, as long as the budget lasts.
    """
    # solve
    given = [int(missing == 1) for missing in running]
    left = budget - sum(given)
    for place, missing in enumerate(running):
        if missing > 1:
            given[place] = min(missing, left)
            left -= given[place]
    for missing in waiting:
        given.append(min(missing, left))
        left -= given[-1]
    return given
    # end


@plan.mistake("a prefill that came earlier has taken a decode's place: decodes go first, one token each.")
def _(running, waiting, budget):
    given = []
    for missing in [*running, *waiting]:
        given.append(min(missing, budget))
        budget -= given[-1]
    return given


@plan.mistake("a prompt need not fit into one step: give it what is left, the rest comes in later steps.")
def _(running, waiting, budget):
    given = [int(missing == 1) for missing in running]
    left = budget - sum(given)
    for place, missing in enumerate([*running, *waiting]):
        if place >= len(running):
            given.append(0)
        if not given[place] and missing <= left:
            given[place] = missing
            left -= missing
    return given


@plan.mistake("that step has more tokens than its budget.")
def _(running, waiting, budget):
    return [*running, *waiting]


@plan.mistake("prefill and decode share a step: nobody who decodes has to sit out while others prefill.")
def _(running, waiting, budget):
    given, left = [], budget
    prefills = any(missing > 1 for missing in running) or bool(waiting)
    for place, missing in enumerate([*running, *waiting]):
        decodes = place < len(running) and missing == 1
        given.append(0 if decodes and prefills else min(missing, left))
        left -= given[-1]
    return given


@plan.mistake("prefills get what is left in order of arrival: not a token each first.")
def _(running, waiting, budget):
    given = [1 for _ in running]
    left = budget - len(running)
    for place, missing in enumerate(running):
        more = min(missing - 1, left)
        given[place] += more
        left -= more
    for missing in waiting:
        given.append(min(missing, left))
        left -= given[-1]
    return given


@plan.mistake("who waits has not begun: its one token is a prompt, and comes after the prompts that have.")
def _(running, waiting, budget):
    given = [int(missing == 1) for missing in [*running, *waiting]]
    left = budget - sum(given)
    for place, missing in enumerate([*running, *waiting]):
        if missing > 1:
            given[place] = min(missing, left)
            left -= given[place]
    return given


@plan.mistake("what one prefill has taken of the budget is gone for the next: count down what is left.")
def _(running, waiting, budget):
    left = budget - sum(missing == 1 for missing in running)
    given = [1 if missing == 1 else min(missing, left) for missing in running]
    return given + [min(missing, left) for missing in waiting]


@plan.mistake("who has begun comes before who waits.")
def _(running, waiting, budget):
    given = [int(missing == 1) for missing in running]
    left, new = budget - sum(given), []
    for missing in waiting:
        new.append(min(missing, left))
        left -= new[-1]
    for place, missing in enumerate(running):
        if missing > 1:
            given[place] = min(missing, left)
            left -= given[place]
    return given + new


@exercise(
    "12.admit",
    cases=lambda: [
        dict(tokens=tokens, free=free, block_size=4, running=running, spare=spare)
        for tokens, free, running, spare in (
            (9, 9, [], 1),
            (9, 3, [], 1),
            (9, 2, [], 1),
            (8, 2, [], 0),
            (8, 4, [(5, 6), (8, 9)], 1),
            (8, 5, [(5, 6), (8, 9)], 1),
            (8, 4, [(5, 6), (7, 8)], 1),
            (8, 6, [(4, 21)], 0),
            (8, 5, [(4, 21)], 0),
            (10, 4, [(6, 7), (6, 7)], 1),
            (8, 3, [(6, 7), (6, 7)], 1),
            (8, 7, [(4, 21)], 1),
            (8, 8, [(4, 21)], 2),
            (8, 8, [(4, 21)], 1),
        )
    ],
    minutes=10,
    difficulty="medium",
    hints=[
        "Count in blocks: n tokens need -(-n // block_size) of them, rounded up.",
        "A text that runs and has stored 4 of its 21 tokens will take more blocks soon: count them as taken.",
        "What is needed, what is promised and what is spared must not be more than what is free.",
    ],
)
def admit(tokens, free, block_size, running, spare):
    """May a text of so many tokens be let in? -> bool

    free: blocks that nobody holds; running: (stored, all tokens) of each text that runs
    It may if there are free blocks for all its tokens, for all tokens that running texts have and have not
    stored yet, and ``spare`` blocks more for each text that runs.
    """
    # solve
    needed = -(-tokens // block_size)
    for stored, all_tokens in running:
        needed += -(-all_tokens // block_size) - -(-stored // block_size) + spare
    return needed <= free
    # end


def _promised(running, block_size, spare):
    """Blocks that texts which run will take, and those left for what they write."""
    return sum(-(-tokens // block_size) - -(-stored // block_size) + spare for stored, tokens in running)


@admit.mistake("a block that is begun counts whole: round up.")
def _(tokens, free, block_size, running, spare):
    return tokens // block_size + _promised(running, block_size, spare) <= free


@admit.mistake("texts that run still need blocks for tokens that they have and have not stored.")
def _(tokens, free, block_size, running, spare):
    return -(-tokens // block_size) + spare * len(running) <= free


@admit.mistake("the spare blocks are left out: those who run will write, and need room for it.")
def _(tokens, free, block_size, running, spare):
    return -(-tokens // block_size) + _promised(running, block_size, 0) <= free


@admit.mistake("spare blocks are left for each text that runs, not once.")
def _(tokens, free, block_size, running, spare):
    return -(-tokens // block_size) + spare + _promised(running, block_size, 0) <= free


@admit.mistake("spare blocks are left for those who run, and none for the newcomer.")
def _(tokens, free, block_size, running, spare):
    return -(-tokens // block_size) + spare + _promised(running, block_size, spare) <= free


@admit.mistake("exactly enough is enough.")
def _(tokens, free, block_size, running, spare):
    return -(-tokens // block_size) + _promised(running, block_size, spare) < free


@admit.mistake(
    "what they have stored lies in blocks that are not free any more: round all and stored, subtract."
)
def _(tokens, free, block_size, running, spare):
    whole = [(0, all_tokens) for _, all_tokens in running]
    return -(-tokens // block_size) + _promised(whole, block_size, spare) <= free


@exercise(
    "12.in_flight",
    cases=lambda: [
        dict(per_second=rate, ttft=ttft, tpot=tpot, answer=answer)
        for rate, ttft, tpot, answer in (
            (2.0, 0.5, 0.25, 7),
            (20.0, 0.125, 0.0078125, 257),
            (4.0, 1.5, 0.5, 1),
            (0.5, 2.0, 0.125, 33),
        )
    ],
    minutes=5,
    difficulty="easy",
    hints=[
        "How long does one request stay? Its first token comes after ttft, each further one after tpot.",
        "Little's law: how many are there at a time = how many come in a second x how long each stays.",
    ],
)
def in_flight(per_second, ttft, tpot, answer):
    """Requests that are in the system at a time, on average -> float

    per_second: requests that come; ttft: seconds to the first token; tpot: seconds for each further token;
    answer: tokens of an answer, the first one among them
    """
    # solve
    return per_second * (ttft + tpot * (answer - 1))
    # end


@in_flight.mistake("the first token comes after ttft: only the others take tpot each.")
def _(per_second, ttft, tpot, answer):
    return per_second * (ttft + tpot * answer)


@in_flight.mistake("a request is in the system before its first token, too.")
def _(per_second, ttft, tpot, answer):
    return per_second * tpot * (answer - 1)


@in_flight.mistake("that is how long one request stays: how many come meanwhile?")
def _(per_second, ttft, tpot, answer):
    return ttft + tpot * (answer - 1)


@in_flight.mistake("all of the stay is multiplied, and not ttft alone: mind the brackets.")
def _(per_second, ttft, tpot, answer):
    return per_second * ttft + tpot * (answer - 1)


@in_flight.mistake("the longer they stay, the more are there: multiply.")
def _(per_second, ttft, tpot, answer):
    return per_second / (ttft + tpot * (answer - 1))


RECALL["12"] = [
    Recall(
        "12.static",
        "A static batch of 8: when does the ninth request begin?",
        (
            Option("When the first of the 8 has ended", "That is continuous batching."),
            Option(
                "When the longest of the 8 has ended",
                "Until then the others' seats stay idle.",
                right=True,
            ),
            Option("When half of the 8 have ended", "The batch is one thing: it ends as a whole."),
        ),
    ),
    Recall(
        "12.selective",
        "Texts of many lengths in one step of the model: which part needs to know whose token is whose?",
        (
            Option("The matrix products with the weights", "They treat every row alike."),
            Option("Attention, with each text's own table", "All else works on packed rows.", right=True),
            Option("All of it, which is why one pads", "Padding is what packing avoids."),
        ),
    ),
    Recall(
        "12.chunks",
        "A prompt of 8,000 tokens, a budget of 512, ten texts that decode. What do the ten feel?",
        (
            Option("They stand still until the prompt is done", "That is what chunking prevents."),
            Option("For some 16 steps their tokens take longer", "Each step is bounded.", right=True),
            Option("Nothing", "A step of 512 tokens takes longer than one of 10."),
        ),
    ),
    Recall(
        "12.budget",
        "The token budget is far above the ridge already, and is made four times as large. What happens?",
        (
            Option("First tokens come four times as soon", "A step that is full of arithmetic gets longer."),
            Option("Longer steps: those who decode meanwhile stutter", "And little is gained.", right=True),
            Option("More requests fit into memory", "The pool decides that, not the budget."),
        ),
    ),
    Recall(
        "12.preempted",
        "A text is preempted after 200 written tokens. What is lost?",
        (
            Option("Its 200 tokens: it writes its answer again", "Tokens are a few bytes; they are kept."),
            Option("Its place: it goes to the end of the queue", "It waits in front."),
            Option(
                "Its keys and values: they are computed again",
                "Time is lost, and nothing else.",
                right=True,
            ),
        ),
    ),
    Recall(
        "12.little",
        "Twice as many requests come each second, and each stays as long as before. What does the pool hold?",
        (
            Option("The same: they queue", "Then they would stay longer."),
            Option("Twice as much", "Little's law: number = rate x time.", right=True),
            Option("Four times as much", "Only if each stayed twice as long as well."),
        ),
    ),
]
