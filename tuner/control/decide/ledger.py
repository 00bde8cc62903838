"""What was tried under each load level, and which of it kept the SLO."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Ledger", "Trial"]


@dataclass(slots=True)
class Trial:
    """All windows of one configuration under one load level."""

    windows: int = 0
    cost: float = math.nan
    """Mean cost, newer windows weighing more."""
    kept: float = 0.0
    """Share of windows that kept the SLO, newer ones weighing more."""
    ever_kept: bool = False
    """Whether any window did."""
    steadily: float = 1.0
    """As ``kept``, over a longer time."""

    @property
    def good(self) -> bool:
        """Whether it is held to keep the SLO.

        One bad window after several good ones does not disprove it, two in a row do, and so does every third.
        """
        return self.kept > Ledger.GOOD

    @property
    def steady(self) -> bool:
        """Whether nothing speaks against leaving a server with it for good.

        Nobody waits for a better one as long as it keeps the SLO nearly always; good may also be called what
        breaks it in every fifth window.
        """
        return self.windows < Ledger.JUDGED or self.steadily >= Ledger.STEADY

    @property
    def failing(self) -> bool:
        """Whether it breaks the SLO as often as it keeps it, or more."""
        return self.kept <= 0.5


class Ledger:
    """Trials by load level and configuration number."""

    NEWEST = 0.4
    """Least weight of the newest window in the mean cost."""
    NEWEST_KEPT, GOOD = 0.15, 0.75
    """Least weight of the newest window in the share that kept the SLO, and what that share must exceed."""
    NEWEST_STEADY, STEADY, JUDGED = 0.02, 0.9, 20
    """The same in the long run, what that share must reach, and windows before it is judged."""

    def __init__(self) -> None:
        self._trials: dict[int, dict[int, Trial]] = {}

    def record(self, level: int, configuration: int, cost: float, kept: bool) -> None:
        """Add one window."""
        trial = self._trials.setdefault(level, {}).setdefault(configuration, Trial())
        trial.windows += 1
        weight = max(1.0 / trial.windows, self.NEWEST)
        trial.cost = cost if trial.windows == 1 else (1 - weight) * trial.cost + weight * cost
        trial.kept += max(1.0 / trial.windows, self.NEWEST_KEPT) * (kept - trial.kept)
        trial.steadily += max(1.0 / trial.windows, self.NEWEST_STEADY) * (kept - trial.steadily)
        trial.ever_kept |= kept

    def trial(self, level: int, configuration: int) -> Trial | None:
        """Return what is known of a configuration under a load level."""
        return self._trials.get(level, {}).get(configuration)

    def achievable(self, level: int) -> bool:
        """Whether any configuration has kept the SLO under this load."""
        return any(trial.ever_kept for trial in self._trials.get(level, {}).values())

    def tried(self, level: int) -> list[int]:
        """Configurations tried under this load, least cost first."""
        trials = self._trials.get(level, {})
        return sorted(trials, key=lambda c: (trials[c].cost, c))

    def least(self, level: int) -> float:
        """Return the least mean cost under a load; NaN if nothing was tried."""
        return min((trial.cost for trial in self._trials.get(level, {}).values()), default=math.nan)

    def visits(self) -> dict[int, dict[int, int]]:
        """Windows per load level and configuration."""
        return {level: {c: t.windows for c, t in trials.items()} for level, trials in self._trials.items()}

    def good(self, level: int) -> list[int]:
        """Configurations known to keep the SLO under this load, least cost first."""
        trials = self._trials.get(level, {})
        return sorted((c for c, t in trials.items() if t.good), key=lambda c: (trials[c].cost, c))

    def good_above(self, level: int) -> list[int]:
        """As :meth:`good`, under the nearest heavier load for which any is known: it should do here, too."""
        above = sorted(other for other in self._trials if other > level)
        return next((good for other in above if (good := self.good(other))), [])

    def begins(self, level: int) -> bool:
        """Whether a load level was just met for the first time, after others."""
        windows = sum(trial.windows for trial in self._trials.get(level, {}).values())
        return windows == 1 and len(self._trials) > 1
