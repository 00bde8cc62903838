"""Whether a change is made up for before the load moves on: what it costs, and how long a load lasts.

While a server is changed, and until its new instances have taken over, nothing is measured and its users may
wait: every window lost so counts as one that is just within the SLO (a cost of 1). Against it stands what the
change gains per window, for as long as the load is expected to stay. That is as long as it stayed before
under this level; where that is not known or already over, as long again as it has stayed so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.knobs import ApplyCost

__all__ = ["Payback"]

NEWEST = 0.3
"""Least weight of the newest change, or stay, in a mean."""


@dataclass(slots=True)
class _Mean:
    """A mean in which the newer weighs more."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(1.0 / self.count, NEWEST) * (value - self.value)


class Payback:
    """Is told of every window and every change, and weighs the next change."""

    def __init__(self) -> None:
        self._lost: dict[ApplyCost, _Mean] = {}
        self._stays: dict[int, _Mean] = {}
        self._level: int | None = None
        self._elapsed = 0
        self._end: float | None = None
        self._changing: ApplyCost | None = None

    def lost(self, cost: ApplyCost) -> float:
        """Return the windows that a change of a kind costs; 0 before the first."""
        return self._lost[cost].value if cost in self._lost else 0.0

    @property
    def remaining(self) -> float:
        """Windows for which the present load is expected to stay."""
        usual = self._stays[self._level].value if self._level in self._stays else 0.0
        return max(usual - self._elapsed, float(self._elapsed))

    def window(self, start: float, end: float) -> float:
        """A window was measured, whether or not it is of use.

        Args:
            start: When it began, s.
            end: When it ended, s.

        Returns:
            Windows lost to a change since the one before.
        """
        lost = 0.0
        if self._changing is not None and self._end is not None and end > start:
            lost = max(start - self._end, 0.0) / (end - start)
            self._lost.setdefault(self._changing, _Mean()).add(lost)
        self._changing = None
        self._end = end
        return lost

    def load(self, level: int) -> None:
        """It was measured under a load level.

        The next level is the same load still: short windows of a steady one fall now here, now there.
        """
        if self._level is None or abs(level - self._level) > 1:
            if self._level is not None:
                self._stays.setdefault(self._level, _Mean()).add(self._elapsed)
            self._level, self._elapsed = level, 0
        self._elapsed += 1

    def unseen(self) -> None:
        """No window was measured: how much of the gap a change takes is not known."""
        self._changing = self._end = None

    def changed(self, cost: ApplyCost) -> None:
        """The server has been changed since the last window."""
        self._changing = cost

    def worth(self, gain: float, cost: ApplyCost) -> bool:
        """Return whether a change pays for itself.

        Args:
            gain: Cost per window that it saves.
            cost: What kind of change it is.
        """
        return gain * self.remaining >= self.lost(cost)
