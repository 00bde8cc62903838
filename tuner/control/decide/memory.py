"""What the control loop remembers: one record for each load level, and how changes of the server went.

Questions do not change it; the commands in the lower half of :class:`Memory` do.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.control.decide.evidence import ConfigurationRecord, FailedRequests, Spread
from tuner.control.decide.limits import GuardLimits
from tuner.knobs import ApplyCost, Configuration

__all__ = ["HOUR", "LevelRecord", "Memory", "Probation", "Search"]

HOUR = 3600.0
"""s."""
KEPT_BACK = 0.25
"""Share of an hour's reloads and restarts that only a broken SLO may use: a search under a low load must not
use up what the next high load needs."""
HORIZON = 100
"""Windows that the error budget looks back."""
LITTLE = 2
"""Windows up to which little is known of a configuration."""
MOST_DOUBLINGS = 6
"""Of a ban."""
OPEN, LONGEST_OPEN = 5, 320
"""Turns for which the circuit breaker is open at first, and at most."""


@dataclass(slots=True)
class Search:
    """The search for a better configuration under one load level."""

    best: float = math.nan
    """Least cost of a tried configuration when it last improved; NaN before the first."""
    tries: int = 0
    """Windows since then whose configuration was little known."""

    def add(self, best: float, spread: float, *, tried: bool, lost: bool) -> None:
        """Add a window.

        Args:
            best: Least cost of a tried configuration.
            spread: Relative deviation of single windows: a smaller gain is none.
            tried: Whether little was known of the configuration of the window.
            lost: Whether that configuration kept the SLO before and no longer does: the search begins again.
        """
        if lost or not best >= self.best * (1 - spread):
            self.best, self.tries = best, 0
        else:
            self.tries += tried


@dataclass(slots=True)
class LevelRecord:
    """What is known of one load level."""

    configurations: dict[int, ConfigurationRecord] = field(default_factory=dict)
    """By the number of the configuration."""
    bans: dict[int, int] = field(default_factory=dict)
    """Configurations that were rolled back, and the window until which they are not tried again."""
    banned_in_a_row: dict[int, int] = field(default_factory=dict)
    """How often each of these was banned since a window last let it stay."""
    search: Search = field(default_factory=Search)

    @property
    def tried(self) -> list[int]:
        """Configurations that were tried, least cost first."""
        return sorted(self.configurations, key=lambda c: (self.configurations[c].cost, c))

    @property
    def good(self) -> list[int]:
        """Configurations that keep the SLO, as far as is known, least cost first."""
        return [c for c in self.tried if self.configurations[c].good]


class Probation(NamedTuple):
    """A change that the next usable window judges."""

    previous: Configuration
    """What the server ran before."""
    failed_requests: FailedRequests
    """In the last usable window before the change."""
    restores: bool = False
    """Whether it put back what the server had lost."""


class Memory:
    """What is known of a server, its loads and its changes.

    Args:
        limits: How careful the loop is.
        broken: Cost of a window that just breaks the SLO.
    """

    def __init__(self, limits: GuardLimits, broken: float) -> None:
        self.limits = limits
        self.broken = broken
        self.levels: dict[int, LevelRecord] = {}
        self.spread = Spread()
        self.probation: Probation | None = None
        self.failed_requests = FailedRequests()
        """Those of the last window that was not rolled back; changes are judged by them."""
        self.windows = 0
        self.failed_changes = 0
        """Changes in a row that failed."""
        self.deaths = 0
        """New changes in a row that the server died of, as far as is known, before a window judged them."""
        self.failed_repairs = 0
        """Changes in a row that were to put back what the server had lost, and failed."""
        self.lost_in_a_row = 0
        """How often the last good configuration was lost, and put back, without a whole window in between."""
        self.breaker_open_for = 0
        """Turns for which the circuit breaker stays open, and no change is tried; 0 while it is closed."""
        self._allowed = limits.budget * HORIZON
        self._charged: deque[float] = deque(maxlen=HORIZON)
        self._lost = 0.0  # windows lost to changes that are not charged yet
        self._changes: list[tuple[float, ApplyCost]] = []  # within the hour before the last of them
        self._any_load = LevelRecord()  # bans made while no load level was known

    def at(self, level: int | None) -> LevelRecord:
        """Return what is known of a load level; an empty record if nothing is."""
        return (self.levels.get(level) if level is not None else None) or LevelRecord()

    def visits(self) -> dict[int, dict[int, int]]:
        """Return the windows per load level and configuration."""
        return {
            level: {number: one.windows for number, one in record.configurations.items()}
            for level, record in self.levels.items()
            if record.configurations
        }

    def incumbent(self, level: int | None) -> int | None:
        """Return the best of those tried under a load level by evidence, such as to leave a server with.

        That is the one with the least cost at worst, of those that keep the SLO if there are any. None if
        nothing was tried, or all of those are banned: what was rolled back is not gone back to.
        """
        record = self.at(level)
        return self.best_of(level, self.not_banned(level, record.good or record.tried))

    def best_of(self, level: int | None, choices: list[int]) -> int | None:
        """Return the choice whose worst cost under a load level is least; None without choices."""
        known, spread = self.at(level).configurations, self.spread.deviation
        return min(choices, key=lambda c: (known[c].worst(spread, self.broken), c), default=None)

    def clearly_cheaper(self, level: int, better: int, worse: int) -> bool:
        """Whether one configuration costs less than another by more than chance explains."""
        known, spread = self.at(level).configurations, self.spread.deviation
        gain = known[worse].cost - known[better].cost
        return gain > math.hypot(known[worse].error(spread), known[better].error(spread))

    def first_window_of_load(self, level: int) -> bool:
        """Whether the last window was the first under this load level, after windows under others."""
        windows = sum(one.windows for one in self.at(level).configurations.values())
        return windows == 1 and sum(bool(record.configurations) for record in self.levels.values()) > 1

    def banned(self, level: int | None) -> list[int]:
        """Return the configurations that are not tried again under a load level yet."""
        bans = self.at(level).bans.items() | self._any_load.bans.items()
        return sorted({c for c, until in bans if until > self.windows})

    def not_banned(self, level: int | None, choices: list[int]) -> list[int]:
        """Return those of some choices that may be tried under a load level."""
        banned = self.banned(level)
        return [c for c in choices if c not in banned]

    def bans(self) -> list[tuple[int | None, int, int, int]]:
        """Return each ban: load level, configuration, windows that are left of it, and times in a row.

        The level is None where the ban holds under every load.
        """
        records: list[tuple[int | None, LevelRecord]] = [(None, self._any_load), *self.levels.items()]
        return [
            (level, one, max(until - self.windows, 0), record.banned_in_a_row.get(one, 0))
            for level, record in records
            for one, until in record.bans.items()
            if until > self.windows or one in record.banned_in_a_row
        ]

    def search_over(self, level: int) -> bool:
        """Whether exploration has ended: in ``patience`` windows nothing better was found."""
        return self.at(level).search.tries > self.limits.patience

    @property
    def budget_spent(self) -> bool:
        """Whether no more windows may be put at risk."""
        return sum(self._charged) >= self._allowed * (1 - 1e-9)  # 0.07 * 100 is more than 7

    def burning(self, windows: int, rate: float) -> bool:
        """Whether the last windows spent the error budget at this multiple of the rate at which it lasts."""
        last = list(self._charged)[-windows:]
        return bool(last) and sum(last) >= rate * self.limits.budget * len(last)

    @property
    def holds_repairs(self) -> bool:
        """Whether the circuit breaker also holds what puts back what the server lived with.

        Not where it has opened for deaths, until the server refuses that, too.
        """
        refuses = self.deaths < self.limits.breaker or self.failed_repairs >= self.limits.breaker
        return refuses and self.breaker_open_for > 0

    def budget_text(self) -> str:
        """Return how much of the error budget is used, in words."""
        return f"{sum(self._charged):.3g} of {self._allowed:g} windows of the SLO error budget used"

    def used_up(self, now: float, *, kept: bool) -> dict[ApplyCost, str]:
        """Return the kinds of change whose limit for this hour is used up, each with a sentence.

        Args:
            now: s.
            kept: Whether the SLO is kept: then some changes are held back for when it is broken.
        """
        most = {
            ApplyCost.RELOAD: (self.limits.reloads_per_hour, "reloads"),
            ApplyCost.RESTART: (self.limits.restarts_per_hour, "restarts"),
        }
        recent = Counter(kind for time, kind in self._changes if time > now - HOUR)
        return {
            kind: f"the {number:g} {word} of this hour are used up"
            + (f" but for {left} that are kept for a broken SLO" if left > 0 else "")
            for kind, (number, word) in most.items()
            if (left := number - recent[kind]) <= KEPT_BACK * number * kept
        }

    # Commands.

    def window_passed(self, lost: float) -> None:
        """A window was measured; the change before it delayed the requests of ``lost`` windows."""
        self._lost += lost

    def record(
        self,
        level: int,
        configuration: int,
        cost: float,
        probability: float,
        *,
        new: bool = True,
        searching: bool = True,
        charged: bool = True,
    ) -> None:
        """Record a usable window, which kept the SLO with this probability.

        Bans wait for new windows only, not for those of earlier lives. The search does not end by windows in
        which nothing could have been tried: not while somebody only watches, or the server refuses changes.

        A window that breaks the SLO is charged to the error budget, and so are requests that a change
        delayed. Both are charged only where a configuration keeps the SLO under that load: elsewhere there
        was nothing to lose. Windows under an earlier objective are not charged: it was not theirs to keep
        this SLO.
        """
        record = self.levels.setdefault(level, LevelRecord())
        if charged:
            self._charged.append(self._lost + (probability < 0.5) if record.good else 0.0)
        self._lost = 0.0
        self.windows += new
        one = record.configurations.setdefault(configuration, ConfigurationRecord())
        was_good = one.windows > 0 and one.good
        self.spread.add(cost, one)
        one.add(cost, probability)
        if not (self.budget_spent and one.good):
            least = record.configurations[record.tried[0]].cost
            tried, lost = one.windows <= LITTLE or (new and not one.good), was_good and not one.good
            record.search.add(least, self.spread.deviation, tried=tried and searching, lost=lost)

    def changed(self, now: float, cost: ApplyCost, *, restores: bool = False) -> None:
        """The driver changed the server.

        That it has got back what it lost when it died does not say that it bears the next change.
        """
        self.count_change(now, cost)
        self.failed_repairs = 0
        if not (restores and self.deaths >= self.limits.breaker):
            self.failed_changes = self.breaker_open_for = 0

    def count_change(self, now: float, cost: ApplyCost) -> None:
        """Count a change within the hour; times, in s, do not go back."""
        self._changes = [*(one for one in self._changes if one[0] > now - HOUR), (now, cost)]

    def failed(self, *, repair: bool = False) -> None:
        """A change failed: after several in a row none is tried for a while, each time twice as long."""
        self.failed_changes += 1
        self.failed_repairs += repair
        beyond = self.failed_changes - self.limits.breaker
        if beyond >= 0:
            self.breaker_open_for = min(OPEN * 2**beyond, LONGEST_OPEN)

    def died(self) -> None:
        """A change failed that had come about: the server died of it, or somebody has undone it at once."""
        self.deaths += 1
        self.failed_changes = max(self.failed_changes, self.deaths - 1)
        self.failed()

    def turn_passed(self) -> None:
        """A turn has ended, with or without a window: the circuit breaker counts turns."""
        self.breaker_open_for = max(self.breaker_open_for - 1, 0)

    def ban(self, level: int | None, configuration: int, *, least: int = 0) -> None:
        """End the probation, and ban a configuration under a load for ``retry_after`` windows.

        An agent may choose it again and again: it learns nothing from a server that died of it, and may find
        cheap what fails requests. So each further ban lasts twice as long, until a window lets it stay.

        Args:
            level: The load level. While none is known, the ban holds under every load.
            configuration: What is banned.
            least: For how many windows at least.
        """
        self.probation = None
        record = self._records_bans(level)
        before = record.banned_in_a_row.get(configuration, 0)
        record.banned_in_a_row[configuration] = before + 1
        windows = self.limits.retry_after * 2 ** min(before, MOST_DOUBLINGS)
        record.bans[configuration] = self.windows + max(windows, least)

    def _records_bans(self, level: int | None) -> LevelRecord:
        return self._any_load if level is None else self.levels.setdefault(level, LevelRecord())

    def ban_again(self, level: int | None, configuration: int, windows: int, times: int) -> None:
        """Take over one of the :meth:`bans` of an earlier life."""
        record = self._records_bans(level)
        record.bans[configuration] = self.windows + windows
        if times:
            record.banned_in_a_row[configuration] = times

    def stays(self, level: int, configuration: int, *, judged: bool = False) -> None:
        """A usable window let a configuration stay: if it is banned again, that is the first time.

        Args:
            level: The load level.
            configuration: What runs.
            judged: Whether the window has judged the change to it. Then no ban of before speaks against it
                any more, such as that of a change that had failed as far as anybody saw, and came about late.
        """
        for record in (self.at(level), self._any_load):
            if judged:
                record.bans.pop(configuration, None)
            record.banned_in_a_row.pop(configuration, None)
