"""How many accelerators a cluster should have, from its bad rate and its idle time (Symphony, section 4.4).

A scheduler with a *flat top* answers what it can under overload, and leaves accelerators idle under less
load; then the two signals say how much is missing or too much. With N accelerators, a bad rate r above a
threshold asks for ``N r / (1 - r)`` more; an idle fraction f frees ``N f``.

Where we differ: some of the idle time is kept as headroom, for with none of it the next burst is dropped.
What fails with any number of accelerators, as in a broken model, asks for none. Where that is a larger share
of what came than the headroom, idle time frees none either: once the model is mended, these are load again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

__all__ = [
    "LIVE",
    "METRIC",
    "RecentWindows",
    "ScalingAdvice",
    "ScalingRule",
    "ScalingWatch",
    "ScalingWindow",
    "metric_text",
]

METRIC = "servetune_desired_accelerators"
"""The name of the gauge that an autoscaler such as KEDA or the HPA of Kubernetes reads."""
LOOK_BACK = 30.0
"""s that the advice for a live cluster looks back."""


class ScalingWindow(NamedTuple):
    """What accelerators that share their requests did in some time.

    >>> seen = ScalingWindow(seconds=10.0, requests=200.0, bad=4.0, busy=15.0)
    >>> seen.bad_rate, seen.idle(2)
    (0.02, 0.25)
    """

    seconds: float
    requests: float = 0.0
    """Answered or refused."""
    bad: float = 0.0
    """Late or dropped; a share of them where somebody can only estimate it."""
    busy: float = 0.0
    """s that accelerators executed, summed over them."""
    beyond: float = 0.0
    """Failed, and would with any number of accelerators; these are not among the ``requests``."""

    @property
    def bad_rate(self) -> float:
        """Late or dropped requests of all; 0 if there were none."""
        return self.bad / self.requests if self.requests else 0.0

    def idle(self, accelerators: int) -> float:
        """Return the mean fraction of the time that one of these accelerators did not execute."""
        return max(1 - self.busy / self.seconds / accelerators, 0.0)

    def plus(self, later: ScalingWindow) -> ScalingWindow:
        """Return both windows as one."""
        return ScalingWindow(
            seconds=self.seconds + later.seconds,
            requests=self.requests + later.requests,
            bad=self.bad + later.bad,
            busy=self.busy + later.busy,
            beyond=self.beyond + later.beyond,
        )


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

    >>> overload = ScalingWindow(seconds=1.0, requests=100.0, bad=50.0, busy=10.0)
    >>> ScalingRule().advise(10, overload).desired
    20
    >>> calm = ScalingWindow(seconds=1.0, requests=100.0, busy=5.0)
    >>> ScalingRule(headroom=0.0).advise(10, calm).desired
    5

    Raises:
        ValueError: ``0 <= allowed <= threshold < 1`` and ``0 <= headroom < 1`` must hold.
    """

    threshold: float = 0.01
    """Bad rate above which more accelerators are asked for."""
    allowed: float = 0.0
    """Bad rate that may stay: no accelerators are asked for to take it away. The paper's rule has none."""
    headroom: float = 0.1
    """Idle fraction that is kept for bursts; and share of all requests that may fail, as they would with any
    number of accelerators, so that idle time still frees some."""
    least: int = 1
    most: int = 1 << 30
    seconds: float = 0.0
    """Shortest window that anything is advised from."""

    def __post_init__(self) -> None:
        shares = 0 <= self.allowed <= self.threshold < 1 and 0 <= self.headroom < 1
        if not (shares and 1 <= self.least <= self.most):
            needed = "`0 <= allowed <= threshold < 1`, `0 <= headroom < 1` and `1 <= least <= most`"
            raise ValueError(f"{needed} must hold: {self}")

    def advise(self, accelerators: int, seen: ScalingWindow) -> ScalingAdvice:
        """Return the advice for accelerators from what they did; no change where too little was seen."""
        desired, reason = self._desired(accelerators, seen)
        desired = min(max(desired, self.least), self.most)
        return ScalingAdvice(accelerators=accelerators, desired=desired, reason=reason)

    def _desired(self, accelerators: int, seen: ScalingWindow) -> tuple[int, str]:
        """Return how many there should be, whatever the limits, and why."""
        if not (accelerators and seen.seconds) or seen.seconds < self.seconds:
            return accelerators, "too little was seen"
        bad_rate, idle = seen.bad_rate, seen.idle(accelerators)
        if bad_rate > self.threshold:
            missing = (bad_rate - self.allowed) / (1 - self.allowed)
            more = math.ceil(accelerators * missing / max(1 - missing, 1e-3))
            return accelerators + more, f"{bad_rate:.1%} of the requests are late or dropped"
        if seen.beyond > self.headroom * (seen.requests + seen.beyond):
            share = seen.beyond / (seen.requests + seen.beyond)
            return accelerators, f"{share:.0%} of the requests fail, as with any number of accelerators"
        if idle > self.headroom:
            desired = math.ceil(accelerators * (1 - idle) / (1 - self.headroom) - 1e-9)
            return desired, f"accelerators are idle {idle:.0%} of the time"
        return accelerators, "the accelerators are busy, and the requests in time"


