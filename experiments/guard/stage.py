"""The stage of a life: a simulated server with its troubles, and a record of what really happened.

The driver sees backend, profiler and order book; what it is shown may be false, late or missing. What the
clients really got is kept beside it, window by window, and the record is what a life is judged by.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.control.decide.orders import Orders
from tuner.envs.simulator.backend import SimulatedTriton
from tuner.envs.simulator.world import Neighbour
from tuner.errors import Refused, TimedOut, Unreachable
from tuner.experiments.guard.load import Condition, MovingLoad
from tuner.experiments.guard.server import HeldOut
from tuner.experiments.guard.trouble import ABSENCE, BLIND, Troubles
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import Measurement
from tuner.profile import BatchingProfile
from tuner.profiler.profiler import Profiler

__all__ = ["Happened", "Stage"]

NEIGHBOUR = 1.0
"""Cores that foreign processes use while they are there."""
FAILING = 0.02
"""Share of the requests that fail while some do."""
PATIENCE = 5.0
"""How long it takes to learn that nobody hears of a change's end, s."""
SLOWER = 6.0
"""Factor on the execution times with a slow configuration."""
LAG = 4
"""Windows after which the answers to a window's requests are counted."""
DISTURBED, UNSEEN, MIXED = "disturbed windows", "unseen windows", "mixed quantiles"
"""The kinds of windows that are set aside; a variant may take those of a kind as sound."""


class Happened(NamedTuple):
    """What really happened in a window."""

    condition: Condition
    configuration: int
    """The number of what the server ran."""
    cost: float
    kept: bool
    cpu: float
    """cores"""
    latency: float
    """s, the statistic that the SLO bounds."""
    tried: bool
    """Whether the driver changed the server before it."""
    disturbed: bool
    """Whether foreign processes took part, so that it says nothing about the configuration."""


