"""Several servers with one model behind one load balancer, as one backend.

Counts and times of the replicas are added up, and all have the same configuration. A change goes to one
replica first and then to the others; if one refuses it, those that have it already go back. A replica that
does not answer is left out as long as others do. When it is back it runs something else than the others, and
:meth:`ReplicaGroup.current` returns that, so that whoever tunes the group applies the configuration again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint, Loadable
from tuner.adapters.metrics.histogram import Histogram
from tuner.adapters.replicas.canary import CanaryTrial, ServedRequests
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut, Unreachable
from tuner.knobs import Configuration, KnobSpace
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["ReplicaGroup"]

AWAY = (Unreachable, TimedOut)
MOST_AT_ONCE = 16
REFRESH = 30.0
"""How often the replicas are looked up again, s."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class ReplicaGroup:
    """A backend of several.

    Opening it opens all replicas that can be reached. From then on they are looked up again regularly: new
    ones join, and the counts of those that have gone are kept.

    Args:
        target: What the user wrote.
        find: Returns the targets of the replicas there are now.
        connect: Opens one.
        refresh: How often they are looked up again, s; infinite for a list that does not change.

    Raises:
        InvalidInput: There is none, or they have no knob grid in common.
        AdapterError: None can be reached.
    """

    def __init__(
        self,
        target: str,
        find: Callable[[], Sequence[str]],
        connect: Callable[[str], Backend],
        *,
        refresh: float = REFRESH,
    ) -> None:
        self._target = target
        self._find = find
        self._connect = connect
        self._refresh = refresh
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="replica")
        self._members: dict[str, Backend] = {}
        self._away: dict[str, str] = {}  # target -> why
        self._last: dict[str, Counters] = {}
        self._gone: list[Counters] = []  # what vanished replicas had counted
        self._tried: tuple[str, Configuration] | None = None  # the canary, and what it ran before
        # How often a replica came or went. Totals before and after are of different groups, as after a
        # restart.
        self._returns = 0
        self._looked = -np.inf
        self._lost = False  # whether they could not be looked up the last time
        try:
            self._look(first=True)
            self.space = common_space([member.space for member in self._members.values()])
        except BaseException:
            self.close()
            raise

    def _look(self, *, first: bool = False) -> None:
        """Look the replicas up, if it is time: open new ones, and close those that have gone."""
        if time.monotonic() < self._looked + self._refresh:
            return
        self._looked = time.monotonic()
        found = self._found()
        if not found:
            raise InvalidInput("TARGET", f"{self._target} names no replica")
        for gone in set(self._members) - set(found):
            self._members.pop(gone).close()
            self._away.pop(gone, None)
            self._gone += [self._last.pop(gone)] if gone in self._last else []
            self._returns += 1
        errors: list[AdapterError] = []
        for new in [target for target in found if target not in self._members]:
            try:
                self._members[new] = self._connect(new)
                self._returns += not first
                self._away.pop(new, None)
            except AdapterError as error:
                self._away[new] = str(error)
                errors.append(error)
        if not self._members:
            raise errors[0]

    def _found(self) -> list[str]:
        """Return the targets of the replicas; while they cannot be looked up, those that are known."""
        try:
            found = list(dict.fromkeys(self._find()))
        except AWAY as error:
            if not self._members:
                raise
            if not self._lost:
                log.warning("%s; going on with the replicas that are known", error)
            self._lost = True
            return list(self._members)
        self._lost = False
        return found

    def _ask(self, question: Callable[[Backend], T]) -> dict[str, T]:
        """Ask all members at once, and leave out those that do not answer; if none does, raise its error."""
        with self._lock:
            self._look()
            members = dict(self._members)
        answers = {target: self._pool.submit(question, member) for target, member in members.items()}
        found: dict[str, T] = {}
        errors: list[AdapterError] = []
        for target, answer in answers.items():
            try:
                found[target] = answer.result()
            except AWAY as error:
                errors.append(error)
                self._returns += target not in self._away
                self._away[target] = str(error)
            else:
                self._returns += self._away.pop(target, None) is not None
        if not found:
            raise errors[0]
        return found

    @property
    def replicas(self) -> int:
        """How many of them answered when they were last asked."""
        with self._lock:
            return len(self._members.keys() - self._away.keys())

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model: requests go to all replicas by turns."""
        points = [m.endpoint() for m in self._members.values() if isinstance(m, Loadable)]
        addresses = ",".join(point.address for point in points)
        return replace(points[0], address=addresses)

    def describe(self) -> Description:
        """Return who this is and what it can do: what every replica can."""
        each = self._ask(lambda member: member.describe())
        first = next(iter(each.values()))
        notes = dict.fromkeys(note for found in each.values() for note in found.notes)
        total = len(each) + len([target for target in self._away if target not in each])
        away = [f"{why} (1 of {total} replicas)" for why in self._away.values()]
        return replace(
            first,
            target=self._target,
            version=f"{first.version}, {len(each)} replicas",
            writable=all(found.writable for found in each.values()),
            quantiles=all(found.quantiles for found in each.values()),
            processes=tuple(sorted(pid for found in each.values() for pid in found.processes)),
            notes=(*notes, *away),
        )

    def current(self) -> Configuration:
        """Return what all run; if they differ, what the fewest run.

        Those are the ones to be changed: a caller that compares this with what it wants sees the difference.
        """
        counts = Counter(self.configurations())
        return min(counts, key=lambda configuration: counts[configuration])

    def configurations(self) -> list[Configuration]:
        """Return what each replica runs that answers."""
        return list(self._ask(lambda member: member.current()).values())

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change one replica, then the others; if one refuses, all go back to what they ran."""
        self.space.check_complete(configuration)
        before = self._ask(lambda member: member.current())
        reports: dict[str, ApplyReport] = {}
        begun = time.monotonic()
        for target in before:
            try:
                reports[target] = self._members[target].apply(configuration)
            except AWAY as error:
                self._away[target] = str(error)
            except AdapterError as error:
                self._back({name: before[name] for name in reports})
                raise Refused(f"{target}: {error}; the other replicas went back") from error
        if not reports:
            raise Unreachable("; ".join(self._away.values()))
        return ApplyReport.together(
            reports.values(),
            next(iter(reports.values())).configuration,
            seconds=time.monotonic() - begun,
            affected=_affected(reports.values()),
        )

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Change the first replica, wait, and compare what it served with what the others served."""
        self.space.check_complete(configuration)
        running = self._ask(lambda member: member.current())
        if len(running) < 2:
            return None
        chosen = min(running)
        try:
            report = self._members[chosen].apply(configuration)
        except AWAY as error:
            self._away[chosen] = str(error)
            raise Refused(f"{chosen} went away when it was changed: {error}") from error
        self._tried = chosen, running[chosen]
        try:
            before = self._ask(lambda member: member.counters())
            wait(report.settle)
            after = self._ask(lambda member: member.counters())
        except BaseException:
            self.take_back()
            raise
        if chosen not in before or chosen not in after:
            self._tried = None
            raise Refused(f"{chosen} went away with the new configuration: {self._away.get(chosen, '')}")
        shares = {name: ServedRequests.between(before[name], after[name]) for name in before if name in after}
        tried = shares.pop(chosen)
        others = ServedRequests(
            requests=sum(share.requests for share in shares.values()),
            failures=sum(share.failures for share in shares.values()),
            latency=sum(share.latency for share in shares.values()),
        )
        return CanaryTrial(server=chosen, tried=tried, others=others)

    def take_back(self) -> None:
        """Put back what the replica ran that tried a configuration."""
        if self._tried is not None:
            (target, before), self._tried = self._tried, None
            self._members[target].apply(before)

    def _back(self, before: Mapping[str, Configuration]) -> None:
        for target, configuration in before.items():
            try:
                self._members[target].apply(configuration)
            except AdapterError as error:
                self._away[target] = f"{error}; it may run another configuration than the others"

    def restore(self) -> None:
        """Put back at each replica what was found there.

        Raises:
            AdapterError: One refuses or cannot be reached.
        """
        for member in list(self._members.values()):
            restore: Any = getattr(member, "restore", None)
            if restore is not None:
                restore()

    def counters(self) -> Counters:
        """Read and add up the totals."""
        self._last |= self._ask(lambda member: member.counters())
        with self._lock:
            return total([*self._last.values(), *self._gone], restarts=self._returns)

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over all replicas."""
        counters = self.counters()
        return fit_profile(counters.batch_counts, counters.batch_seconds)

    def close(self) -> None:
        """Close all connections. May be called twice."""
        for member in self._members.values():
            member.close()
        self._pool.shutdown(wait=False)


