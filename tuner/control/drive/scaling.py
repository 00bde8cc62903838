"""How many servers a target should have, by the rule of :mod:`tuner.planning.autoscale`.

A dispatcher counts bad requests and idle time itself: its own advice is passed on. Any other server is judged
by its windows, which have neither:

* *Bad* are the requests later than the SLO's bound, or those that failed, whichever ask for more servers; but
  not those that the server says would have failed with any number of them, as those in a broken model. How
  many are later is read off the quantiles that were measured; between two of them the share falls
  exponentially. So it is above what the SLO allows exactly when the window breaks the SLO. For an SLO on the
  mean, the mean counts as the quantile that it is of an exponential distribution.
* *Busy* is the time that the model's instances executed, of the time that all of them had. It is known where
  the server counts the time of its batches and the number of instances is a knob, or fixed. Where it is that
  of the cores, the server must run on this machine.

Where we differ from Symphony: such a server has no flat top. It queues what it cannot answer, until nearly
every request is late. So its bad rate says that servers are missing, not how many: at most as many again are
asked for at once. The share that the SLO allows to be late (more than a third where it bounds the mean) need
not go away, so a target that just misses its SLO asks for one more. And because requests queue long before a
server is busy all the time, more of the idle time is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tuner.adapters.backend import Backend
from tuner.adapters.scaling import Replicated, ScalingSource
from tuner.control.decide.validation import implausible
from tuner.errors import AdapterError
from tuner.knobs import KnobSpace, Role
from tuner.measurement import UNANSWERED, Measurement
from tuner.objective import Slo
from tuner.planning.autoscale import LIVE, RecentWindows, ScalingAdvice, ScalingRule, ScalingWindow

__all__ = ["TargetScaling", "late_share"]

SHARES = {"mean": math.exp(-1.0), "p50": 0.5, "p95": 0.05, "p99": 0.01}
"""Which share of the requests is later than a statistic of the latency."""
HEADROOM = 0.3
"""Idle fraction that is left to servers that queue what they cannot answer at once."""


class TargetScaling:
    """Follows the windows of a target, and advises from the last of them.

    Args:
        slo: Of the target.
        space: The knobs, one of which may be the number of instances.
        cores: Of the server's machine, for a server that has an instance for each; NaN if nobody knows.
    """

    def __init__(self, slo: Slo, space: KnobSpace, cores: float) -> None:
        self._slo = slo
        self._space = space
        self._cores = cores
        self._late = RecentWindows()
        self._failed = RecentWindows()

    def advise(self, backend: Backend, measurement: Measurement | None) -> Mapping[str, ScalingAdvice]:
        """Return the advice after a window, by pool. That of a target that is no dispatcher has no name.

        Args:
            backend: Of the target.
            measurement: The window; None if it could not be measured, which gives no advice.
        """
        if measurement is None:
            return {}
        if isinstance(backend, ScalingSource):
            try:
                return backend.scaling()
            except AdapterError:
                return {}
        servers = backend.replicas if isinstance(backend, Replicated) else 1
        mixed = measurement.quantiles_mixed and self._slo.statistic != "mean"
        usable = self._unanswered(measurement) or not (measurement.disturbed or mixed)
        if usable and not implausible(measurement):
            self._follow(servers, measurement)
        servers, share = self._late.accelerators, SHARES[self._slo.statistic]
        if not servers:
            return {}
        rule = ScalingRule(threshold=share, headroom=HEADROOM, most=2 * servers, seconds=LIVE.seconds)
        late = replace(rule, allowed=share).advise(servers, self._late.total)
        failed = rule.advise(servers, self._failed.total)
        return {"": failed if failed.desired > late.desired else late}

    def _unanswered(self, measurement: Measurement) -> bool:
        """Whether no request came in a window, or all failed: that says enough without any latency.

        Only where a window with answers was followed before: else nobody knows whether the server counts the
        time of its batches, and advice to have few servers would stay for good.
        """
        silent = measurement.arrival_rate == 0 or measurement.failures > 0
        return silent and measurement.disturbed == (UNANSWERED,) and self._late.accelerators > 0

    def _follow(self, servers: int, measurement: Measurement) -> None:
        """Take in a window, unless it does not show enough."""
        instances = self._space.value_of(Role.PARALLELISM, measurement.configuration)
        late = late_share(measurement, self._slo) if measurement.requests else 0.0
        if instances is None:
            return
        busy = measurement.busy_instances / (instances or self._cores)
        if math.isnan(busy + late):
            return
        beyond = min(measurement.beyond_servers, measurement.failures)
        window = ScalingWindow(
            seconds=measurement.seconds,
            requests=float(measurement.asked - beyond),
            busy=min(busy, float(servers)) * measurement.seconds,
            beyond=float(beyond),
        )
        self._late.add(servers, window._replace(bad=late * measurement.requests))
        self._failed.add(servers, window._replace(bad=float(measurement.failures - beyond)))


def late_share(measurement: Measurement, slo: Slo) -> float:
    """Return about which share of a window's answers was later than the SLO allows; NaN if nobody timed them.

    It is 0 where even the last statistic keeps the bound, although a few answers may be later.
    """
    if math.isnan(measurement.latency(slo.statistic)):
        return math.nan
    before, share = 0.0, 1.0
    for name in ("mean",) if slo.statistic == "mean" else ("p50", "p95", "p99"):
        latency = measurement.latency(name)
        if slo.latency < latency:
            return share * math.pow(SHARES[name] / share, (slo.latency - before) / (latency - before))
        if not math.isnan(latency):
            before, share = latency, SHARES[name]
    return 0.0