class Stage:
    """A simulated server, what measures it, and its operator, all in one virtual time.

    Args:
        case: The server.
        load: Its load.
        troubles: What goes wrong.
        seed: Of arrivals, noise and failures.
        trusted: Kinds of windows that are set aside, and are shown here as if they were sound.
    """

    def __init__(
        self,
        case: HeldOut,
        load: MovingLoad,
        troubles: Troubles,
        *,
        seed: int,
        trusted: Collection[str] = (),
    ) -> None:
        self.happened: list[Happened | None] = []
        """One for each window; None where there was none."""
        self.changes = 0
        """Changes that the driver made or tried."""
        self.late = self.sent = self.failed = 0
        """Requests that were answered after the bound of the SLO or never, all, and those that failed."""
        self.disobeyed = 0
        """Windows in which an order was not obeyed."""
        self.unsound: set[str] = set()
        """The kinds of windows that there were to set aside."""
        self._sim = SimulatedTriton(case.server, load.schedule, seed=seed, shape=load.shape)
        self._profiler = Profiler(self._sim, clock=self._sim, host=self._sim, clients=self._sim)
        self._case, self._load, self._troubles, self._trusted = case, load, troubles, trusted
        self._random = np.random.default_rng([seed, 1])
        self._number = -1
        self._away_until = -math.inf
        self._blind_until = -1
        self._changed_at = -math.inf
        self._recent: deque[Measurement] = deque()
        self._ends: deque[float] = deque([0.0])
        self._rolled_back = self._changed_now = self._tried = False

    # Backend

    @property
    def space(self) -> KnobSpace:
        """The knobs."""
        return self._sim.space

    @property
    def clock(self) -> SimulatedTriton:
        """The virtual time."""
        return self._sim

    def describe(self) -> Description:
        """Return who this is."""
        return self._sim.describe()

    def current(self) -> Configuration:
        """Return what the server runs.

        Raises:
            Unreachable: It is away.
        """
        if self._sim.now() < self._away_until:
            raise Unreachable("no answer")
        return self._sim.current()

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the server, as far as its troubles allow.

        Raises:
            Refused: The model could not be loaded; that took as long as a change.
            TimedOut: Nobody heard of the end.
        """
        before = self.current()
        fate = self._troubles.changes.get(self._number, "")
        wanted = self.space.effective(configuration)
        self.changes += wanted != before
        self._changed_now |= wanted != before
        if fate == "refused":
            server = self._case.server
            neighbour = self._sim.neighbour
            self._sim.neighbour = replace(neighbour, cores=neighbour.cores + server.reload_cores)
            self._sim.sleep(server.reload_seconds)
            self._sim.neighbour = neighbour
            raise Refused("out of memory")
        if fate == "lost":
            self._sim.sleep(PATIENCE)
            raise TimedOut("no answer")
        report = self._sim.apply(configuration)
        if report.changed:
            self._changed_at = self._sim.now()
        if fate == "blinding" and report.changed:
            self._blind_until = self._number + BLIND
        if fate == "late":
            self._sim.sleep(PATIENCE)
            raise TimedOut("no answer")
        return report

    def counters(self) -> Counters:
        """Return the totals."""
        return self._sim.counters()

    def profile(self) -> BatchingProfile | None:
        """Return l(b)."""
        return self._sim.profile()

    def close(self) -> None:
        """Nothing is held open."""

    # Orders

    def read(self) -> Orders:
        """Return the operator's orders."""
        orders = self._troubles.orders.get(self._number, Orders())
        return replace(orders, rollback=None) if self._rolled_back else orders

    def moved(self, pinned: Configuration, found: Configuration) -> None:
        """Leave a pin where it is: somebody else's change is an accident here."""

    def done(self, rollback: Configuration) -> None:  # noqa: ARG002
        """Strike out an order to roll back."""
        self._rolled_back = True

    # Measurer

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        """Measure a window, and return what the metrics show of it.

        Raises:
            Unreachable: The server went away.
            TimedOut: The metrics did not answer.
        """
        self._begin()
        if self._number in self._troubles.absences:
            self.happened.append(None)
            self._sim.apply(self.space.default)
            self._away_until = self._sim.now() + ABSENCE
            raise Unreachable("no answer")
        m = self._failing(self._profiler.measure(seconds, settle=settle, enough=enough))
        objective = self._case.objective
        self.happened.append(
            Happened(
                condition=self._load.at((m.start + m.end) / 2),
                configuration=self.space.encode(m.configuration),
                cost=objective.cost(m),
                kept=objective.kept(m),
                cpu=m.cpu,
                latency=objective.latency(m),
                tried=self._tried,
                disturbed=bool(m.disturbed) or self._foreign,
            )
        )
        self._count(m)
        return self._shown(m)

    @property
    def _foreign(self) -> bool:
        """Whether foreign processes take part in the window."""
        return self._number in self._troubles.neighbours

    def _begin(self) -> None:
        """Let come what comes before a window."""
        self._check_orders()
        self._number += 1
        self._tried, self._changed_now, self._rolled_back = self._changed_now, False, False
        self._sim.neighbour = Neighbour(cores=NEIGHBOUR if self._foreign else 0.0)
        if (other := self._troubles.takeovers.get(self._number)) is not None:
            self._sim.apply(self.space.decode(other))
            self._changed_at = self._sim.now()
        slow = self.space.encode(self._sim.current()) in self._troubles.slow
        self._sim.slowdown = self._load.at(self._sim.now()).slowdown * (SLOWER if slow else 1.0)

    def _check_orders(self) -> None:
        """Ask after a turn whether it obeyed the order that it read."""
        orders, running = self._troubles.orders.get(self._number, Orders()), self._sim.current()
        possible = self._number not in self._troubles.changes
        wanted = orders.pinned or orders.rollback
        self.disobeyed += bool(orders.paused) and self._changed_now
        self.disobeyed += wanted is not None and possible and running != self.space.effective(wanted)

    def _failing(self, m: Measurement) -> Measurement:
        """Let some requests of a window fail where they do."""
        number = self.space.encode(m.configuration)
        if number not in self._troubles.failing and self._number not in self._troubles.failures:
            return m
        failures = int(self._random.binomial(m.requests, FAILING))
        self.failed += failures
        return replace(m, requests=m.requests - failures, failures=m.failures + failures)

    def _count(self, m: Measurement) -> None:
        """Count the requests of some windows ago, those between windows, too: their answers have come."""
        self._ends.append(m.end)
        if len(self._ends) > LAG:
            begin = self._ends.popleft()
            sample = self._sim.sample(begin, self._ends[0])
            in_time = np.count_nonzero(sample.latency <= self._case.objective.slo.latency)
            self.sent += sample.intended.size
            self.late += sample.intended.size - int(in_time)

    def _shown(self, m: Measurement) -> Measurement:
        """Return what the metrics show of a window."""
        seen = self._number > self._blind_until
        fate = self._troubles.metrics.get(self._number, "") if seen else "missing"
        if fate == "no metrics":
            raise TimedOut("metrics: no answer")
        if self._troubles.memory:
            m = self._looking_back(m)
        if m.disturbed:
            self.unsound.add(DISTURBED)
            m = replace(m, disturbed=()) if DISTURBED in self._trusted else m
        if fate:
            self.unsound.add(UNSEEN)
            m = self._wrong(m, fate, trusted=UNSEEN in self._trusted)
        return m

    def _looking_back(self, m: Measurement) -> Measurement:
        """Show quantiles over the server's memory, which may reach back before a change."""
        self._recent.append(m)
        while self._recent[0].end <= m.end - self._troubles.memory:
            self._recent.popleft()
        weights = [one.requests for one in self._recent]
        p50, p95, p99 = (
            float(np.average([one.latency(name) for one in self._recent], weights=weights))
            for name in ("p50", "p95", "p99")
        )
        mixed = m.end - self._changed_at < self._troubles.memory
        if mixed:
            self.unsound.add(MIXED)
        return replace(
            m,
            latency_p50=p50,
            latency_p95=p95,
            latency_p99=p99,
            quantiles_from="server",
            quantiles_mixed=mixed and MIXED not in self._trusted,
        )

    def _wrong(self, m: Measurement, fate: str, *, trusted: bool) -> Measurement:
        """Falsify a window.

        Taken as sound, false figures are merely too good; missing ones cannot be taken as anything.
        """
        if fate == "missing":
            return replace(
                m, latency_mean=math.nan, latency_p50=math.nan, latency_p95=math.nan, latency_p99=math.nan
            )
        factor = 0.1 if trusted else -1.0
        return replace(m, latency_p95=factor * m.latency_p95)