def _affected(reports: Iterable[ApplyReport]) -> float | None:
    """Return how many requests had to wait at all replicas; None if one of them did not count."""
    counted = [report.affected for report in reports if report.changed]
    known = [number for number in counted if number is not None]
    return sum(known) if len(known) == len(counted) else None


def common_space(spaces: Sequence[KnobSpace]) -> KnobSpace:
    """Return the knobs of all replicas, with the values that all of them take.

    Raises:
        InvalidInput: Their knobs differ, or there is a knob of which they have no value in common.
    """
    first = spaces[0]
    if any(space.names != first.names for space in spaces):
        raise InvalidInput(
            "TARGET", "the replicas do not have the same knobs", "do they serve the same model?"
        )
    knobs = []
    for column, knob in enumerate(first.knobs):
        grid = tuple(v for v in knob.grid if all(v in space.knobs[column].grid for space in spaces))
        if not grid:
            raise InvalidInput(f"knob {knob.name}", "the replicas have no value in common", "give its grid")
        default = knob.default if knob.default in grid else grid[0]
        knobs.append(replace(knob, grid=grid, default=default))
    return KnobSpace(knobs, fixed=first.fixed)


def merged(histograms: Sequence[Histogram | None]) -> Histogram | None:
    """Return the histogram of all; None if one has no histogram or different buckets."""
    known = [histogram for histogram in histograms if histogram is not None and histogram.counts.any()]
    if not known or any(histogram is None for histogram in histograms):
        return histograms[0]
    if any(not np.array_equal(histogram.bounds, known[0].bounds) for histogram in known):
        return None
    return Histogram(known[0].bounds, np.sum([histogram.counts for histogram in known], axis=0))


