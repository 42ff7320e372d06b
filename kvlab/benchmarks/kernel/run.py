"""The order of things, and what is left when one of them fails or the time is up."""

import time

import torch

from kvlab.benchmarks.kernel import cases, checks, report
from kvlab.benchmarks.kernel.gpu import catalogued, first_line
from kvlab.benchmarks.kernel.peers import PEERS
from kvlab.benchmarks.kernel.problem import Problem

LIMIT = 210.0  # seconds; what has not begun by then is left out
YARDSTICK = 2**31  # bytes, or an eighth of the free memory where that is less
AGREES = 0.05  # of the largest number of ours, by which a peer's may differ


class Run:
    """Measures on a ``Gpu``, and writes into ``folder`` after each section what there is by then.

    say: gets each row when it is there. clock: seconds, for the limit alone.
    """

    def __init__(self, gpu, folder, say=lambda row: None, clock=time.monotonic):
        self.gpu, self.folder, self.say, self.clock = gpu, folder, say, clock
        self.deadline = clock() + LIMIT
        self.sheet, self.facts = catalogued(gpu.name), gpu.facts()
        self.records, self.yardsticks = [], {}
        self._made = None

    @torch.no_grad()
    def rows(self):
        """AssertionError before anything is timed if the kernel is wrong here."""
        self.section("check", self.checks(), save=False)
        wrong = [record["what"] for record in self.records if record["unit"] == "failed"]
        if wrong:
            raise AssertionError(f"paged attention is wrong on {self.gpu.name}; nothing was timed: {wrong}")
        self.section("yardstick", self.measured_yardsticks())
        free = self.gpu.free()
        points = [point for point in (cases.LONE, cases.MANY) if cases.fits(point, free)]
        self.section("decode", ((str(case), self.timed(case)) for case in cases.grid(free)))
        self.section("peer", (pair for point in points for pair in self.peers(point)))
        options = cases.options(free, self.gpu.float8)
        self.section("option", ((f"{case}, {what}", self.timed(case)) for what, case in options))
        self.section("parts", (pair for point in points for pair in self.parts(point)))
        tiled = cases.tiled(free, self.gpu.float8)
        self.section("tiling", (pair for case in tiled for pair in self.tilings(case)))
        for goal in report.goals(self.records, self.yardsticks):
            self.note(goal)
        self.section("written", [("numbers", self._write), ("picture", self._draw)], save=False)
        return [report.row(record) for record in self.records]

    def section(self, name, steps, save=True):
        """steps: (what, a call that returns the rest of a record)."""
        late = []
        for what, step in steps:
            if self.clock() >= self.deadline:
                late.append(what)
                continue
            try:
                rest = step()
            except Exception as error:
                self._made = None  # it may be what takes the memory
                rest = report.failed(first_line(error))
            self.note({"section": name, "what": what} | rest)
        if late:
            why = f"left out, since {LIMIT:.0f} s were up: {'; '.join(late)}"
            self.note({"section": name, "what": f"{len(late)} more"} | report.remark(why))
        if save:
            self._write()

    def note(self, record):
        self.records.append(record)
        self.say(report.row(record))

    def checks(self):
        for check in checks.CHECKS:
            yield check.what, lambda check=check: self._checked(check)
        yield "pages are written as by the reference", self._written
        yield "a layer does not wait for the device", self._without_waiting

    def _checked(self, check):
        if 3 * check.unused_bytes > self.gpu.free():
            return report.remark("left out: too little memory is free")
        off = checks.steps_off(check, self.gpu.device, self.gpu.backend, self.gpu.float8)
        if not off <= 1:
            return report.failed(f"{off:.3g} times the allowed error")
        return report.remark("against float64") | {"value": f"{off:.2f}", "unit": "of the allowed error"}

    def _written(self):
        wrong = checks.written_otherwise(self.gpu.device, self.gpu.backend, self.gpu.float8)
        return report.failed(f"others: {wrong}") if wrong else report.remark("bit by bit")

    def _without_waiting(self):
        checks.attend_without_waiting(self.gpu.device, self.gpu.backend, self.gpu.no_waiting)
        return report.remark("not for a step's first layer, either")

    def measured_yardsticks(self):
        yield "copy", self._copy
        yield "read", self._read
        yield "data sheet", self._sheet
        yield "adding 1 to one number", self._least

    def _numbers(self):
        return torch.rand(min(YARDSTICK, self.gpu.free() // 8) // 4, device=self.gpu.device)

    def _copy(self):
        source = self._numbers()
        target = torch.empty_like(source)
        timing = self.gpu.time(lambda: target.copy_(source))
        self.yardsticks["the measured copy"] = 2 * source.nbytes / timing.seconds
        return report.speed(timing, 2 * source.nbytes)

    def _read(self):
        source = self._numbers()
        timing = self.gpu.time(source.sum)
        self.yardsticks["the measured read"] = source.nbytes / timing.seconds
        return report.speed(timing, source.nbytes)

    def _sheet(self):
        if self.sheet is None:
            return report.remark(f"kvlab.memory does not know {self.gpu.name}")
        self.yardsticks["the data sheet"] = self.sheet.bandwidth
        return {"value": f"{self.sheet.bandwidth / 1e9:.0f}", "unit": "GB/s", "conditions": self.sheet.name}

    def _least(self):
        """So much of every time is the clock's."""
        one = torch.zeros(1, device=self.gpu.device)
        timing = self.gpu.time(lambda: one.add_(1))
        conditions = report.taken(timing)
        return {"value": f"{1e6 * timing.seconds:.1f}", "unit": "µs", "conditions": conditions}

    def timed(self, case, parts=None, tiling=None):
        def measure():
            problem = self.problem(case)
            timing = self.gpu.time(lambda: problem.attend(self.gpu.backend, parts, tiling))
            sizes = {"case": case._asdict(), "parts": case.parts(self.gpu.multiprocessors, parts, tiling)}
            if case.latent:  # bound by arithmetic
                return report.arithmetic(timing, case, self.sheet) | sizes
            return report.speed(timing, case.bytes, self.yardsticks) | sizes

        return measure

    def parts(self, point):
        chosen = point.parts(self.gpu.multiprocessors)
        for wanted in sorted({*cases.PARTS, chosen}):
            if point.parts(self.gpu.multiprocessors, wanted) == wanted:
                mark = ", as chosen" if wanted == chosen else ""
                yield f"{point}, {wanted} parts{mark}", self.timed(point, parts=wanted)

    def tilings(self, case):
        kind = ", MLA" * case.latent + f", {case.stored} pages" * (case.stored != case.dtype)
        for tiling in [case.tiling, *cases.tilings(case)]:
            what = ", ".join(f"{size} {name}" for name, size in tiling._asdict().items())
            mark = ", as usual" if tiling == case.tiling else ""
            yield f"{case}{kind}, {what}{mark}", self.timed(case, tiling=tiling)

    def peers(self, point):
        for peer in PEERS:
            yield f"{point}, {peer.name}", lambda peer=peer: self._peer(peer, point)

    def _peer(self, peer, point):
        problem = self.problem(point)
        try:
            step = peer.prepare(problem)
        except ImportError as error:
            return report.remark(f"not installed: {peer.install} ({first_line(error)})")
        ours = problem.attend(self.gpu.backend)  # [B, Hq, D]
        off = float((step().view(ours.shape) - ours).abs().max() / ours.abs().max())
        if not off <= AGREES:
            raise AssertionError(f"it differs from ours by {off:.2g} of the largest number")
        timing = self.gpu.time(step)
        return report.speed(timing, point.bytes, self.yardsticks) | {"case": point._asdict()}

    def _write(self):
        return report.remark(str(report.write(self.folder, self.facts, self.yardsticks, self.records)))

    def _draw(self):
        try:
            path = report.draw(self.folder, self.facts, self.yardsticks, self.records)
        except ImportError as error:
            return report.remark(f"none: matplotlib is not installed ({first_line(error)})")
        return report.remark(str(path))

    def problem(self, case):
        if self._made is None or self._made.case != case:
            self._made = None
            self.gpu.free()
            self._made = Problem(case, self.gpu.device)
        return self._made
