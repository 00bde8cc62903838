"""The objective that is minimised. The only place where a cost or a reward is defined.

A cost is a number near 1 without a unit, so that agents need no scaling for each model. It depends on the
goal:

* ``latency``: the latency statistic over the SLO; 1 is just at the SLO.
* ``strict``: the same while the SLO is kept; a broken SLO (or a failed request) costs 1 more. So a
  configuration that sometimes breaks the SLO costs more than by ``latency``, even if it is fast on average.
* ``cpu`` and ``gpu``: the share of the cores that the server may use (or of the GPU's time) in use while the
  SLO is kept, which lies in 0..1; a broken SLO costs ``1 + latency / slo``, above every configuration that
  keeps it. What is too little to be measured counts as the least that can be.

The share of its requests that failed costs 2 at least. A server that refuses requests uses little and
answers the others fast, and would else be the cheapest; but a few bad requests, which some clients always
send, hardly change what a configuration costs.

Where a scheduler drops requests that it cannot serve in time, latencies of the answered requests say little.
There the bad rate (late or dropped / all) replaces the latency: :class:`BadRateObjective`.

Changes of the configuration can cost something, too (``change_cost``, a weight, 0 by default). A change takes
d seconds. The n requests that arrive during it wait until its end at most. That is at most n * d seconds of
waiting, or n * d / N for each of the N requests of the next window; divided by the SLO it is a cost::

    cost = cost of the window + change_cost * (n * d / N) / slo

This is an upper bound, reached if the server stops for the change and all requests wait for its whole length.
At an even rate they wait d / 2 on average (``change_cost=0.5``). They hardly wait at all if the old instances
serve until the new ones are ready, as in Triton.

Above ten times the SLO the cost grows with the logarithm of the latency only: under overload no latency is
steady, and its value depends on the length of the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tuner.duration import format_duration, parse_duration
from tuner.errors import InvalidInput
from tuner.option import is_number, option

if TYPE_CHECKING:
    from tuner.measurement import Measurement

__all__ = ["GOALS", "SATURATION", "BadRateObjective", "Objective", "Slo", "parse_slo", "unsaturated"]

GOALS = ("latency", "strict", "cpu", "gpu")
FAILED = 2.0
"""Least cost of a request that failed: as of a broken SLO where the use of the machine is minimised."""
SATURATION = 10.0
"""Ratio to the SLO above which the cost of latency grows with the logarithm."""
LONGEST_SLO = 3600.0
TICK = 0.01
"""Least use of the CPU that a window shows, s of a core: the kernel counts in such ticks."""
LEAST_GPU = 0.001
"""Least use of the GPU that a window shows, a share: drivers count in hundredths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slo:
    """A service level objective on one latency statistic: ``p95 <= 30 ms``."""

    statistic: str
    """``mean``, ``p50``, ``p95`` or ``p99``."""
    latency: float
    """The bound, s."""

    def __post_init__(self) -> None:
        from tuner.measurement import STATISTICS  # commands list their options without numpy

        if self.statistic not in STATISTICS:
            raise InvalidInput(
                "--slo", f"'{self.statistic}' is not a statistic", f"use one of {', '.join(STATISTICS)}"
            )
        if not 0 < self.latency <= LONGEST_SLO:
            raise InvalidInput(
                "--slo", f"a latency of {self.latency:g} s is not between 0 and 1 h", "write p95=30ms"
            )

    def __str__(self) -> str:
        return f"{self.statistic} <= {format_duration(self.latency)}"