def total(readings: Iterable[Counters], *, restarts: int) -> Counters:
    """Return the sum of totals; of quantiles, which cannot be added, the worst.

    Args:
        readings: One for each replica.
        restarts: How often a replica came or went; added to the restarts of the replicas themselves.
    """
    each = list(readings)
    length = max(len(reading.batch_counts) for reading in each)

    def added(name: str) -> Any:
        return sum(getattr(reading, name) for reading in each)

    def padded(name: str) -> np.ndarray:
        arrays = [getattr(reading, name) for reading in each]
        return np.asarray(sum(np.pad(array, (0, length - len(array))) for array in arrays))

    histograms = [reading.latencies for reading in each]
    pending = [reading.pending for reading in each if reading.pending is not None]
    shares = set.intersection(*[set(reading.quantiles) for reading in each if reading.requests] or [set()])
    return Counters(
        time=max(reading.time for reading in each),
        requests=added("requests"),
        failures=added("failures"),
        latency=added("latency"),
        queue=added("queue"),
        compute=added("compute"),
        inferences=added("inferences"),
        batch_counts=padded("batch_counts"),
        batch_seconds=padded("batch_seconds"),
        pending=sum(pending) if pending else None,
        quantiles={s: max(r.quantiles[s] for r in each if r.requests) for s in sorted(shares)},
        latencies=merged(histograms),
        restarts=added("restarts") + restarts,
        gpus=tuple(gpu for reading in each for gpu in reading.gpus),
    )
