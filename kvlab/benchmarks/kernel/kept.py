"""Measurements that were kept, to look at."""

import json

from kvlab.benchmarks.kernel import MEASURED
from kvlab.benchmarks.kernel.picture import bandwidths
from kvlab.benchmarks.kernel.report import by_batch, row
from kvlab.viz import Table


def kept(folder=MEASURED):
    """For each device a Picture of the bandwidths and a Table of what was set out to reach -> list."""
    shown = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        records = report["records"]
        shown.append(bandwidths(report["device"], report["bytes_a_second"], by_batch(records)))
        goals = [row(record) for record in records if record["section"] == "goal"]
        title = f"{report['device']}, {report['date']}, torch {report['torch']}, triton {report['triton']}"
        shown.append(Table(["", "", "", ""], goals, title))
    return shown
