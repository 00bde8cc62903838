"""Compares what a server runs with what was applied to it, and says what has to be put back.

What a comparison finds, and what follows:

=====================  ======================================================================================
the server runs        what follows
=====================  ======================================================================================
what was applied       nothing; replicas that have come apart get one configuration again, and what a restart
                       has undone is restored if that failed before
a change whose end     it is in force, and its end is written down; one that an earlier life left in force,
was not seen           and that is not what runs, has been undone (see below)
what it ran at first,  it was restarted: the last good configuration is restored, and a change that was on
after it was away      probation counts as failed
anything else          somebody has set it, and it stays; a pin moves there. A change that was on probation
                       counts as failed here, too: the server may have died of it
=====================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.journal import WindowRecord
from tuner.control.drive.outcome import LATE, Unconfirmed, as_seen, left_behind
from tuner.control.drive.oversight import Oversight
from tuner.control.drive.reconcile.foreign import ForeignChanges
from tuner.control.drive.replicas import Found
from tuner.knobs import Configuration

__all__ = ["Reconciler"]


class Reconciler:
    """What a server should run.

    Life: :meth:`compare` once in every turn, with what the server was found to run; :meth:`expect` before
    each change, and again if its end was not seen.

    Args:
        running: What the server runs.
        loop: Hears what became of changes.
        oversight: What may be done.
        now: The time, s.
        ended: Writes down how a change ended whose end was not seen.
        notify: Receives a sentence about everything unusual.

    Attributes:
        original: What the server ran when the first driver attached.
        running: What was applied last.
        unconfirmed: The change whose end was not seen, if there is one.
        lost: What a restart has undone and nothing has replaced yet.
        may_have_restarted: Whether the server was away, or began anew, since the last comparison; or one of
            its replicas came or went.
        confirmed: Changes that came about after all.
        foreign: What others have changed.
        theirs: What somebody else has set, as long as nothing was changed since, nor has a restart undone it.
    """

    def __init__(
        self,
        running: Configuration,
        loop: ControlLoop,
        oversight: Oversight,
        *,
        now: Callable[[], float],
        ended: Callable[[WindowRecord], None],
        notify: Callable[[str], None],
    ) -> None:
        self.original = self.running = running
        self.unconfirmed: Unconfirmed | None = None
        self.lost: Configuration | None = None
        self.may_have_restarted = False
        self.confirmed = 0
        self.theirs: Configuration | None = None
        self.foreign = ForeignChanges(now=now, notify=notify)
        self._loop = loop
        self._oversight = oversight
        self._now = now
        self._ended = ended
        self._notify = notify

    def expect(self, change: Unconfirmed, within: float = LATE) -> None:
        """Note a change whose end was not seen: the next turns find out whether it came about.

        Args:
            change: The change.
            within: How long it may still come about, s.
        """
        self.unconfirmed = change._replace(deadline=self._now() + within)

    def still_under_way(self) -> None:
        """Note that the server may still be at the expected change, although the waiting has ended."""
        if (change := self.unconfirmed) is not None:
            self.unconfirmed = change._replace(late=True, deadline=self._now() + LATE)

    def restarted(self) -> None:
        """Note that the server's process was seen to have begun anew: what it was loading is over.

        One that was only away may have been too busy with loading to answer.
        """
        self.may_have_restarted = True
        self.not_under_way()

    def not_under_way(self) -> None:
        """Note that the server is no more at the expected change, whether it runs it or not."""
        if (change := self.unconfirmed) is not None:
            self.unconfirmed = change._replace(late=False)

    def late_change(self) -> Unconfirmed | None:
        """Return the change that the server may still be at, although the waiting for it has ended."""
        change = self.unconfirmed
        return change if change is not None and change.late and self._now() < change.deadline else None

    def compare(self, found: Found) -> Apply | None:
        """Compare what the server runs with what was applied; return what to restore, if anything.

        A server that was away, or whose process began anew in the window, and that runs what it ran when the
        first driver attached, was restarted: the last good configuration is put back. Anything else was set
        by somebody, and is respected. Replicas that run something else than what prevails get that.
        """
        running = found.configuration
        if self.confirm(found) or self._unchanged(running):
            self.running = running  # a value on no grid may differ a little
            return self._reunite_replicas(found) or self._restore_again(running)
        if not self.was_restarted(running):
            self._respect(running)
            return None
        self.theirs = None
        self._loop.observe(on.Undone(self.running))
        restore = self._loop.restoration(running, self.running)
        self.lost = self.running if restore is not None else None
        if restore is None:
            self.running = running
            if self._loop.orders.paused:
                text = self._loop.space.format(running)
                self._notify(
                    f"the server lost its configuration and runs {text}; nothing is put back: paused"
                )
        return restore

    def _unchanged(self, running: Configuration) -> bool:
        """Return whether a server runs what was applied.

        Where it may have been restarted, or is pinned, it is not enough that both are nearest to the same
        configuration: the grids need not contain what it ran at first.
        """
        space, exactly = self._loop.space, self.may_have_restarted or self._loop.orders.pinned is not None
        return space.same(running, self.running) and (not exactly or space.equal(running, self.running))

    def was_restarted(self, running: Configuration) -> bool:
        """Return whether a server runs what it ran at first because it may have been restarted meanwhile."""
        space = self._loop.space
        return self.may_have_restarted and space.equal(running, space.with_clients(self.original, running))

    def _restore_again(self, running: Configuration) -> Apply | None:
        """Return the restoration of what a restarted server has lost, if that has failed so far.

        It waits while orders or the circuit breaker forbid changes, and is over when the windows meanwhile
        have shown that what runs is better.
        """
        orders, memory = self._loop.orders, self._loop.memory
        if self.lost is None or orders.standing or orders.rollback is not None or memory.holds_repairs:
            return None
        if (restore := self._loop.restoration(running, self.lost)) is None:
            self.lost = None
            return None
        return restore if self._oversight.apply and self._oversight.permit(restore) else None

    def _reunite_replicas(self, found: Found) -> Apply | None:
        """Return the change that gives all replicas one configuration, if they have come apart.

        It waits while orders or the circuit breaker forbid changes.
        """
        orders, memory = self._loop.orders, self._loop.memory
        # A rollback gives all replicas one configuration, too; the breaker spares one that refuses.
        if not found.apart or orders.paused or orders.rollback is not None or memory.holds_repairs:
            return None
        if not self._oversight.apply:
            return None
        wanted = self.running if orders.pinned is None else orders.pinned
        return Apply(configuration=wanted, reason=f"{found.apart}; all get the same again", restores=True)

    def confirm(self, found: Found) -> bool:
        """Return whether a change whose end was not seen has come about; if so, note that and write it down.

        While the server runs what it ran before, the change counts as failed; it may still come about until
        its deadline, so it is looked for again in the next turn. One that was seen to have come about before
        this turn, and is not what runs, was in force until something undid it.
        """
        change, space, running = self.unconfirmed, self._loop.space, found.configuration
        if change is None:
            return False
        wanted = as_seen(space, change.previous, change.wanted, running)
        previous = left_behind(space, change.previous, wanted)
        if previous is not None:
            came = space.same(running, wanted)
        else:  # it only reunites replicas
            came = space.equal(running, wanted) and not found.apart
        if came:
            self.running = running
            self._note_in_force(change, previous)
        elif change.seen:
            self.unconfirmed, self.running = None, change.wanted
            self._loop.observe(on.InForce(previous, change.back, self._now(), judged=change.judged))
        else:
            if change.record is not None and not change.failed:
                self._ended(replace(change.record, outcome="failed"))
            as_before = previous is not None and space.same(running, previous)
            may_come = as_before and self._now() < change.deadline
            self.unconfirmed = change._replace(failed=True) if may_come else None
        return came

    def _note_in_force(self, change: Unconfirmed, previous: Configuration | None) -> None:
        """Note, and write down, that a change whose end was not seen has come about: the server runs it."""
        space, record = self._loop.space, change.record
        if record is not None:
            error = f"{record.error}; it came about after all"
            self._ended(replace(record, outcome="applied", error=error))
        self.unconfirmed = self.lost = self.theirs = None
        if not change.seen:
            self._notify(f"the change to {space.format(self.running)} came about after all")
        if change.write_came is not None:
            change.write_came()
        cost = None
        if record is not None or change.write_came is not None:  # else an earlier process has counted it
            cost = space.apply_cost(change.previous, self.running)
            self.confirmed += 1
        self._loop.observe(
            on.InForce(previous, change.back, self._now(), cost, change.judged, change.restores)
        )

    def _respect(self, found: Configuration) -> None:
        """Go on from a configuration that somebody else has set. A pin moves there, so as to fight nobody."""
        orders, going_on = self._loop.orders, "going on from there"
        if orders.pinned is not None:
            # The order book comes first: if it cannot be written, the next turn has to notice this again.
            self._oversight.orders.moved(orders.pinned, found)
            self._loop.observe(on.Ordered(replace(orders, pinned=found)))
            going_on = "it is pinned to that now"
        self._loop.observe(on.Undone(self.running))
        self.running, self.lost, self.theirs = found, None, found
        self.foreign.noticed(self._loop.space.format(found), going_on)
