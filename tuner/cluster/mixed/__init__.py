"""Queries of many items on instances of mixed types, in virtual time."""

from tuner.envs.simulator.mixed.cluster import DrivenCluster, MixedCluster
from tuner.envs.simulator.mixed.outcome import MixedOutcome, simulate_mixed
from tuner.envs.simulator.mixed.threshold import Climb, climb_threshold
from tuner.envs.simulator.mixed.throughput import Allowable, RateTrial, allowable_throughput

__all__ = [
    "Allowable",
    "Climb",
    "DrivenCluster",
    "MixedCluster",
    "MixedOutcome",
    "RateTrial",
    "allowable_throughput",
    "climb_threshold",
    "simulate_mixed",
]
