"""Workloads of simple shapes: constant, step, ramp and burst. Nothing about their rates is random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.rounding import ROUNDING
from tuner.workload.workload import LEAST, Workload, middles, parameter

__all__ = ["Burst", "Constant", "Ramp", "Step"]


@dataclass(frozen=True, kw_only=True)
class Constant(Workload):
    """The nominal rate in every window."""

    name: ClassVar[str] = "constant"
    about: ClassVar[str] = "the nominal rate all the time"

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        return np.ones(windows)


@dataclass(frozen=True, kw_only=True)
class Step(Workload):
    """One rate, and from a moment on another."""

    name: ClassVar[str] = "step"
    about: ClassVar[str] = "one rate, and from a moment on another"

    low: float = parameter(0.7, "rate before the step, relative to the nominal one", least=LEAST, most=100)
    high: float = parameter(1.2, "rate after it, relative to the nominal one", least=LEAST, most=100)
    at: float = parameter(0.5, "when, as a share of the episode", most=1)

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        return np.where(middles(windows) < self.at, self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Ramp(Workload):
    """A rate that changes linearly between two moments, and stays before and after."""

    name: ClassVar[str] = "ramp"
    about: ClassVar[str] = "a rate that grows (or falls) linearly"

    low: float = parameter(0.5, "rate at the beginning, relative to the nominal one", least=LEAST, most=100)
    high: float = parameter(1.2, "rate at the end, relative to the nominal one", least=LEAST, most=100)
    start: float = parameter(0.0, "when it begins to change, as a share of the episode", most=1)
    end: float = parameter(1.0, "when it has changed, as a share of the episode", most=1)

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        length = max(self.end - self.start, 1e-12)  # an end before the start is a step at the start
        way = np.clip((middles(windows) - self.start) / length, 0, 1)
        return np.asarray(self.low + way * (self.high - self.low))


@dataclass(frozen=True, kw_only=True)
class Burst(Workload):
    """The nominal rate with short bursts at equal intervals; the first comes after half an interval."""

    name: ClassVar[str] = "burst"
    about: ClassVar[str] = "the nominal rate with short bursts at equal intervals"

    high: float = parameter(1.5, "rate in a burst, relative to the nominal one", least=LEAST, most=100)
    every: float = parameter(0.2, "from one burst to the next, as a share of the episode", least=1e-6, most=1)
    length: float = parameter(0.04, "of a burst, as a share of the episode", most=1)

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002, D102
        # Where bursts are shorter than a window, those which begin in it count, so that none gets lost; nor
        # does one that begins in the very middle of a window, by rounding.
        passed = middles(windows) - self.every / 2 + ROUNDING  # since the first burst began
        inside = np.mod(passed, self.every) < max(self.length, 1.0 / windows)
        return np.where(inside & (passed >= 0), self.high, 1.0)
