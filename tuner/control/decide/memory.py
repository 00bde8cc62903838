"""What the control loop remembers: one record for each load level, and how changes of the server went.

Questions do not change it; the commands in the lower half of :class:`Memory` do.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tuner.agents.load_levels import same_neighbours
from tuner.control.decide.limits import GuardLimits
from tuner.control.decide.switching import SwitchingCost
from tuner.knobs import ApplyCost, Configuration

__all__ = ["HOUR", "ConfigurationRecord", "LevelRecord", "Memory", "Probation", "Search"]

HOUR = 3600.0
"""s."""
NEWEST_COST = 0.4
"""Least weight of the newest window in a mean cost: servers change, so old windows must fade."""
NEWEST_KEPT, GOOD = 0.15, 0.75
"""Least weight of the newest window in the share that kept the SLO, and what that share must exceed: one
broken window after several good ones is chance, two in a row or every third are not."""
NEWEST_STEADY, STEADY, JUDGED = 0.02, 0.9, 20
"""The same over a longer time, what that share must reach, and the windows before it is judged."""
KINDS = {ApplyCost.IN_PLACE: "changes in place", ApplyCost.RELOAD: "reloads", ApplyCost.RESTART: "restarts"}


@dataclass(slots=True)
class ConfigurationRecord:
    """All windows of one configuration under one load level."""

    windows: int = 0
    cost: float = math.nan
    """Mean cost; newer windows weigh more."""
    kept: float = 0.0
    """Share of windows that kept the SLO; newer windows weigh more."""
    ever_kept: bool = False
    steadily: float = 1.0
    """As ``kept``, over a longer time."""

    @property
    def good(self) -> bool:
        """Whether it keeps the SLO, as far as is known."""
        return self.kept > GOOD

    @property
    def steady(self) -> bool:
        """Whether a server may be left with it for good: it keeps the SLO in nine windows of ten."""
        return self.windows < JUDGED or self.steadily >= STEADY

    @property
    def failing(self) -> bool:
        """Whether it breaks the SLO at least as often as it keeps it."""
        return self.kept <= 0.5

    def add(self, cost: float, kept: bool) -> None:
        """Add a window."""
        self.windows += 1
        weight = max(1.0 / self.windows, NEWEST_COST)
        self.cost = cost if self.windows == 1 else (1 - weight) * self.cost + weight * cost
        self.kept += max(1.0 / self.windows, NEWEST_KEPT) * (kept - self.kept)
        self.steadily += max(1.0 / self.windows, NEWEST_STEADY) * (kept - self.steadily)
        self.ever_kept |= kept


@dataclass(slots=True)
class Search:
    """The search for a better configuration under one load level."""

    best: float
    """Least cost of a tried configuration when it last improved; NaN if there was none."""
    since: int = 0
    """Windows since then."""
    over: int = 0
    """Windows since the search ended."""
    repeats: int = 0
    """How often the search began again without finding anything better."""

    def add(self, best: float, limits: GuardLimits, *, good: bool) -> None:
        """Add a window.

        A search that is over begins again if what runs does not keep the SLO steadily. Where nothing can,
        each repetition waits twice as long, up to ``review`` windows: else the changes would never end.

        Args:
            best: Least cost of a tried configuration; NaN if there is none.
            limits: How long a search may last.
            good: Whether a configuration is known to keep the SLO, and what runs does so steadily.
        """
        self.since += 1
        if best < self.best * (1 - limits.gain):
            self.best, self.since, self.over, self.repeats = best, 0, 0, 0
        elif self.since > limits.patience:
            self.over += 1
            if not good and self.over > min(limits.patience * 2**self.repeats, limits.review):
                self.best, self.since, self.over, self.repeats = best, 0, 0, self.repeats + 1


@dataclass(slots=True)
class LevelRecord:
    """What is known of one load level."""

    configurations: dict[int, ConfigurationRecord] = field(default_factory=dict)
    """By the number of the configuration."""
    bans: dict[int, int] = field(default_factory=dict)
    """Configurations that were rolled back, and the window until which they are not tried again."""
    search: Search | None = None

    @property
    def tried(self) -> list[int]:
        """Configurations that were tried, least cost first."""
        return sorted(self.configurations, key=lambda c: (self.configurations[c].cost, c))

    @property
    def good(self) -> list[int]:
        """Configurations that keep the SLO, as far as is known, least cost first."""
        return [c for c in self.tried if self.configurations[c].good]

    @property
    def least(self) -> float:
        """Least mean cost of a tried configuration; NaN if there is none."""
        return min((one.cost for one in self.configurations.values()), default=math.nan)

    @property
    def achievable(self) -> bool:
        """Whether any configuration has ever kept the SLO here."""
        return any(one.ever_kept for one in self.configurations.values())

    def steady(self, configuration: int) -> bool:
        """Whether nothing speaks against leaving the server with a configuration."""
        one = self.configurations.get(configuration)
        return one is None or one.steady


@dataclass(frozen=True, slots=True)
class Probation:
    """A change that the next usable window judges."""

    previous: Configuration
    """What the server ran before."""
    failure_share: float
    """Share of requests that failed before the change."""


class Memory:
    """What is known of a server, its loads and its changes.

    Args:
        limits: How careful the loop is.
        broken: Cost of a window that just breaks the SLO.
    """

    def __init__(self, limits: GuardLimits, broken: float) -> None:
        self.limits = limits
        self.levels: dict[int, LevelRecord] = {}
        self.switching = SwitchingCost(broken)
        self.probation: Probation | None = None
        self.cooldown = 0
        """Windows for which the server is left alone after a change."""
        self.failure_share = 0.0
        """Of the last window that left the server as it was."""
        self.windows = 0
        self.blind = 0
        """Windows without usable metrics in a row."""
        self.frozen = False
        self.thawed = 0
        """Usable windows since then."""
        self.failures = 0
        """Changes in a row that failed."""
        self.pause = 0
        """Windows until the next change may be tried after such failures."""
        self._charged: deque[float] = deque(maxlen=limits.horizon)
        self._lost = 0.0  # windows lost to changes that are not charged yet
        self._changes: dict[ApplyCost, deque[float]] = {kind: deque() for kind in KINDS}

    def at(self, level: int) -> LevelRecord:
        """Return what is known of a load level; an empty record if nothing is."""
        return self.levels.get(level) or LevelRecord()

    def visits(self) -> dict[int, dict[int, int]]:
        """Return the windows per load level and configuration."""
        return {
            level: {number: one.windows for number, one in record.configurations.items()}
            for level, record in self.levels.items()
            if record.configurations
        }

    def good_above(self, level: int) -> list[int]:
        """Return what keeps the SLO under the nearest heavier load where anything does, least cost first."""
        heavier = sorted(other for other in self.levels if other > level and same_neighbours(other, level))
        return next((good for other in heavier if (good := self.levels[other].good)), [])

    def begins(self, level: int) -> bool:
        """Whether the last window was the first under its load level, and not the first of all."""
        windows = sum(one.windows for one in self.at(level).configurations.values())
        return windows == 1 and sum(bool(record.configurations) for record in self.levels.values()) > 1

    def banned(self, level: int) -> list[int]:
        """Return the configurations that are not tried again under a load level yet."""
        return [c for c, until in self.at(level).bans.items() if until > self.windows]

    def search_over(self, level: int) -> bool:
        """Whether to explore is not worth disturbing the server: nothing better was found for a while."""
        search = self.at(level).search
        beyond = search.since - self.limits.patience if search is not None else 0
        return beyond > 0 and beyond % self.limits.review != 0

    @property
    def budget_spent(self) -> bool:
        """Whether no more windows may be put at risk."""
        return sum(self._charged) >= self._allowed * (1 - 1e-9)  # 0.07 * 100 is more than 7

    @property
    def _allowed(self) -> float:
        return self.limits.budget * self.limits.horizon

    def budget_text(self) -> str:
        """Return how much of the error budget is used, in words."""
        return f"{sum(self._charged):.3g} of {self._allowed:g} windows of the SLO error budget used"

    def used_up(self, now: float) -> dict[ApplyCost, str]:
        """Return the kinds of change that this hour has no more of, each with a sentence."""
        most = {
            ApplyCost.IN_PLACE: self.limits.in_place_per_hour,
            ApplyCost.RELOAD: self.limits.reloads_per_hour,
            ApplyCost.RESTART: self.limits.restarts_per_hour,
        }
        recent = {kind: sum(time > now - HOUR for time in times) for kind, times in self._changes.items()}
        return {
            kind: f"the {most[kind]:g} {word} of this hour are used up"
            for kind, word in KINDS.items()
            if recent[kind] >= most[kind]
        }

    # Commands.

    def window_passed(self, start: float, end: float) -> None:
        """A window was measured, usable or not: note how many windows the change before it took."""
        self._lost += self.switching.lost_between(start, end)
        self.switching.window(start, end)

    def record(self, level: int, configuration: int, cost: float, kept: bool) -> None:
        """Record a usable window.

        A window that breaks the SLO is charged to the error budget, and so are windows lost to a change:
        nothing is measured in them, but requests come and may wait. Both are charged only where a
        configuration has kept the SLO under that load: elsewhere there was nothing to lose.
        """
        record = self.levels.setdefault(level, LevelRecord())
        self._charged.append(self._lost + (not kept) if record.achievable else 0.0)
        self._lost = 0.0
        self.windows += 1
        record.configurations.setdefault(configuration, ConfigurationRecord()).add(cost, kept)
        if record.search is None:
            record.search = Search(record.least)
        else:
            good = bool(record.good) and record.steady(configuration)
            record.search.add(record.least, self.limits, good=good)

    def usable(self) -> None:
        """A window had metrics that make sense."""
        self.blind = 0
        self.thawed += 1
        if self.thawed > self.limits.thaw:
            self.frozen = False

    def unusable(self) -> None:
        """A window had no metrics, or metrics that make no sense."""
        self.blind += 1
        self.thawed = 0
        self.frozen |= self.blind >= self.limits.blind

    def changed(self, now: float, cost: ApplyCost) -> None:
        """The driver changed the server."""
        self.count_change(now, cost)
        self.failures = self.pause = 0
        if cost is not ApplyCost.FREE:
            self.switching.changed(cost)

    def count_change(self, now: float, cost: ApplyCost) -> None:
        """Count a change within the hour; times, in s, do not go back."""
        if times := self._changes.get(cost):
            while times and times[0] <= now - HOUR:
                times.popleft()
        if cost in self._changes:
            self._changes[cost].append(now)

    def failed(self) -> None:
        """A change failed: after several in a row none is tried for a while, each time twice as long."""
        self.failures += 1
        beyond = self.failures - self.limits.breaker
        if beyond >= 0:
            self.pause = min(self.limits.breaker_pause * 2**beyond, self.limits.breaker_longest)

    def begin_probation(self, previous: Configuration) -> None:
        """The next usable window judges a change."""
        self.probation, self.cooldown = Probation(previous, self.failure_share), 0

    def end_probation(self, cooldown: int = 0) -> None:
        """Leave the server alone for some windows; nothing is on probation any more."""
        self.probation, self.cooldown = None, cooldown

    def ban(self, level: int, configuration: int) -> None:
        """A configuration was bad under a load: do not try it again there soon."""
        record = self.levels.setdefault(level, LevelRecord())
        record.bans[configuration] = self.windows + self.limits.retry_after
        self.end_probation(self.limits.rollback_cooldown)
