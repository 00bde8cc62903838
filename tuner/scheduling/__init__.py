"""Scheduling policies without I/O: they get the time and an event, and answer which batch goes where."""

from tuner.scheduling.catalogue import POLICIES, build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec, grow, linear_latency
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.scheduler import Scheduler

__all__ = [
    "POLICIES",
    "ClusterSpec",
    "Delays",
    "Scheduler",
    "SessionSpec",
    "arrive",
    "build_policy",
    "finish",
    "grow",
    "linear_latency",
    "options_of",
    "wake",
]
