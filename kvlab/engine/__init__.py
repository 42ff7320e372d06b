"""Many requests at once, in one pool of blocks: a scheduler, an engine, and a trace of what they did."""

from kvlab.engine.engine import Engine
from kvlab.engine.metrics import Metrics, Spread
from kvlab.engine.request import Request
from kvlab.engine.scheduler import Scheduler
from kvlab.engine.simulation import Price, Simulation
from kvlab.engine.trace import Step, Trace
from kvlab.engine.users import agents, chat, converse, few_shot, talk
from kvlab.engine.workload import arrivals, serve

__all__ = [
    "Engine",
    "Metrics",
    "Price",
    "Request",
    "Scheduler",
    "Simulation",
    "Spread",
    "Step",
    "Trace",
    "agents",
    "arrivals",
    "chat",
    "converse",
    "few_shot",
    "serve",
    "talk",
]
