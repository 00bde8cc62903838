"""Several servers with one model behind one load balancer, as one backend.

Counts and times of the replicas are added up, and all have the same configuration. A change goes to one
replica first and then to the others; if one refuses it, those that have it already go back. A replica that
does not answer is left out as long as others do. When it is back it runs something else than the others, and
:meth:`ReplicaGroup.current` returns that, so that whoever tunes the group applies the configuration again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from tuner.adapters.backend import ApplyReport, Backend, Counters, Description
from tuner.adapters.connection.endpoint import Endpoint, Loadable
from tuner.adapters.deployment import deployed_anew
from tuner.adapters.replicas.canary import CanaryTrial, ServedRequests
from tuner.adapters.replicas.membership import AWAY, Membership
from tuner.adapters.rollback import NOT_EVERYWHERE, UNTOUCHED, Checking, failure, put_back, restore_each
from tuner.errors import InvalidInput, Refused, TunerError, Unreachable
from tuner.knobs import Configuration, KnobSpace
from tuner.profile import BatchingProfile, fit_profile

__all__ = ["ReplicaGroup"]


@runtime_checkable
class Sharing(Protocol):
    """A replica that knows its clients better by what the others run, which the same clients send to."""

    def hear_of(self, configurations: Collection[Configuration]) -> None:
        """Learn what serves the same clients elsewhere."""
        ...


class PendingTrial(NamedTuple):
    """A configuration that one replica tries before the others get it."""

    target: str
    """Of the replica."""
    wanted: Configuration
    """It runs this, or may do so later."""
    before: Configuration
    """It has to run this if the others do not get the other."""
    report: ApplyReport | None = None
    """Of its change, once that has been made."""


class ReplicaGroup:
    """A backend of several.

    Args:
        members: The replicas; the group closes them.

    Raises:
        InvalidInput: They have no knob grid in common; they are closed.
        AdapterError: None says what it runs; they are closed.
    """

    def __init__(self, members: Membership) -> None:
        self._members = members
        self._trial: PendingTrial | None = None  # the last that has not ended
        self._changed: set[str] = set()  # targets of replicas that may not run what they ran at first
        try:
            self.space = common_space([member.space for member in members.opened.values()])
            self._found = members.ask(lambda member: member.current())  # what they run at first, by target
        except BaseException:
            self.close()
            raise

    @property
    def replicas(self) -> int:
        """How many of them answered when they were last asked."""
        return len(self._members.opened.keys() - self._members.away.keys())

    @property
    def turnover(self) -> int:
        """How often one of them came or went, as far as was noticed when they were asked."""
        return self._members.turnover

    @property
    def deployed_anew(self) -> str:
        """Which replica has another model than when it was opened; empty if none has."""
        found = {target: deployed_anew(member) for target, member in self._members.opened.items()}
        return next((f"{target}: {why}" for target, why in found.items() if why), "")

    def endpoint(self) -> Endpoint:
        """Return how clients reach the model: by turns all replicas that answer, each in its own way.

        If none answers they go to all: some may be up before they are asked again.
        """
        away = self._members.away
        opened = self._members.opened
        members = [member for target, member in opened.items() if target not in away] or opened.values()
        first, *others = [member.endpoint() for member in members if isinstance(member, Loadable)]
        return replace(first, others=others)

    def describe(self) -> Description:
        """Return who this is and what it can do: what every replica can."""
        each = self._members.ask(lambda member: member.describe())
        first = next(iter(each.values()))
        lacks = dict.fromkeys(name for found in each.values() for name in found.lacks)
        notes = dict.fromkeys(note for found in each.values() for note in found.notes)
        away = [f"{why} (1 of {len(self._members)} replicas)" for why in self._members.away.values()]
        count = f"{len(each)} of {len(self._members)}" if away else f"{len(each)}"
        return replace(
            first,
            target=self._members.target,
            version=f"{first.version}, {count} replicas",
            writable=all(found.writable for found in each.values()),
            quantiles=all(found.quantiles for found in each.values()),
            lacks=tuple(lacks),
            processes=tuple(sorted(pid for found in each.values() for pid in found.processes)),
            counts_by_process=False,  # that one begins anew says nothing about the others
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
        try:
            before = self._before(configuration)
        except TunerError:
            self._break_off()
            raise
        # One that has tried it comes first: it is among those that go back, whichever refuses.
        tried = self._trial.target if self._trial is not None else None
        order = sorted(before, key=lambda target: target != tried)
        members = {target: self._members.opened[target] for target in order}
        reports: dict[str, ApplyReport] = {}
        doubtful: dict[str, TunerError] = {}
        begun = time.monotonic()
        for target, member in members.items():
            try:
                reports[target] = self._change(target, member, configuration)
            except AWAY as error:
                doubtful[target] = error
                self._members.note(target, str(error))
            except TunerError as error:
                last = () if isinstance(error, UNTOUCHED) else (target,)
                changed = {name: before[name] for name in (*reports, *doubtful, *last)}
                doubtful = put_back(members, changed) | doubtful
                problem = failure(f"{target}: {error}", doubtful, "the other replicas went back")
                problem.taken_back = True
                raise problem from error
        if not reports:
            raise failure("no replica answers", doubtful, "")
        running = next(iter(reports.values())).configuration
        parts = tuple(self._end_trial(reports, configuration).values())
        report = ApplyReport.together(parts, running, seconds=time.monotonic() - begun)
        return replace(report, replicas=parts)

    def _end_trial(
        self, reports: dict[str, ApplyReport], configuration: Configuration
    ) -> dict[str, ApplyReport]:
        """Note that replicas run a configuration; return their changes to it, with that of a trial before."""
        if (trial := self._trial) is None:
            return reports
        if trial.target not in reports:
            self._trial = trial._replace(before=configuration)
            return reports
        self._trial = None
        again = reports[trial.target].changed  # as after a restart
        if trial.report is None or again or not self.space.same(trial.wanted, configuration):
            return reports
        # Else nothing has changed where the others do not answer.
        return reports | {trial.target: trial.report}

    def _change(self, target: str, member: Backend, configuration: Configuration) -> ApplyReport:
        """Change one replica, and note that it may not run any more what it ran at first."""
        try:
            report = member.apply(configuration)
        except UNTOUCHED:
            raise
        except TunerError:
            self._changed.add(target)
            raise
        if report.changed:
            self._changed.add(target)
        return report

    def _before(self, configuration: Configuration) -> dict[str, Configuration]:
        """Ask each replica whether it would take a configuration, and what it runs, before any is changed.

        Returns:
            Target -> what it goes back to if the change fails: what it runs, unless that is on trial.
        """
        self.space.check_complete(configuration)
        serving = set(self._taken_back(self._members.ask(lambda member: member.current())).values())

        def check(member: Backend) -> Configuration:
            if isinstance(member, Sharing):
                member.hear_of(serving)
            if isinstance(member, Checking):
                member.check(configuration)
            return member.current()

        return self._taken_back(self._members.ask(check))

    def _taken_back(self, running: dict[str, Configuration]) -> dict[str, Configuration]:
        """Return what each replica runs, with what was there before in place of what is on trial."""
        trial = self._trial
        found = running.get(trial.target) if trial is not None else None
        if trial is None or found is None or not self.space.same(found, trial.wanted):
            return running
        return running | {trial.target: trial.before}

    def try_one(self, configuration: Configuration, wait: Callable[[float], None]) -> CanaryTrial | None:
        """Change the first replica, wait, and compare what it served with what the others served."""
        running = self._before(configuration)
        if len(running) < 2:
            return None
        chosen = min(running)
        earlier, self._trial = self._trial, PendingTrial(chosen, configuration, running[chosen])
        try:
            report = self._change(chosen, self._members.opened[chosen], configuration)
            self._trial = self._trial._replace(report=report)
        except UNTOUCHED:
            self._trial = earlier
            raise
        except AWAY as error:  # it may change later, so the trial has not ended
            self._members.note(chosen, str(error))
            raise
        except TunerError:
            self._break_off()
            raise
        try:
            before = self._members.ask(lambda member: member.counters())
            wait(report.settle)
            after = self._members.ask(lambda member: (member.counters(), member.current()))
        except BaseException:
            self._break_off()
            raise
        if chosen not in before or chosen not in after:
            why = self._members.away.get(chosen, "")
            raise Refused(f"{chosen} went away with the new configuration, and may still have it: {why}")
        ran = after[chosen][1]
        if not self.space.same(ran, report.configuration):  # it may have died of it, and be back
            self._trial = None
            problem = f"{chosen} was restarted in its trial, or changed by somebody else"
            raise Refused(f"{problem}: it runs {self.space.format(ran)}")
        shares = {
            name: ServedRequests.between(before[name], after[name][0]) for name in before if name in after
        }
        tried = shares.pop(chosen)
        others = ServedRequests(
            requests=sum(share.requests for share in shares.values()),
            failures=sum(share.failures for share in shares.values()),
            latency=sum(share.latency for share in shares.values()),
        )
        return CanaryTrial(server=chosen, tried=tried, others=others)

    def take_back(self) -> None:
        """Put back what the replica ran that tried a configuration."""
        trial = self._trial
        if trial is None:
            return
        member = self._members.opened.get(trial.target)
        # One that ran it already may have to be asked again: it was away, and its change is still to come.
        if member is None or member.apply(trial.before).changed:
            self._trial = None

    def _break_off(self) -> None:
        """Take a trial back; if that fails it has not ended, and what broke it off matters more."""
        with suppress(TunerError):
            self.take_back()

    def restore(self) -> None:
        """Put back at each replica what was found there; each is tried, whatever becomes of the others.

        What is found at one that is opened later may be what was applied here: it left and came back, or has
        its configuration from where another one has it, too. It gets what it ran when the group was opened;
        if it was not there then, what most of the others ran.

        Raises:
            AdapterError: Some refuse or cannot be reached, or were changed and have gone.
        """
        if self._changed - self._members.opened.keys():
            with suppress(TunerError):
                self._members.look_again()
        opened, late = self._members.opened, self._members.late
        most = Counter(self._found.values()).most_common(1)[0][0]
        wanted = {target: self._found.get(target, most) for target in opened if target in late}
        others = {target: ran for target, ran in wanted.items() if ran != late[target]}
        failed = restore_each({target: one for target, one in opened.items() if target not in others})
        failed |= put_back(opened, others)
        for target in sorted(self._changed - opened.keys()):
            failed[target] = Unreachable(self._members.away.get(target, "it is no replica any more"))
        self._changed.intersection_update(failed)
        if failed:
            raise failure(NOT_EVERYWHERE, failed, "")
        self._trial = None

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
