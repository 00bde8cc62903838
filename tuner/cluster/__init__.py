"""A cluster of accelerators in virtual time: sessions, a scheduling policy, and what comes of it."""

from tuner.cluster.chrome import chrome_trace
from tuner.cluster.outcome import Outcome
from tuner.cluster.scenario import Network, Scenario
from tuner.cluster.scenario.session import Session
from tuner.cluster.simulation import Simulation, simulate
from tuner.scheduling.log import EventLog, replay

__all__ = [
    "EventLog",
    "Network",
    "Outcome",
    "Scenario",
    "Session",
    "Simulation",
    "chrome_trace",
    "replay",
    "simulate",
]
