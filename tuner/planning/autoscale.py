"""How many accelerators a cluster should have, from its bad rate and its idle time (Symphony, section 4.4).

A scheduler with a *flat top* answers what it can under overload, and leaves accelerators idle under less
load; then the two signals say how much is missing or too much. With N accelerators, a bad rate r above a
threshold asks for ``N r / (1 - r)`` more; an idle fraction f frees ``N f``.

Where we differ: some of the idle time is kept as headroom, for with none of it the next burst is dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["METRIC", "ScalingAdvice", "ScalingRule", "ScalingWatch", "metric_text"]

METRIC = "servetune_desired_accelerators"
"""The name of the gauge that an autoscaler such as KEDA or the HPA of Kubernetes reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingAdvice:
    """What to do."""

    accelerators: int
    """That there are."""
    desired: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRule:
    """When to ask for how much.

    >>> ScalingRule().advise(accelerators=10, bad_rate=0.5, idle=0.0).desired
    20
    >>> ScalingRule(headroom=0.0).advise(accelerators=10, bad_rate=0.0, idle=0.5).desired
    5

    Raises:
        ValueError: ``0 <= threshold < 1`` and ``0 <= headroom < 1`` must hold.
    """

    threshold: float = 0.01
    """Bad rate above which more is asked for."""
    headroom: float = 0.1
    """Idle fraction that is left."""
    least: int = 1
    most: int = 1 << 30

    def __post_init__(self) -> None:
        if not (0 <= self.threshold < 1 and 0 <= self.headroom < 1 and 1 <= self.least <= self.most):
            raise ValueError(f"`0 <= threshold, headroom < 1` and `1 <= least <= most` must hold: {self}")

    def advise(self, *, accelerators: int, bad_rate: float, idle: float) -> ScalingAdvice:
        """Return the advice.

        Args:
            accelerators: That serve now.
            bad_rate: Late or dropped requests of all.
            idle: Mean fraction of the time that an accelerator did not execute.
        """
        if bad_rate > self.threshold:
            more = math.ceil(accelerators * bad_rate / max(1 - bad_rate, 1e-3))
            desired, reason = accelerators + more, f"{bad_rate:.1%} of the requests are late or dropped"
        elif idle > self.headroom:
            desired = math.ceil(accelerators * (1 - idle) / (1 - self.headroom) - 1e-9)
            reason = f"accelerators are idle {idle:.0%} of the time"
        else:
            desired, reason = accelerators, "the accelerators are busy, and the requests in time"
        desired = min(max(desired, self.least), self.most)
        return ScalingAdvice(accelerators=accelerators, desired=desired, reason=reason)


class _Sums(NamedTuple):
    """Of a session since the beginning."""

    requests: int = 0
    bad: int = 0
    busy: float = 0.0
    """s that accelerators executed."""


class ScalingWatch:
    """Counts what happens to the requests of sessions, and advises from the last seconds of it.

    Report every answer and every batch when it ends; ask whenever advice is wanted.

    Args:
        rule: When to ask for how much.
        seconds: That advice looks back, about.
    """

    def __init__(self, rule: ScalingRule | None = None, *, seconds: float = 30.0) -> None:
        self._rule = rule or ScalingRule()
        self._seconds = seconds
        self._now: dict[str, _Sums] = {}
        self._past: deque[tuple[float, dict[str, _Sums]]] = deque()

    def answered(self, session: str, now: float, *, bad: bool) -> None:
        """A request was answered; it is bad if it was late or dropped."""
        self._add(session, now, _Sums(1, int(bad), 0.0))

    def executed(self, session: str, now: float, seconds: float) -> None:
        """An accelerator has executed a batch."""
        self._add(session, now, _Sums(0, 0, seconds))

    def advise(self, sessions: Iterable[str], now: float, accelerators: int) -> ScalingAdvice:
        """Return the advice for sessions that share accelerators; no change until enough was seen."""
        self._remember(now)
        begin, past = self._past[0]
        passed = now - begin
        if not accelerators or passed < self._seconds / 2:
            return ScalingAdvice(
                accelerators=accelerators, desired=accelerators, reason="too little was seen"
            )
        pairs = [(self._now.get(name, _Sums()), past.get(name, _Sums())) for name in sessions]
        requests = sum(late.requests - early.requests for late, early in pairs)
        bad = sum(late.bad - early.bad for late, early in pairs)
        busy = sum(late.busy - early.busy for late, early in pairs)
        return self._rule.advise(
            accelerators=accelerators,
            bad_rate=bad / requests if requests else 0.0,
            idle=max(1 - busy / passed / accelerators, 0.0),
        )

    def _add(self, session: str, now: float, more: _Sums) -> None:
        self._remember(now)
        sums = self._now.get(session, _Sums())
        self._now[session] = _Sums(sums.requests + more.requests, sums.bad + more.bad, sums.busy + more.busy)

    def _remember(self, now: float) -> None:
        """Keep the sums of about once a second, and one that is as old as advice looks back."""
        if not self._past or now - self._past[-1][0] >= self._seconds / 30:
            self._past.append((now, dict(self._now)))
        while len(self._past) > 1 and self._past[1][0] <= now - self._seconds:
            self._past.popleft()


def metric_text(desired: int, cluster: str) -> str:
    """Return the gauge in the text format of Prometheus, as its node exporter reads it from a file."""
    label = cluster.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return (
        f"# HELP {METRIC} Accelerators that the cluster should have.\n# TYPE {METRIC} gauge\n"
        f'{METRIC}{{cluster="{label}"}} {desired}\n'
    )
