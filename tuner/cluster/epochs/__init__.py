"""Simulated epochs: rates change, a planner plans again, models load, and advice scales the cluster."""

from tuner.cluster.epochs.loop import EpochRecord, EpochRun, simulate_epochs

__all__ = ["EpochRecord", "EpochRun", "simulate_epochs"]
