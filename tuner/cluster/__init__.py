"""A cluster of accelerators in virtual time: sessions, a scheduling policy, and what comes of it."""

from tuner.envs.simulator.cluster.log import EventLog, chrome_trace, replay
from tuner.envs.simulator.cluster.outcome import Outcome, SessionOutcome
from tuner.envs.simulator.cluster.scenario import Network, Scenario
from tuner.envs.simulator.cluster.session import Session
from tuner.envs.simulator.cluster.simulation import Simulation, simulate

__all__ = [
    "EventLog",
    "Network",
    "Outcome",
    "Scenario",
    "Session",
    "SessionOutcome",
    "Simulation",
    "chrome_trace",
    "replay",
    "simulate",
]