LIVE = ScalingRule(seconds=LOOK_BACK / 2)
"""The rule for a live cluster, of which the first seconds show little."""
PARTS = 30
"""Into how many parts the time that advice looks back is divided: so exactly it is kept."""


class RecentWindows:
    """The windows of the last seconds, for those who measure window by window.

    Args:
        seconds: Least time that they cover, s; the oldest window goes when the others cover it.
    """

    def __init__(self, seconds: float = LOOK_BACK) -> None:
        self._seconds = seconds
        self._accelerators = 0
        self._windows: deque[ScalingWindow] = deque()

    def add(self, accelerators: int, window: ScalingWindow) -> None:
        """Append the newest window; those of another number of accelerators do not count any more."""
        if accelerators != self._accelerators:
            self._accelerators = accelerators
            self._windows.clear()
        self._windows.append(window)
        while self.total.seconds - self._windows[0].seconds >= self._seconds:
            self._windows.popleft()

    @property
    def accelerators(self) -> int:
        """How many accelerators there were in these windows."""
        return self._accelerators

    @property
    def total(self) -> ScalingWindow:
        """All these windows as one."""
        return reduce(ScalingWindow.plus, self._windows, ScalingWindow(seconds=0.0))


class ScalingWatch:
    """Counts what happens to the requests of sessions, and advises from the last seconds.

    Report every answer and every batch when it ends; ask whenever advice is wanted. Sessions that have more
    accelerators than lately begin anew: of these, what the fewer could not do says nothing. One that goes and
    comes back under an overload makes no more of them.

    Args:
        rule: When to ask for how much.
        seconds: About how far advice looks back, s.
    """

    def __init__(self, rule: ScalingRule = LIVE, *, seconds: float = LOOK_BACK) -> None:
        self._rule = rule
        self._seconds = seconds
        self._now: dict[str, ScalingWindow] = {}  # sums of each session since the beginning
        self._begun: dict[str, float] = {}  # s, when sessions that were forgotten began anew
        self._past: deque[tuple[float, dict[str, ScalingWindow]]] = deque()
        self._had: dict[str, tuple[int, float]] = {}  # most accelerators of each session lately, and when, s

    def answered(self, session: str, now: float, *, bad: bool) -> None:
        """A request was answered; it is bad if it was late or dropped."""
        self._add(session, now, ScalingWindow(seconds=0.0, requests=1.0, bad=float(bad)))

    def failed(self, session: str, now: float) -> None:
        """A request failed, and would with any number of accelerators."""
        self._add(session, now, ScalingWindow(seconds=0.0, beyond=1.0))

    def executed(self, session: str, now: float, seconds: float) -> None:
        """An accelerator has executed a batch."""
        self._add(session, now, ScalingWindow(seconds=0.0, busy=seconds))

    def advise(self, sessions: Iterable[str], now: float, accelerators: int) -> ScalingAdvice:
        """Return the advice for sessions that share accelerators; no change until enough was seen."""
        self._remember(now)
        names, (begin, past) = list(sessions), self._past[0]
        had = {name: self._had.get(name, (accelerators, now)) for name in names}
        if any(accelerators > most for most, _ in had.values()):
            self.forget(names, now)
        for name, (most, when) in had.items():
            if accelerators >= most or now - when > self._seconds:
                self._had[name] = (accelerators, now)
        nothing = ScalingWindow(seconds=0.0)
        pairs = [(self._now.get(name, nothing), past.get(name, nothing)) for name in names]
        seen = ScalingWindow(
            seconds=now - max([begin, *(self._begun.get(name, begin) for name in names)]),
            requests=sum(late.requests - early.requests for late, early in pairs),
            bad=sum(late.bad - early.bad for late, early in pairs),
            busy=sum(late.busy - early.busy for late, early in pairs),
            beyond=sum(late.beyond - early.beyond for late, early in pairs),
        )
        return self._rule.advise(accelerators, seen)

    def forget(self, sessions: Iterable[str], now: float) -> None:
        """Begin anew with sessions: what they did says nothing about how many accelerators they need."""
        for session in sessions:
            self._begun[session] = now
            for sums in (self._now, *(sums for _, sums in self._past)):
                sums.pop(session, None)

    def remove(self, session: str) -> None:
        """Keep nothing of a session that is gone."""
        for kept in (self._now, self._begun, self._had, *(sums for _, sums in self._past)):
            kept.pop(session, None)  # type: ignore[attr-defined]

    def _add(self, session: str, now: float, more: ScalingWindow) -> None:
        self._remember(now)
        before = self._now.get(session)
        self._now[session] = more if before is None else before.plus(more)

    def _remember(self, now: float) -> None:
        """Keep the present sums if the last are old enough; forget all but one that advice does not reach."""
        if not self._past or now - self._past[-1][0] >= self._seconds / PARTS:
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
