"""Requests that come at their own times, and an engine that serves them as they come."""

from random import Random


def arrivals(lengths, per_second, seed=0):
    """Requests of these (prompt, answer) lengths, so many a second, each coming when it likes (a Poisson
    process) -> [(seconds, prompt, answer)]."""
    if per_second <= 0:
        raise ValueError(f"{per_second} requests a second: give a number above 0")
    random, at, times = Random(seed), 0.0, []
    for prompt, answer in lengths:
        at += random.expovariate(per_second)
        times.append((at, prompt, answer))
    return times


def serve(engine, requests):
    """Submit each request when the engine's clock has reached its time, and make steps meanwhile.

    requests: (seconds, prompt ids, max_new_tokens) in the order of their times -> list of Request, all done.
    One that comes while a step is computed counts as submitted when it came.
    """
    served, start = [], engine.now
    for at, prompt, new in requests:
        while (early := start + at - engine.now) > 0:
            if engine.idle:
                engine.wait(early)
            else:
                engine.step()
        served.append(engine.submit(prompt, new))
        served[-1].times["submitted"] = start + at
    engine.run()
    return served
