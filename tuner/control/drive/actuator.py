"""Carries out what was decided: writes it down, has one replica try it, and changes the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.adapters.backend import ApplyReport, Backend
from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply, Hold, Rollback
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.canary import try_first
from tuner.control.drive.journal import RunJournal, WindowRecord
from tuner.control.drive.outcome import Outcome, Unconfirmed, left_behind
from tuner.control.drive.oversight import Oversight
from tuner.control.drive.reconcile.late_change import uninterrupted_change
from tuner.control.drive.reconcile.reconciler import Reconciler
from tuner.control.drive.replicas import configurations
from tuner.control.drive.watched import Watched
from tuner.control.drive.windows import Windows
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, StorageError
from tuner.knobs import ApplyCost, Configuration, KnobSpace

__all__ = ["Actuator", "put_back"]


def put_back(backend: Backend, space: KnobSpace, ran: Configuration) -> ApplyReport:
    """Have a server run what it ran before, or the nearest of the grids where it cannot be set to that.

    Raises:
        InvalidInput: It cannot be set to either.
        AdapterError: As of :meth:`Backend.apply`.
    """
    try:
        return backend.apply(ran)
    except InvalidInput:
        if (near := space.nearest(ran)) == ran:
            raise
        return backend.apply(near)


class Actuator:
    """Carries out the decisions of a driver.

    Life: `carry_out` once in each turn.

    Args:
        watched: The server and its clock.
        windows: Its windows, which begin anew after a change.
        loop: Hears what came of each change.
        reconciler: Remembers what was applied, and changes whose end was not seen.
        oversight: What may be done.
        journal: Where decisions and changes are written down.
        notify: Receives a sentence about everything unusual.

    Attributes:
        applied: Changes that came about at once.
    """

    def __init__(
        self,
        watched: Watched,
        windows: Windows,
        loop: ControlLoop,
        reconciler: Reconciler,
        *,
        oversight: Oversight,
        journal: RunJournal,
        notify: Callable[[str], None],
    ) -> None:
        self.applied = 0
        self._older_may_come = False  # whether a change before this one may come about at any moment
        self._backend = watched.backend
        self._clock = watched.clock
        self._windows = windows
        self._loop = loop
        self._reconciler = reconciler
        self._oversight = oversight
        self._journal = journal
        self._notify = notify

    def carry_out(self, record: WindowRecord) -> WindowRecord:
        """Write a decision down, then do it; return the record with what came of it.

        Raises:
            StorageError: It could not be written down, and nothing was done.
        """
        decision, oversight = record.decision, self._oversight
        if isinstance(decision, Hold):
            return self._write_down(replace(record, outcome="held"))
        if not oversight.apply or not oversight.permit(decision):
            return self._write_down(
                replace(record, outcome="postponed" if oversight.apply else "recommended")
            )
        record = self._write_down(replace(record, outcome="decided"))
        back = isinstance(decision, Rollback)
        judged = isinstance(decision, Apply) and decision.judged
        restores = isinstance(decision, Apply) and decision.restores
        change = Unconfirmed(
            self._reconciler.running, decision.configuration, back, judged=judged, restores=restores
        )
        older = self._reconciler.unconfirmed
        self._older_may_come = older is not None
        # It replaces an older one. If Ctrl-C breaks it off, `finish` has to know that it is ours.
        self._reconciler.expect(change)
        try:
            outcome = self._apply(decision, change)
        except Exception as error:
            self._write_interrupted(record, str(error) or type(error).__name__)
            raise
        record = replace(record, outcome=outcome.word, report=outcome.report, error=outcome.problem)
        if outcome.certain:
            self._reconciler.unconfirmed = None
            if outcome.report is None and older is not None:  # the server may still be at the older one
                self._reconciler.unconfirmed = older._replace(record=None)  # the journal is past it
            self._journal.changed(record)
        else:  # the next windows show how it ended; a process that starts before that finds it unfinished
            late = self._reconciler.late_change() is not None
            change = change._replace(record=record, late=late, taken_back=outcome.taken_back)
            self._reconciler.expect(change)
            self._journal.stands()
        return record

    def _write_down(self, record: WindowRecord) -> WindowRecord:
        """Write a decision down; return the record with the lag: s from the end of the window to now."""
        self._journal.decided(record)
        if record.measurement is None:
            return record
        return replace(record, lag=self._clock.now() - record.measurement.end)

    def _try_first(self, decision: Apply | Rollback) -> Outcome | None:
        """Try a change on one replica; return what came of it if the others must not have it.

        Repairs go to all replicas at once: while one tried them, the others would go on breaking the SLO.
        """
        if not self._oversight.canary or isinstance(decision, Rollback) or decision.restores:
            return None
        verdict = try_first(
            self._backend,
            decision.configuration,
            self._loop.objective.slo,
            wait=self._windows.let_pass,
            forbidden=lambda: (
                self._oversight.forbids(decision, self._loop.orders) or self._set_meanwhile(decision)
            ),
        )
        if verdict.objection:
            self._loop.observe(on.Failed(decision, tried=True))
            return Outcome("failed", verdict.objection)
        return Outcome("interrupted", verdict.forbidden) if verdict.forbidden else None

    def _apply(self, decision: Apply | Rollback, change: Unconfirmed) -> Outcome:
        """Have one replica try a change if that is wanted, then make it; tell the loop what came of it."""
        asked = False
        try:
            self._journal.changing()
            if (ended := self._try_first(decision)) is not None:
                return ended
            if meanwhile := self._set_meanwhile(decision):
                return Outcome("interrupted", meanwhile)
            asked = True
            report = uninterrupted_change(
                lambda: self._set(decision), self._reconciler.still_under_way, self._notify
            )
        except (Refused, ReadOnly, InvalidInput) as error:
            self._loop.observe(on.Failed(decision))
            if self._loop.memory.holds_repairs:
                # A server that refuses it for good must not be kept from all else.
                self._reconciler.lost = None
            return Outcome("failed", str(error))
        except StorageError as error:
            self._notify(f"applying failed: {error}")
            return Outcome("failed", str(error))
        except AdapterError as error:
            self._notify(f"applying failed: {error}")
            self._loop.observe(on.Failed(decision, refused=False))
            return Outcome("failed", str(error), certain=not asked, taken_back=error.taken_back)
        self._reconciler.running = report.configuration
        self._reconciler.lost = self._reconciler.theirs = None
        self._windows.changed(report)
        self.applied += report.changed
        cost = report.cost if report.changed else ApplyCost.FREE
        previous = left_behind(self._loop.space, change.previous, change.wanted)
        now = self._clock.now()
        self._loop.observe(on.InForce(previous, change.back, now, cost, change.judged, change.restores))
        return Outcome("applied", report=report)

    def _set_meanwhile(self, decision: Apply | Rollback) -> str:
        """Return in words that somebody else has changed the server since the window; empty if nobody has.

        That stays, and the next turn goes on from there. A server that runs what it ran at first was
        restarted; that, what is restored, and a replica that differs from others are no reason to wait.

        Raises:
            AdapterError: The server does not answer.
        """
        space, running, wanted = self._loop.space, self._reconciler.running, decision.configuration
        if self._older_may_come or (isinstance(decision, Apply) and decision.restores):
            return ""
        found = [one for one in configurations(self._backend) if not space.same(one, wanted)]
        known = running, self._reconciler.original
        if not found or any(space.same(one, each) for one in found for each in known):
            return ""
        return f"somebody else has just set {space.format(found[0])}"

    def _set(self, decision: Apply | Rollback) -> ApplyReport:
        """Have the server run a configuration; what it ran before may be nothing that it can be set to."""
        pinned = self._loop.orders.pinned
        if isinstance(decision, Rollback) or (decision.restores and pinned is None):
            return put_back(self._backend, self._loop.space, decision.configuration)
        return self._backend.apply(decision.configuration)

    def _write_interrupted(self, record: WindowRecord, why: str) -> None:
        """Write down that a change was interrupted, such as by a stop in the middle of a trial.

        Only if the server runs what it ran before. If not, the next process finds the change unfinished, and
        finds out how it ended.
        """
        try:
            found = configurations(self._backend)
        except AdapterError:
            return
        if all(self._loop.space.same(one, self._reconciler.running) for one in found):
            error = f"{why} in the middle of it; the server runs what it ran before"
            self._notify(f"a change was broken off: {error}")
            self._journal.changed(replace(record, outcome="interrupted", error=error))
