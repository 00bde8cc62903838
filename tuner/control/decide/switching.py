"""The switching cost: whether a change of the server pays for itself before the load moves on.

While a server is changed, and until its new instances have taken over, its users may wait. The requests
that wait count like those of a window that just breaks the SLO. Against it stands what the change gains per
window, for as long as the present load is expected to stay: as long as it stayed before under this level or,
where that is not known or already over, as long again as it has stayed so far.

Then comes the load that followed the last time, under which the new configuration may be worse than the
present one. Either the server is changed back in the first window that shows it, which costs that window and
another change; or the new configuration stays. Then what it loses there counts as well, and so does its
effect on both loads for as many times as the present load has come and gone so far.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from tuner.agents.load_levels import same_neighbours
from tuner.knobs import ApplyCost

__all__ = ["Following", "SwitchingCost"]

NEWEST = 0.3
"""Least weight of the newest change, or stay, in a mean."""
CHANCE = 3.0
"""Standard deviations by which a number of requests may differ by chance."""


@dataclass(slots=True)
class _Mean:
    """A mean in which newer values weigh more."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(1.0 / self.count, NEWEST) * (value - self.value)


@dataclass(slots=True)
class _Stay:
    """The windows under one load; sums."""

    windows: int = 0
    levels: int = 0
    requests: float = 0.0

    @property
    def level(self) -> int:
        """The mean load level."""
        return round(self.levels / self.windows)

    def add(self, level: int, requests: float) -> None:
        self.windows += 1
        self.levels += level
        self.requests += requests

    def left_by(self, level: int, requests: float) -> bool:
        """Whether the load has moved beyond the next level, and farther than chance explains.

        Neighbours that come or go are another load at once.
        """
        usual = self.requests / self.windows
        deviation = math.sqrt(usual + usual / self.windows)  # of a Poisson count from a mean of such counts
        moved = abs(level - self.level) > 1 and abs(requests - usual) > CHANCE * deviation
        return moved or not same_neighbours(level, self.level)


class Following(NamedTuple):
    """The load that is expected after the present one."""

    level: int
    windows: float
    """For how long it is expected to stay."""


class SwitchingCost:
    """Estimates whether a configuration change pays for itself before the load changes again.

    Args:
        broken: Cost of a window that just breaks the SLO: that of a window lost to a change.
    """

    def __init__(self, broken: float = 1.0) -> None:
        self._broken = broken
        self._lost: dict[ApplyCost, _Mean] = {}
        self._stays: dict[int, _Mean] = {}
        self._followed: dict[int, int] = {}
        self._left: int | None = None  # the load before, unless it lasted one window only
        self._now: _Stay | None = None
        self._changing: ApplyCost | None = None

    def lost(self, cost: ApplyCost) -> float:
        """Return the windows' requests that a kind of change delays; 0 before the first."""
        return self._lost[cost].value if cost in self._lost else 0.0

    @property
    def remaining(self) -> float:
        """Windows for which the present load is expected to stay."""
        elapsed = self._now.windows if self._now is not None else 0
        return max(self._usual().value - elapsed, float(elapsed))

    @property
    def following(self) -> Following | None:
        """The load that came after the present one the last time; None if that has not happened yet."""
        here = _near(self._followed, self._now.level) if self._now is not None else None
        if here is None:
            return None
        level = self._followed[here]
        return Following(level, self._stays[level].value)

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

    def _usual(self) -> _Mean:
        """How long the present load stayed before, and how often; zeros if that is not known."""
        here = _near(self._stays, self._now.level) if self._now is not None else None
        return _Mean() if here is None else self._stays[here]

    # Commands.

    def window(self, lost: float) -> None:
        """A window was measured: the change before it, if there was one, delayed its requests."""
        if self._changing is not None:
            self._lost.setdefault(self._changing, _Mean()).add(lost)
        self._changing = None

    def load(self, level: int, requests: float) -> None:
        """The window was measured under a load level, with a number of requests.

        The level beside is still the same load, and so is any that chance explains: the rates of windows with
        few requests scatter.
        """
        if self._now is None or self._now.left_by(level, requests):
            self._leave()
            self._now = _Stay()
        self._now.add(level, requests)

    def _leave(self) -> None:
        """Remember how long the present load stayed, and after which one it came."""
        if self._now is None:
            return
        self._stays.setdefault(self._now.level, _Mean()).add(self._now.windows)
        if self._now.windows > 1:  # a window in which the load moves belongs to neither load
            if self._left is not None:
                self._followed[self._left] = self._now.level
            self._left = self._now.level

    def unseen(self) -> None:
        """No window was measured, so that nothing is known of what the change before it delayed."""
        self._changing = None

    def changed(self, cost: ApplyCost) -> None:
        """The server was changed since the last window."""
        self._changing = cost


def _near(known: Collection[int], level: int) -> int | None:
    """Return a load level if it is known, or else a known one beside it."""
    return next((one for one in (level, level + 1, level - 1) if one in known), None)
