"""Several servers with one model behind one load balancer, as one backend.

Counts and times of the replicas are added up, and all have the same configuration. A change goes to one
replica first and then to the others; if one refuses it, those that have it already go back. A replica that
does not answer is left out as long as others do. When it is back it runs something else than the others, and
:meth:`ReplicaGroup.current` returns that, so that whoever tunes the group applies the configuration again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint, Loadable
from tuner.adapters.replicas.canary import CanaryTrial, ServedRequests
from tuner.adapters.replicas.membership import AWAY, REFRESH, Membership
from tuner.adapters.rollback import UNTOUCHED, Checking, failure, put_back
from tuner.errors import InvalidInput, Refused, TunerError
from tuner.knobs import Configuration, KnobSpace
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["ReplicaGroup"]


class ReplicaGroup:
    """A backend of several.

    Opening it opens all replicas that can be reached. From then on they are looked up again regularly: new
    ones and those that could not be opened before join, and the counts of those that have gone are kept.

    Args:
        target: What the user wrote.
        find: Returns the targets of the replicas there are now.
        connect: Opens one.
        refresh: How often they are looked up again, s.

    Raises:
        InvalidInput: There is none, one cannot be used, or they have no knob grid in common.
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
        self._members = Membership(target, find, connect, refresh=refresh)
        self._tried: tuple[str, Configuration] | None = None  # the canary, and what it ran before
        try:
            self.space = common_space([member.space for member in self._members.opened.values()])
        except BaseException:
            self.close()
            raise

    @property
    def replicas(self) -> int:
        """How many of them answered when they were last asked."""
        return len(self._members.opened.keys() - self._members.away.keys())

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model: requests go to all replicas by turns."""
        points = [m.endpoint() for m in self._members.opened.values() if isinstance(m, Loadable)]
        addresses = ",".join(point.address for point in points)
        return replace(points[0], address=addresses)

    def describe(self) -> Description:
        """Return who this is and what it can do: what every replica can."""
        each = self._members.ask(lambda member: member.describe())
        first = next(iter(each.values()))
        notes = dict.fromkeys(note for found in each.values() for note in found.notes)
        away = [f"{why} (1 of {len(self._members)} replicas)" for why in self._members.away.values()]
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
        return list(self._members.ask(lambda member: member.current()).values())

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change one replica, then the others; if one refuses, all go back to what they ran."""
        before = self._check(configuration)
        members = {target: self._members.opened[target] for target in before}
        reports: dict[str, ApplyReport] = {}
        doubtful: dict[str, TunerError] = {}
        begun = time.monotonic()
        for target, member in members.items():
            try:
                reports[target] = member.apply(configuration)
            except AWAY as error:
                doubtful[target] = error
                self._members.note(target, str(error))
            except TunerError as error:
                last = () if isinstance(error, UNTOUCHED) else (target,)
                changed = {name: before[name] for name in (*reports, *doubtful, *last)}
                doubtful = put_back(members, changed) | doubtful
                raise failure(f"{target}: {error}", doubtful, "the other replicas went back") from error
        if not reports:
            raise failure("no replica answers", doubtful, "")
        return ApplyReport.together(
            reports.values(),
            next(iter(reports.values())).configuration,
            seconds=time.monotonic() - begun,
            affected=_affected(reports.values()),
        )

    def _check(self, configuration: Configuration) -> dict[str, Configuration]:
        """Ask each replica whether it would take a configuration, before any is changed, and what it runs."""

        def check(member: Backend) -> Configuration:
            if isinstance(member, Checking):
                member.check(configuration)
            return member.current()

        self.space.check_complete(configuration)
        return self._members.ask(check)

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Change the first replica, wait, and compare what it served with what the others served."""
        running = self._check(configuration)
        if len(running) < 2:
            return None
        chosen = min(running)
        try:
            report = self._members.opened[chosen].apply(configuration)
        except AWAY as error:
            self._members.note(chosen, str(error))
            raise Refused(f"{chosen} went away when it was changed: {error}") from error
        self._tried = chosen, running[chosen]
        try:
            before = self._members.ask(lambda member: member.counters())
            wait(report.settle)
            after = self._members.ask(lambda member: member.counters())
        except BaseException:
            self.take_back()
            raise
        if chosen not in before or chosen not in after:
            self._tried = None
            why = self._members.away.get(chosen, "")
            raise Refused(f"{chosen} went away with the new configuration: {why}")
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
            self._members.opened[target].apply(before)

    def restore(self) -> None:
        """Put back at each replica what was found there.

        Raises:
            AdapterError: One refuses or cannot be reached.
        """
        for member in self._members.opened.values():
            restore: Any = getattr(member, "restore", None)
            if restore is not None:
                restore()

    def counters(self) -> Counters:
        """Read and add up the totals."""
        return self._members.counters()

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over all replicas."""
        counters = self.counters()
        return fit_profile(counters.batch_counts, counters.batch_seconds)

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._members.close()


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