def parse_slo(text: str) -> Slo:
    """Read ``p95=30ms``.

    Raises:
        InvalidInput: Not of that form, an unknown statistic, or a latency that makes no sense.
    """
    statistic, equals, latency = text.partition("=")
    if not equals:
        raise InvalidInput("--slo", f"'{text}' has no '='", "write p95=30ms")
    return Slo(statistic=statistic.strip(), latency=parse_duration(latency, "--slo"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """Turns a measurement into a cost to be minimised."""

    slo: Slo = field(
        metadata=option(
            "slo", read=parse_slo, metavar="STAT=LATENCY", help="Such as p95=30ms, p99=1s, mean=5ms."
        )
    )
    goal: str = field(
        default="latency",
        metadata=option(
            "objective",
            help="latency: the least; strict: a broken SLO costs more; "
            "cpu, gpu: the least use that keeps it.",
        ),
    )
    """``latency``: the least latency. ``strict``: the least latency, and a broken SLO costs more than that.
    ``cpu``, ``gpu``: the least use while the SLO is kept."""
    cores: float = 1.0
    """CPU cores that the server may use: what a CPU share refers to."""
    change_cost: float = field(
        default=0.0,
        metadata=option(
            "change_cost",
            kind=float,
            least=0.0,
            help="Weight of what changes cost: 1 if requests wait for the whole change, 0 if they are free.",
        ),
    )
    """Weight of what changes of the configuration cost; 0: nothing, 1: all wait for the whole change."""

    def __post_init__(self) -> None:
        if not isinstance(self.slo, Slo):
            raise InvalidInput("--slo", f"{self.slo!r} is no SLO", "write p95=30ms as text, or make a `Slo`")
        if self.goal not in GOALS:
            raise InvalidInput("--objective", f"'{self.goal}' is unknown", f"use one of {', '.join(GOALS)}")
        if not self.cores > 0:
            raise InvalidInput("cores", f"{self.cores} is not positive")
        if not (is_number(self.change_cost) and 0 <= self.change_cost < math.inf):
            raise InvalidInput("--change-cost", f"{self.change_cost!r} is not a weight of at least 0")

    def __str__(self) -> str:
        latency = f"least {self.slo.statistic} latency"
        names = {"latency": f"{latency} with", "strict": f"{latency}, strictly"}
        changes = "" if self.change_cost == 0 else f", changes at {self.change_cost:g} times their cost"
        return f"{names.get(self.goal, f'least {self.goal.upper()} with')} {self.slo}{changes}"

    @property
    def key(self) -> str:
        """What costs and verdicts depend on, as text: objectives with the same key judge windows alike."""
        # Only shares of the CPU refer to cores.
        return repr(self if self.goal == "cpu" else replace(self, cores=1.0))

    @property
    def broken(self) -> float:
        """The least cost of a window whose latency breaks the SLO."""
        return 1.0 if self.goal == "latency" else 2.0

    def latency(self, measurement: Measurement) -> float:
        """The latency statistic that the SLO bounds, s; NaN if it was not measured."""
        return measurement.latency(self.slo.statistic)

    def kept(self, measurement: Measurement) -> bool:
        """Whether the window kept the SLO; a window whose latency is unknown or with failures did not."""
        within = self.latency(measurement) <= self.slo.latency and not self.too_short(measurement)
        return within and measurement.failures == 0

    def too_short(self, measurement: Measurement) -> bool:
        """Whether the window ended too soon to show if the SLO was kept: it cut the latency off below it."""
        return self.latency(measurement) <= self.slo.latency and measurement.cut(self.slo.statistic)

    def cost(self, measurement: Measurement) -> float:
        """The cost of a window and of the change before it, at least 0; NaN if a quantity is missing."""
        served = self.served(measurement)
        return served if self.change_cost == 0 else served + self.change_cost * self.change(measurement)

    def change(self, measurement: Measurement) -> float:
        """What the change before a window took from its requests, over the SLO, unweighted; 0 without one.

        Most seconds of waiting per request of the window, over the bound of the SLO; see the module's
        docstring.
        """
        if measurement.asked == 0:
            return 0.0
        waiting = measurement.change_seconds * measurement.change_requests / measurement.asked
        return _saturate(waiting / self.slo.latency)

    def served(self, measurement: Measurement) -> float:
        """The cost of how a window was served, at least 0; NaN if it lacks a quantity the goal needs."""
        answered = self._answered(measurement)
        return answered + measurement.failure_share * max(FAILED - answered, 0.0)

    def _answered(self, measurement: Measurement) -> float:
        """The cost of how the requests that did not fail were served; by ``strict`` of all."""
        ratio = _saturate(self.latency(measurement) / self.slo.latency)
        if self.too_short(measurement):
            return math.nan
        if math.isnan(ratio) or self.goal == "latency":
            return ratio
        if self.goal == "strict":
            return ratio if self.kept(measurement) else 1.0 + max(ratio, 1.0)
        if ratio > 1:
            return 1.0 + ratio
        return self._use(measurement)

    def _use(self, measurement: Measurement) -> float:
        """The share of the machine in use, above 0; NaN if nobody knows."""
        if self.goal == "gpu":
            use, least = measurement.gpu, LEAST_GPU
        else:
            use, least = measurement.cpu / self.cores, TICK / measurement.seconds / self.cores
        return use if math.isnan(use) else min(max(use, least), 1.0)

    def reward(self, measurement: Measurement) -> float:
        """The negated cost, for reinforcement learning libraries."""
        return -self.cost(measurement)


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRateObjective(Objective):
    """The objective of a scheduler: at most ``allowed`` of all requests are late or dropped.

    ``failures`` of the measurement are the late and the dropped requests, ``requests`` those answered in
    time. While the bad rate is kept the cost lies in 0..1: for ``gpu`` the share of the accelerators' time in
    use, for ``latency`` the statistic over the SLO. Beyond, it is ``1 + bad rate / allowed``.
    """

    allowed: float = 0.01
    """The largest bad rate; that of the goodput."""

    def __post_init__(self) -> None:
        Objective.__post_init__(self)
        if not 0 < self.allowed < 1:
            raise InvalidInput("allowed", f"a bad rate of {self.allowed} is not between 0 and 1")

    @property
    def broken(self) -> float:
        """The least cost of a window that breaks the SLO."""
        return 2.0

    def bad_rate(self, measurement: Measurement) -> float:
        """The share of the window's requests that was late or dropped; NaN if there were none."""
        return measurement.failures / measurement.asked if measurement.asked else math.nan

    def kept(self, measurement: Measurement) -> bool:
        """Whether the bad rate was kept."""
        return self.bad_rate(measurement) <= self.allowed

    def served(self, measurement: Measurement) -> float:
        """The cost of how a window was served, at least 0; NaN if nothing was asked."""
        bad = self.bad_rate(measurement)
        if bad > self.allowed:
            return 1.0 + _saturate(bad / self.allowed)
        if self.goal in ("latency", "strict") and not math.isnan(bad):  # a bad rate is strict by itself
            return min(self.latency(measurement) / self.slo.latency, 1.0)
        return bad if math.isnan(bad) else self._use(measurement)


def unsaturated(cost: float) -> float:
    """Return the ratio to the SLO that a cost of the latency stands for."""
    return cost if not cost > SATURATION else SATURATION * math.exp(cost / SATURATION - 1.0)


def _saturate(ratio: float) -> float:
    return ratio if not ratio > SATURATION else SATURATION * (1.0 + math.log(ratio / SATURATION))
