"""Workloads: the offered rate over an episode, by name."""

from tuner.workload.catalogue import WORKLOADS, workload
from tuner.workload.workload import Workload

__all__ = ["WORKLOADS", "Workload", "workload"]
