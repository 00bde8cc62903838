"""Simulated epochs: rates change, a planner plans again, models load, and advice scales the cluster."""

from tuner.cluster.epochs.loop import simulate_epochs
from tuner.cluster.epochs.record import EpochRecord, EpochRun

__all__ = ["EpochRecord", "EpochRun", "simulate_epochs"]
