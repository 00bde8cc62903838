"""Loads of a life, and the conditions of the machine: how both move with time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tuner.workload.schedule import RateSchedule

__all__ = ["LOADS", "TROUBLED", "Condition", "MovingLoad"]

DAY = (0.4, 0.5, 0.8, 1.1, 1.4, 1.5, 1.4, 1.1, 0.8, 0.5)
"""The load of a day beside the usual rate; a life has three days."""
STEPS = (1.0, 1.6, 1.0, 0.5, 1.6, 1.0)
SLOWER = (1.0, 1.12, 1.25, 1.4, 1.6, 1.6, 1.4, 1.25, 1.12, 1.0)
"""Factors on the execution times while a machine drifts and recovers."""
BURSTS = 0.25
"""Shape of the gamma distributed gaps of a bursty load."""


class Condition(NamedTuple):
    """What a configuration has to cope with at one time."""

    rate: float
    """requests/s"""
    slowdown: float = 1.0
    """Factor on the execution times."""
    shape: float = 1.0
    """Of the gamma distributed gaps between requests."""


class MovingLoad(NamedTuple):
    """The conditions of a life: each with the second from which on it holds, the first from 0."""

    steps: tuple[tuple[float, Condition], ...]

    @property
    def schedule(self) -> RateSchedule:
        """The offered rate."""
        return RateSchedule(steps=tuple((start, condition.rate) for start, condition in self.steps))

    @property
    def shape(self) -> float:
        """Of the gaps, which stays the same."""
        return self.steps[0][1].shape

    def at(self, time: float) -> Condition:
        """Return what holds at a time, s."""
        return next(condition for start, condition in reversed(self.steps) if start <= time)


def _steady(rate: float, _: float) -> MovingLoad:
    return MovingLoad(((0.0, Condition(rate)),))


def _diurnal(rate: float, seconds: float) -> MovingLoad:
    return _even([Condition(rate * factor) for factor in DAY * 3], seconds)


def _bursty(rate: float, _: float) -> MovingLoad:
    return MovingLoad(((0.0, Condition(0.8 * rate, shape=BURSTS)),))


def _steps(rate: float, seconds: float) -> MovingLoad:
    return _even([Condition(rate * factor) for factor in STEPS], seconds)


def _drifting(rate: float, seconds: float) -> MovingLoad:
    return _even([Condition(0.8 * rate, slowdown=factor) for factor in SLOWER], seconds)


def _sudden(rate: float, seconds: float) -> MovingLoad:
    return _even([Condition(0.8 * rate), Condition(0.8 * rate, slowdown=1.5)], seconds)


def _even(conditions: list[Condition], seconds: float) -> MovingLoad:
    """Let conditions follow each other, each for the same time."""
    length = seconds / len(conditions)
    return MovingLoad(tuple((number * length, condition) for number, condition in enumerate(conditions)))


LOADS: Mapping[str, Callable[[float, float], MovingLoad]] = {
    "steady": _steady,
    "diurnal": _diurnal,
    "bursty": _bursty,
    "steps": _steps,
    "drifting": _drifting,
    "suddenly slower": _sudden,
    "default is best": _steady,
    "troubled": _steady,
    "troubled steps": _steps,
}
"""Name -> the load for a usual rate, requests/s, over a number of seconds."""
TROUBLED = frozenset(name for name in LOADS if name.startswith("troubled"))
