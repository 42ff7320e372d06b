"""What was measured: rows to read, a file of numbers, and a picture.

A record has a ``section``, and ``what``, ``value``, ``unit`` and ``conditions`` as the rows of every
benchmark; what was timed has ``seconds`` (the median), ``runs`` and ``bytes``, too, decode steps their
``case`` and ``parts``, those that are bound by arithmetic ``flops``.
"""

import json
import re
from datetime import UTC, datetime

from kvlab.benchmarks.kernel import cases

# What was set out to reach: of the copy at MANY, of the data sheet at LONE, times the best peer's seconds.
OF_COPY, OF_SHEET, OF_PEERS = 0.85, 0.65, 1.1


def row(record):
    return f"{record['section']}: {record['what']}", record["value"], record["unit"], record["conditions"]


def remark(text):
    return {"value": "", "unit": "", "conditions": text}


def failed(text):
    return remark(text) | {"unit": "failed"}


def taken(timing):
    return f"{1000 * timing.seconds:.4g} ms, median of {timing.runs}, {timing.how}"


def speed(timing, count, yardsticks=None):
    """``count`` bytes in that time, as a share of each yardstick: {name: bytes a second}."""
    rate = count / timing.seconds
    shares = [f"{rate / each:.0%} of {name}" for name, each in (yardsticks or {}).items()]
    return {
        "value": f"{rate / 1e9:.0f}",
        "unit": ", ".join(["GB/s", *shares]),
        "conditions": taken(timing),
        "seconds": timing.seconds,
        "runs": timing.runs,
        "bytes": count,
    }


def arithmetic(timing, case, sheet):
    """The FLOPs of a case in that time, as a share of the data sheet's rate, if there is one."""
    rate = case.flops / timing.seconds
    best = sheet.flops.get("bf16") if sheet else None
    share = [f"{rate / best:.0%} of the data sheet"] if best else []
    bandwidth = speed(timing, case.bytes)
    units = ["TFLOP/s", *share, f"{bandwidth['value']} GB/s"]
    return bandwidth | {"value": f"{rate / 1e12:.1f}", "unit": ", ".join(units), "flops": case.flops}


def goals(records, yardsticks):
    """What was set out to reach, and whether it was -> records."""
    lone, many = cases.LONE, cases.MANY
    ours, peers = ({c: _fastest(records, name, c) for c in (lone, many)} for name in ("decode", "peer"))
    for case, bar, name in ((many, OF_COPY, "the measured copy"), (lone, OF_SHEET, "the data sheet")):
        known = ours[case] and name in yardsticks
        share = case.bytes / ours[case] / yardsticks[name] if known else None
        what = f"{case}, at least {bar:.0%} of {name}"
        yield _goal(what, share, f"of {name}", known and share >= bar)
    known = all([*ours.values(), *peers.values()])
    ratio = max(ours[case] / peers[case] for case in ours) if known else None
    what = f"{lone} and {many}, at most {OF_PEERS} times the seconds of the best peer"
    yield _goal(what, ratio, "times", known and ratio <= OF_PEERS)


def _fastest(records, section, case):
    timed = [record for record in records if record["section"] == section and "seconds" in record]
    return min((record["seconds"] for record in timed if record["case"] == case._asdict()), default=None)


def _goal(what, value, unit, reached):
    if value is None:
        rest = remark("not measured")
    else:
        rest = remark("reached" if reached else "missed") | {"value": f"{value:.2f}", "unit": unit}
    return {"section": "goal", "what": what} | rest


def slug(name):
    """'NVIDIA H100 80GB HBM3' -> 'nvidia-h100-80gb-hbm3'"""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write(folder, facts, yardsticks, records):
    """The file of numbers, named after the device -> its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{slug(facts['device'])}.json"
    head = {"date": f"{datetime.now(UTC):%Y-%m-%d}"} | facts | {"bytes_a_second": yardsticks}
    path.write_text(json.dumps(head | {"records": records}, indent=1) + "\n", encoding="utf-8")
    return path


def draw(folder, facts, yardsticks, records):
    """The picture beside it -> its path. ImportError where matplotlib is missing."""
    from kvlab.benchmarks.kernel.picture import bandwidths

    path = folder / f"{slug(facts['device'])}.png"
    path.write_bytes(bandwidths(facts["device"], yardsticks, by_batch(records)).png)
    return path


def by_batch(records):
    """{batch: [(context, bytes a second)]} of the decode steps, as they are drawn."""
    found = {}
    for record in records:
        if record["section"] == "decode" and "seconds" in record:
            point = record["case"]["context"], record["bytes"] / record["seconds"]
            found.setdefault(record["case"]["batch"], []).append(point)
    return {batch: sorted(points) for batch, points in sorted(found.items())}
