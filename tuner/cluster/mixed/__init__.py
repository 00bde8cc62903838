"""Queries of many items on instances of mixed types, in virtual time."""

from tuner.cluster.mixed.cluster import DrivenCluster, MixedCluster
from tuner.cluster.mixed.outcome import MixedOutcome, simulate_mixed
from tuner.cluster.mixed.threshold import Climb, climb_threshold
from tuner.cluster.mixed.throughput import Allowable, RateTrial, allowable_throughput

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
