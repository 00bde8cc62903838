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

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from tuner.knobs import ApplyCost

__all__ = ["Following", "Payback"]

NEWEST = 0.3
"""Least weight of the newest change, or stay, in a mean."""
CHANCE = 3.0
"""Standard deviations that a number of requests may be off by chance."""


@dataclass(slots=True)
class _Mean:
    """A mean in which the newer weighs more."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(1.0 / self.count, NEWEST) * (value - self.value)


@dataclass(slots=True)
class _Stay:
    """Windows under one load."""

    windows: int = 0
    levels: int = 0
    requests: float = 0.0
    """Sums."""

    @property
    def level(self) -> int:
        """That of the usual window."""
        return round(self.levels / self.windows)

    def add(self, level: int, requests: float) -> None:
        self.windows += 1
        self.levels += level
        self.requests += requests

    def left_by(self, level: int, requests: float) -> bool:
        """Whether the load has moved: farther than to the next level, and than chance explains."""
        usual = self.requests / self.windows
        deviation = math.sqrt(usual + usual / self.windows)  # of a Poisson count from a mean of such counts
        return abs(level - self.level) > 1 and abs(requests - usual) > CHANCE * deviation


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
        self._now: _Stay | None = None
        self._end: float | None = None
        self._changing: ApplyCost | None = None

    def lost(self, cost: ApplyCost) -> float:
        """Return the windows that a change of a kind costs; 0 before the first."""
        return self._lost[cost].value if cost in self._lost else 0.0

    @property
    def remaining(self) -> float:
        """Windows for which the present load is expected to stay."""
        elapsed = self._now.windows if self._now is not None else 0
        return max(self._usual().value - elapsed, float(elapsed))

    @property
    def following(self) -> Following | None:
        """Return what came after the present load the last time it was left; None before that."""
        here = _near(self._followed, self._now.level) if self._now is not None else None
        if here is None:
            return None
        level = self._followed[here]
        return Following(level, self._stays[level].value)

    def _usual(self) -> _Mean:
        """For how many windows the present load stayed before, and how often; 0 if that is not known."""
        here = _near(self._stays, self._now.level) if self._now is not None else None
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

    def load(self, level: int, requests: float) -> None:
        """It was measured under a load level, and so many requests came in it.

        The level beside is the same load still, and so is any that chance explains: a window of few requests
        falls now here, now there.
        """
        if self._now is None or self._now.left_by(level, requests):
            self._leave()
            self._now = _Stay()
        self._now.add(level, requests)

    def _leave(self) -> None:
        """Remember how long the present load stayed, and what it came after."""
        if self._now is None:
            return
        self._stays.setdefault(self._now.level, _Mean()).add(self._now.windows)
        if self._now.windows > 1:  # a window in which the load moves is of neither
            if self._left is not None:
                self._followed[self._left] = self._now.level
            self._left = self._now.level

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
        stay, worse = self._usual(), after * following.windows
        keep = stay.count * (gain * stay.value - worse) - worse
        return now + max(keep, -change - after) >= 0


def _near(known: Collection[int], level: int) -> int | None:
    """Return a load level if it is known, or else one beside it."""
    return next((one for one in (level, level + 1, level - 1) if one in known), None)
