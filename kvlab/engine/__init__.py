"""Many requests at once, in one pool of blocks: a scheduler, an engine, and a trace of what they did."""

from kvlab.engine.engine import Engine
from kvlab.engine.request import Request
from kvlab.engine.scheduler import Scheduler
from kvlab.engine.trace import Step, Trace

__all__ = ["Engine", "Request", "Scheduler", "Step", "Trace"]
