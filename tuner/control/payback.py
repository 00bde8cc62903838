"""Whether a change is made up for before the load moves on: what it costs, and how long a load lasts.

While a server is changed, and until its new instances have taken over, nothing is measured and its users may
wait: every window lost so counts as one that just breaks the SLO. Against it stands what the change gains
per window, for as long as the load is expected to stay. That is as long as it stayed before under this level;
where that is not known or already over, as long again as it has stayed so far.

Then comes the load that followed the last time, under which the new configuration may be worse than the
present one. Either it is changed back in the first window that shows it, which costs that window and another
change, or it is kept: then what it loses there counts as well, and so does what it makes of both loads as
often again as the present one has come and gone so far.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from tuner.knobs import ApplyCost

__all__ = ["Following", "Payback"]

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


class Following(NamedTuple):
    """The load that is expected after the present one."""

    level: int
    windows: float
    """For how many it is expected to stay."""


class Payback:
    """Is told of every window and every change, and weighs the next change.

    Args:
        broken: Cost of a window that just breaks the SLO: that of one lost to a change.
    """

    def __init__(self, broken: float = 1.0) -> None:
        self._broken = broken
        self._lost: dict[ApplyCost, _Mean] = {}
        self._stays: dict[int, _Mean] = {}
        self._followed: dict[int, int] = {}
        self._left: int | None = None  # the load before, unless it was met in passing
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
        return max(self._stay(self._level).value - self._elapsed, float(self._elapsed))

    @property
    def following(self) -> Following | None:
        """Return what came after the present load the last time it was left; None before that."""
        here = _near(self._followed, self._level)
        return (
            None if here is None else Following(self._followed[here], self._stay(self._followed[here]).value)
        )

    def _stay(self, level: int | None) -> _Mean:
        """For how many windows a load stayed before, and how often; 0 if that is not known."""
        here = _near(self._stays, level)
        return _Mean() if here is None else self._stays[here]

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
                self._left = self._level if self._elapsed > 1 else self._left
            self._level, self._elapsed = level, 0
        self._elapsed += 1
        if self._elapsed == 2 and self._left is not None:  # a window in which the load moves is of neither
            self._followed[self._left] = self._level

    def unseen(self) -> None:
        """No window was measured: how much of the gap a change takes is not known."""
        self._changing = self._end = None

    def changed(self, cost: ApplyCost) -> None:
        """The server has been changed since the last window."""
        self._changing = cost

    def worth(self, gain: float, cost: ApplyCost, *, after: float = 0.0) -> bool:
        """Return whether a change pays for itself.

        Args:
            gain: Cost per window that it saves under the present load.
            cost: What kind of change it is.
            after: Cost per window that it adds under the load that follows.
        """
        change, following = self._broken * self.lost(cost), self.following
        now = gain * self.remaining - change
        if following is None:
            return now >= 0
        stay, worse = self._stay(self._level), after * following.windows
        keep = stay.count * (gain * stay.value - worse) - worse
        return now + max(keep, -change - after) >= 0


def _near(known: Collection[int], level: int | None) -> int | None:
    """Return a load level if it is known, or else one beside it: short windows fall now here, now there."""
    near = () if level is None else (level, level + 1, level - 1)
    return next((one for one in near if one in known), None)
