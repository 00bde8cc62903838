"""Workloads: the offered rate over an episode, by name."""

from tuner.envs.workload.catalogue import WORKLOADS, workload
from tuner.envs.workload.workload import Workload

__all__ = ["WORKLOADS", "Workload", "workload"]
