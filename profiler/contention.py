"""Contention: foreign processes use the cores and GPUs that the server wants to use.

Two shares describe it, and both come from two readings of the machine (:func:`foreign_figures`):

* *foreign share*: how much of the machine's capacity others used. It hardly depends on the configuration, so
  it is part of the load level (:mod:`tuner.agents.load_levels`), and a neighbour that stays is learned from.
* *contention*: the share of the time in which the server wanted to work but had to wait for others. A thread
  that waits for a core waits for whoever is on the cores, so others are charged with as much of the run delay
  as they have of the busy cores. With idle cores left nobody waits, and it is 0 however much others use.

:class:`ContentionMonitor` sets a window aside only where contention *moved* against the windows before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, Measurement, Work
from tuner.profiler.source import HostReading

__all__ = ["ContentionMonitor", "foreign_figures"]

LIMIT = 3.5
"""Robust standard deviations beyond which a value is an outlier (Iglewicz and Hoaglin, "How to detect and
handle outliers", 1993)."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
LEAST_DELAY = 0.03
"""Least standard deviation of the logarithm of the slowdown by contention. With `LIMIT`, a tenth more time
per request is the least that counts: windows of the same configuration differ by 7 % anyhow."""
LEAST_CAUSED = 0.01
"""The same where foreign processes used more or less than before: with a cause in sight less is enough."""
LEAST_SHARE = 0.05
"""The same for the logarithm of the capacity that is left: a sixth of it."""
LEAST_EXECUTION = 0.045
"""The same for the time of executions, which shows contention by a sixth more or less."""
WAVERING = 0.1
"""What is added to the least standard deviations, as a share of the median: what is large also varies more,
and a few windows hardly tell how much."""
FEWEST = 3
"""Windows of one configuration and load that tell how much such windows differ."""
NEAR = math.log(1.25)
"""Windows have the same load if the logarithms of their rates differ by less than this."""
REMEMBERED = 12
"""Windows that tell what a neighbourhood is like; older ones do not count, so it may drift."""
NEIGHBOURHOODS = 4
"""Neighbourhoods remembered: a neighbour that comes back is known."""
MOST = 0.99
"""A larger share counts as this much: the logarithm of nothing left would be infinite."""


def foreign_figures(old: HostReading, new: HostReading) -> dict[str, float]:
    """Return the figures of foreign processes and of waiting between two readings, NaN where not known."""
    seconds = new.time - old.time
    if not seconds > 0:
        return {}
    server, own = new.server - old.server, new.own - old.own
    foreign = float(np.maximum(new.total - old.total - server - own, 0.0))  # np.maximum keeps NaN
    steal = float(np.maximum(new.steal - old.steal, 0.0))
    ran, waited = new.ran - old.ran, new.waited - old.waited
    run_delay = _share(waited, ran + waited)
    others = foreign - np.nan_to_num(steal)  # what the hypervisor withholds makes nobody runnable wait
    withheld = _share(steal, server + own + foreign)
    used = np.nan_to_num(_share(others, server + own + others))
    gpu = new.gpu.foreign
    return {
        "cpu": server / seconds,
        "foreign_cpu": foreign / seconds,
        # NOT_KNOWN is one object, so measurements that hold it compare equal; another NaN would not.
        "steal": NOT_KNOWN if math.isnan(steal) else steal / seconds,
        "foreign_share": _union(_share(foreign, seconds * new.cores), gpu),
        "run_delay": run_delay,
        # Without the run delay, a steal of 0 would not mean that nobody waits: contention is not known then.
        "contention": _union(run_delay * used, NOT_KNOWN if math.isnan(run_delay) else withheld, gpu),
        "cpu_pressure": _share(new.pressure - old.pressure, seconds),
        "throttled": _share(new.throttled - old.throttled, seconds),
        "foreign_gpu": gpu,
    }


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single answer to ==
class _Seen:
    """What a window showed of its neighbours."""

    configuration: Configuration
    load: float
    """Logarithm of the rate."""
    left: float
    """Logarithm of the share of the capacity that foreign processes left; NaN if it is not known."""
    delay: float
    """Logarithm of the factor by which they made its work take longer; NaN if it is not known."""
    counts: np.ndarray
    """Executions per batch size.   # (B+1,)"""
    executions: np.ndarray
    """Time in them.   # (B+1,) s"""

    def like(self, other: _Seen) -> bool:
        """Whether it had the configuration and the load of another window."""
        return self.configuration == other.configuration and abs(self.load - other.load) < NEAR


class ContentionMonitor:
    """Judges whether contention moved in a window, by the windows before it.

    A neighbourhood is what a server shares its machine with: nobody, a batch job, another server. Windows of
    one neighbourhood differ by chance. A window is explained by a neighbourhood if it lies within
    :data:`LIMIT` robust standard deviations (from the median and the median absolute deviation; one outlier
    moves neither) of its windows with the same configuration and load. Where those are too few, it is
    explained if foreign processes used as much as in all of its windows, or if the server waited no more and
    no less: a change of our own configuration moves the waiting, but not what others use; and with idle cores
    left others may use more without anybody waiting. Where the machine cannot be seen, the time of executions
    per batch size takes the place of the waiting, and nothing is judged before it is known how much that
    differs by chance.

    Life: for each window ask :meth:`moved`, then :meth:`add`. A window that no neighbourhood explains is set
    aside. If the next agrees with it, the neighbour has come to stay: both begin a new neighbourhood, and
    windows count again.
    """

    def __init__(self) -> None:
        self._neighbourhoods: deque[deque[_Seen]] = deque(maxlen=NEIGHBOURHOODS)  # the latest first
        self._unexplained: _Seen | None = None  # the window before, if no neighbourhood explained it

    def moved(self, window: Measurement, work: Work) -> str:
        """Return in words how contention moved in a window; empty if it did not."""
        seen = _seen(window, work)
        if not self._neighbourhoods or self._explaining(seen) is not None:
            return ""
        if self._unexplained is not None and _explains([self._unexplained], seen):
            return ""
        before = self._neighbourhoods[0]
        if math.isnan(seen.delay):
            return "executions took unlike the windows before: contention moved"
        usual = -math.expm1(-float(np.nan_to_num(np.median([one.delay for one in before]))))
        return f"contention moved from {usual:.0%} to {window.contention:.0%} of the server's working time"

    def add(self, window: Measurement, work: Work) -> None:
        """Add a window that was not disturbed by anything else."""
        seen, moving = _seen(window, work), self._unexplained
        self._unexplained = None
        known = self._explaining(seen)
        if known is None and self._neighbourhoods and not (moving is not None and _explains([moving], seen)):
            self._unexplained = seen
            return
        if known is None:
            known = deque([] if moving is None else [moving], REMEMBERED)
        else:
            self._neighbourhoods.remove(known)
        known.append(seen)
        self._neighbourhoods.appendleft(known)

    def _explaining(self, seen: _Seen) -> deque[_Seen] | None:
        """Return the latest neighbourhood that explains a window; None if there is none."""
        return next((known for known in self._neighbourhoods if _explains(known, seen)), None)


def _explains(known: Iterable[_Seen], seen: _Seen) -> bool:
    """Whether a window differs from those of a neighbourhood by no more than chance."""
    windows = list(known)
    alike = [one for one in windows if one.like(seen)]
    enough = len(alike) >= FEWEST
    if math.isnan(seen.delay):
        return not enough or _same_execution_time(seen, alike)
    steady = _no_outlier(seen.left, [one.left for one in windows], LEAST_SHARE)
    if steady and not enough:
        return True
    delays = [one.delay for one in (alike if enough else windows)]
    return _no_outlier(seen.delay, delays, LEAST_DELAY if steady else LEAST_CAUSED)


def _same_execution_time(seen: _Seen, alike: Sequence[_Seen]) -> bool:
    """Whether executions took as long as in other windows of the same configuration and load.

    Each window is compared with all others together, at the batch sizes that both have; its slowdown must be
    no outlier among theirs.
    """
    size = max(len(one.counts) for one in (seen, *alike))
    counts, seconds = (np.zeros((len(alike), size)) for _ in range(2))
    for row, one in enumerate(alike):
        counts[row, : len(one.counts)], seconds[row, : len(one.executions)] = one.counts, one.executions
    return _no_outlier(
        _log_slowdown(seen, counts.sum(axis=0), seconds.sum(axis=0)),
        [
            _log_slowdown(one, counts.sum(axis=0) - counts[row], seconds.sum(axis=0) - seconds[row])
            for row, one in enumerate(alike)
        ],
        LEAST_EXECUTION,
    )


def _log_slowdown(seen: _Seen, counts: np.ndarray, seconds: np.ndarray) -> float:
    """Return the logarithm of how much longer executions took than others of their batch sizes.

    Args:
        seen: The window.
        counts: Other executions by batch size.   # (B+1,)
        seconds: Time in them.   # (B+1,) s

    Returns:
        NaN if no batch size is common to both.
    """
    size = min(len(seen.counts), len(counts))
    both = (seen.counts[:size] > 0) & (counts[:size] > 0)
    both[:1] = False
    expected = float((seen.counts[:size] * seconds[:size] / np.maximum(counts[:size], 1))[both].sum())
    took = float(seen.executions[:size][both].sum())
    return math.log(took / expected) if took > 0 and expected > 0 else NOT_KNOWN


def _no_outlier(value: float, others: Sequence[float], least: float) -> bool:
    """Whether a value is no outlier among others, whose spread counts as at least ``least``.

    A value that is not known, or has nothing to be compared with, is no outlier.
    """
    known = [other for other in others if not math.isnan(other)]
    if math.isnan(value) or not known:
        return True
    median = float(np.median(known))
    spread = max(NORMAL * float(np.median(np.abs(np.array(known) - median))), least + WAVERING * abs(median))
    # The root allows for the error of the median of few values.
    return abs(value - median) <= LIMIT * spread * math.sqrt(1.0 + 1.0 / len(known))


def _seen(window: Measurement, work: Work) -> _Seen:
    return _Seen(
        configuration=window.configuration,
        load=math.log(max(window.arrival_rate, 1e-3)),
        left=_log_left(window.foreign_share),
        delay=-_log_left(window.contention),
        counts=np.asarray(work.batch_counts, dtype=float),
        executions=np.asarray(work.batch_seconds, dtype=float),
    )


def _log_left(share: float) -> float:
    return math.log1p(-min(share, MOST)) if not math.isnan(share) else NOT_KNOWN


def _share(part: float, whole: float) -> float:
    """Return a part of a whole, 0..1; NaN if either is unknown or there is no whole."""
    return min(max(float(part / whole), 0.0), 1.0) if whole > 0 and not math.isnan(part) else NOT_KNOWN


def _union(*shares: float) -> float:
    """Return the share that several causes take together if they are independent; NaN if none is known."""
    known = [share for share in shares if not math.isnan(share)]
    return 1.0 - math.prod(1.0 - share for share in known) if known else NOT_KNOWN
