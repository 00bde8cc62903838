"""Scheduling policies without I/O: they get the time and an event, and answer which batch goes where."""

from tuner.scheduling.scheduler import Scheduler

__all__ = ["Scheduler"]
