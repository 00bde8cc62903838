"""What an epoch showed, and the counts of a simulation between two of its moments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuner.cluster.outcome import Outcome
from tuner.cluster.simulation import Simulation
from tuner.planning.autoscale import ScalingWindow

__all__ = ["EpochRecord", "EpochRun", "Observed", "Observer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """One interval between two plans, or two looks at the rates."""

    time: float
    """s, its end."""
    requests: int
    bad: int
    """Late or dropped."""
    accelerators: int
    """In use."""
    idle: float
    """Mean fraction of the time that those in use did not execute."""
    desired: int
    """That the advice at its end asks for."""
    loaded: int
    """Models whose loading began at its end."""
    planned: bool
    """Whether a new plan was made at its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRun:
    """A whole run."""

    outcome: Outcome
    records: tuple[EpochRecord, ...]

    @property
    def mean_accelerators(self) -> float:
        """In use, on average over the time."""
        ends = np.array([0.0, *(record.time for record in self.records)])
        return float(np.diff(ends) @ [record.accelerators for record in self.records]) / float(ends[-1])

    def to_json(self) -> dict[str, Any]:
        """Return what a run has beside its outcome."""
        return {
            "desired_accelerators": self.records[-1].desired,
            "mean_accelerators": self.mean_accelerators,
            "models_loaded": sum(record.loaded for record in self.records),
            "epochs": [asdict(record) for record in self.records],
        }


@dataclass(frozen=True, slots=True)
class Observed:
    """What happened between two moments."""

    seconds: float
    requests: np.ndarray  # (M,) answered or refused
    bad: int
    busy: np.ndarray  # (N,) s executed

    @property
    def rates(self) -> np.ndarray:
        """Requests/s of each session.   # (M,)."""
        return self.requests / self.seconds

    @property
    def scaling(self) -> ScalingWindow:
        """What the advice on the number of accelerators is made from."""
        return ScalingWindow(
            seconds=self.seconds,
            requests=float(self.requests.sum()),
            bad=float(self.bad),
            busy=float(self.busy.sum()),
        )

    def plus(self, later: Observed) -> Observed:
        """Return both intervals as one."""
        return Observed(
            self.seconds + later.seconds,
            self.requests + later.requests,
            self.bad + later.bad,
            self.busy + later.busy,
        )


class Observer:
    """Counts what happens from one look to the next, as far as the simulation counts it at all."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._time = 0.0
        self._last = self._counts()

    def _counts(self) -> tuple[np.ndarray, int, np.ndarray]:
        totals = self._simulation.totals
        bad = totals.sessions["late"] + totals.sessions["dropped"]
        return totals.sessions["good"] + bad, int(bad.sum()), totals.accelerators["busy"].copy()

    def look(self) -> Observed:
        """Return what happened since the last look."""
        now, before = self._counts(), self._last
        seconds, self._time, self._last = self._simulation.now - self._time, self._simulation.now, now
        return Observed(seconds, now[0] - before[0], now[1] - before[1], now[2] - before[2])
