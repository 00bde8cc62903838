"""Takes the turns of a control loop on a live or simulated server: measures, decides, and survives outages.

What a turn does, in this order, and what interrupts it:

=======================  ====================================================================================
step                     what it does
=======================  ====================================================================================
measure                  waits for the end of a window; if nothing answers, the turn becomes a recovery: wait
                         for the server, then decide without a window
read orders              asks the operator's order book, so that an order takes effect in the next turn
compare configurations   finds out whether the server still runs what was applied; what a restarted server
                         lost is restored, in a later turn if that fails; what somebody else set is
                         respected, and replicas that have come apart get one configuration again
decide                   tells the loop of the window and asks the rules; what is to be restored comes first
write down               enters the decision in the journal; if that fails, nothing is done
try on one replica       lets one of several replicas try the change first; if orders or the time forbid it
                         meanwhile, takes it back
apply                    changes the server, unless somebody else has done so since the window, and reports to
                         the loop what came of it
=======================  ====================================================================================

In the code: `step` and `observe` take a turn by `_turn`. It measures (`Windows.measure`, or `_recover` if
nothing answers), asks what the server runs (`ask_running`), and hands both to `_act`, which reads the
orders, compares (`Reconciler.compare`) and decides. `Actuator.carry_out` takes the last three steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from tuner.adapters.replicas.canary import Canary
from tuner.adapters.scaling import ComingAndGoing
from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply, Decision, Hold
from tuner.control.decide.loop import ControlLoop
from tuner.control.drive.actuator import Actuator
from tuner.control.drive.journal import Journal, RunJournal, StateFile, WindowRecord
from tuner.control.drive.oversight import Oversight
from tuner.control.drive.reconcile.outage import first_answer
from tuner.control.drive.reconcile.reconciler import Reconciler
from tuner.control.drive.replicas import Found, configurations, prevailing, taken_together
from tuner.control.drive.state import RunState, StoredBan
from tuner.control.drive.watched import Watched
from tuner.control.drive.windows import Windows
from tuner.errors import AdapterError, StorageError
from tuner.knobs import Configuration
from tuner.measurement import Measurement

__all__ = ["Driver"]

log = logging.getLogger(__name__)

PATIENCE = 300.0
"""How long a driver waits for a server that is away, s."""
AT_ONCE = 0.4
"""A server that answers within this time, s, was not away: `first_answer` asks again after 0.5 s only."""


class Driver:
    """Turns the control loop's decisions into changes of a live server.

    Life: iterate `windows`; each turn measures one window, decides, applies. `finish` leaves the server
    with a configuration that was seen to be good. When the server dies, the driver waits for it, and restores
    the last good configuration when it is back.

    Args:
        watched: The server and how it is measured.
        loop: Decides.
        window: Length of a window, s.
        oversight: What the driver may do.
        journal: Where decisions and changes are written down; nowhere if None.
        resume: The state in which an earlier process left the target, if there was one.
        patience: How long to wait for a server that is away, s.
        notify: Receives a sentence about everything unusual.

    Attributes:
        reconciler: Knows what the server should run.
    """

    def __init__(
        self,
        watched: Watched,
        loop: ControlLoop,
        *,
        window: float,
        oversight: Oversight | None = None,
        journal: Journal | None = None,
        resume: RunState | None = None,
        patience: float = PATIENCE,
        notify: Callable[[str], None] = log.warning,
    ) -> None:
        self.backend = watched.backend
        self.loop = loop
        self.window = window
        self._clock = watched.clock
        self._oversight = oversight or Oversight()
        self._journal = RunJournal(journal or StateFile(), self._state)
        self._patience = patience
        self._notify = notify
        self._said: set[str] = set()  # since the last window
        self._windows = Windows(watched, loop, window)
        self._number = 0
        self._target = self.backend.describe().target
        self._turnover = self._count_turnover()  # when replicas were last asked
        self.reconciler = Reconciler(
            prevailing(self.backend),
            loop,
            self._oversight,
            now=self._clock.now,
            ended=self._journal.changed,
            notify=notify,
        )
        self._actuator = Actuator(
            watched,
            self._windows,
            loop,
            self.reconciler,
            oversight=self._oversight,
            journal=self._journal,
            notify=notify,
        )
        if resume is not None:
            self._resume(resume.completed(loop.space, self.running))
        self.note_state()

    def _resume(self, state: RunState) -> None:
        """Go on from where an earlier process was."""
        kept = self.reconciler
        # What was applied last, not what runs now: the first turn has to notice a difference.
        kept.original, kept.running = Configuration(state.original), Configuration(state.current)
        kept.may_have_restarted = True  # while no process of ours watched
        self.loop.last_good = Configuration(state.last_good) if state.last_good is not None else None
        self._number = state.window
        for ban in state.bans:
            self.loop.observe(ban.event())

    @property
    def running(self) -> Configuration:
        """What the server should run: what was applied last."""
        return self.reconciler.running

    @running.setter
    def running(self, configuration: Configuration) -> None:
        self.reconciler.running = configuration

    @property
    def reconfigurations(self) -> int:
        """How often the server was changed."""
        return self._actuator.applied + self.reconciler.confirmed

    @property
    def applies(self) -> bool:
        """Whether the server may be changed at all."""
        return self._oversight.apply and not self._oversight.orders.read().paused

    def windows(self) -> Iterator[WindowRecord]:
        """Take one turn after the other without end; the caller stops."""
        while True:
            yield self.step()

    def step(self, *, last: bool = False) -> WindowRecord:
        """Take one turn: measure a window, decide, apply.

        Args:
            last: No window follows that could judge a change: only what must be done is done, such as a
                rollback. `finish` then leaves the best configuration.
        """

        def judge(window: Measurement) -> Decision:
            decision = self._decide(on.WindowEnded(self._clock.now(), window))
            return self._without_trial(decision) if last else decision

        return self._turn(judge)

    def _without_trial(self, decision: Decision) -> Decision:
        """Return a decision, or to hold where it would change the server for a window that never comes."""
        if not (isinstance(decision, Apply) and not decision.restores and self._oversight.apply):
            return decision
        return Hold(reason="the last window: nothing is tried that none would judge")

    def note_state(self) -> None:
        """Write down where the run stands, and what changes have taught."""
        self._journal.stands()

    def restored(self) -> None:
        """Take note that somebody has put back what the server ran first."""
        self.running = self.reconciler.original
        self.note_state()

    def observe(self) -> WindowRecord:
        """Take one turn that leaves the server as it is."""
        self.loop.level = None  # it observes none of these windows: its level is an earlier one's
        return self._turn(lambda _: Hold(reason="only observing"), watching=not self._oversight.apply)

    def finish(self) -> Configuration:
        """Leave the server with the best configuration that was tried under the present load; it may go on.

        The server is asked first what it runs. An interrupted change may have come about all the same, and a
        restarted server may have lost its configuration; what somebody else has set stays, and so does what
        a server runs that does not answer.

        Returns:
            What the server runs.
        """
        orders = self._oversight.orders.read()
        tried = self.loop.memory.at(self.loop.level).tried
        if orders.standing or not self._oversight.apply or not tried:
            return self.running
        try:
            found = self.ask_running()
        except AdapterError as error:  # nor is it changed: what a change on probation did would be forgotten
            self._notify(f"the server could not be asked what it runs, and is left as it is: {error}")
            self.note_state()
            return self.running
        best = self._best_to_leave(found)
        self.running = found.configuration
        if found.apart or not self.loop.space.same(self.running, best):
            reason = "nothing more is tried; it is left with its best configuration"
            last = Apply(configuration=best, reason=reason, restores=True, judged=True)
            self._actuator.carry_out(WindowRecord(number=self._number, measurement=None, decision=last))
        self.note_state()
        return self.running

    def _best_to_leave(self, found: Found) -> Configuration:
        """Return what to leave a server with that was found at the end: the best, or what runs if that stays.

        What has become of the changes before is noted first: what they have shown to be bad is not the best.
        Where all that is known of this load is banned, what runs stays; so does what a restarted server got
        back, where nothing that is known of this load keeps the SLO.
        """
        running, reconciler = found.configuration, self.reconciler
        if reconciler.confirm(found) or self.loop.space.same(running, self.running):
            if self.loop.runs_last_good_unseen(running):
                return running
            if not self._unjudged(reconciler.theirs):
                return self.loop.incumbent() or running
            self._notify("what somebody else has set stays, because no window has judged it")
            return running
        self.loop.observe(on.Undone(self.running))  # it may have died of that: the next life has to know
        if reconciler.was_restarted(running):
            return self.loop.incumbent() or running
        reconciler.foreign.noticed(self.loop.space.format(running), "it stays")
        return running

    def _unjudged(self, theirs: Configuration | None) -> bool:
        """Whether no usable window has ever shown what somebody else has set."""
        if theirs is None:
            return False
        number = self.loop.space.encode(self.loop.space.nearest(theirs))
        return not any(number in windows for windows in self.loop.memory.visits().values())

    def _decide(self, event: on.Event) -> Decision:
        self.loop.observe(event)
        return self.loop.decide()

    def _turn(self, judge: Callable[[Measurement], Decision], *, watching: bool = False) -> WindowRecord:
        """Take one turn; one who only watches decides nothing, not even what is to be restored."""
        self._number += 1
        try:
            measurement = self._windows.measure()
            found = self.ask_running(measurement.configuration)
        except AdapterError as error:
            return self._recover(error, watching=watching)
        self._said.clear()
        if measurement.restarted:
            self.reconciler.restarted()
        if found.apart:  # the window shows no one configuration
            disturbed = (*measurement.disturbed, found.apart)
            measurement = replace(measurement, configuration=found.configuration, disturbed=disturbed)
        return self._act(found, lambda: judge(measurement), measurement, watching=watching)

    def _recover(self, error: AdapterError, *, watching: bool) -> WindowRecord:
        """Wait for a server that is away, then decide without a window; a lost configuration is restored."""
        self._notify_once(f"{error}; keeping the last good configuration and waiting for the server")
        self.note_state()
        begun, self.reconciler.may_have_restarted = self._clock.now(), True
        found = first_answer(self.ask_running, self._clock, patience=self._patience, longest=self.window / 2)
        current = found.configuration
        waited = self._clock.now() - begun
        same, text = self.loop.space.equal(current, self.running), self.loop.space.format(current)
        reason = f"the server was away and is back {'as it was' if same else f'with {text}'}"
        if metrics_only := same and waited < AT_ONCE:
            reason = str(error)
        overdue, rest = self._windows.went_on(begun, waited, metrics_only=metrics_only)

        def judge() -> Decision:
            decision = self._decide(on.Unseen(current, reason, overdue))
            return Hold(reason=reason) if watching else decision

        record = self._act(found, judge, watching=watching)
        self._windows.rest(rest)
        return replace(record, error=record.error or str(error))

    def _notify_once(self, sentence: str) -> None:
        """Say something unusual, unless it was said since the last window."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._notify(sentence)

    def ask_running(self, shown: Configuration | None = None) -> Found:
        """Ask what the server runs.

        Args:
            shown: What the window that has just ended showed. A single server is then not asked again;
                replicas are, because they may run different configurations.

        Raises:
            AdapterError: It does not answer.
        """
        if shown is not None and not isinstance(self.backend, Canary):
            return Found(shown)
        each = configurations(self.backend)
        before, self._turnover = self._turnover, self._count_turnover()
        self.reconciler.may_have_restarted |= self._turnover != before
        change = self.reconciler.unconfirmed
        return taken_together(
            each,
            self.loop.space,
            applied=self.running,
            original=self.reconciler.original,
            wanted=self.running if change is None else change.wanted,
            refused=change is not None and change.taken_back,
        )

    def _count_turnover(self) -> int:
        """Return how often replicas have come or gone: where they have, all of them may have restarted."""
        return self.backend.turnover if isinstance(self.backend, ComingAndGoing) else 0

    def _act(
        self,
        found: Found,
        judge: Callable[[], Decision],
        measurement: Measurement | None = None,
        *,
        watching: bool = False,
    ) -> WindowRecord:
        """Take the steps of a turn that follow its window, or its outage.

        Args:
            found: What the server runs.
            judge: Observes what the window showed, and decides if there is nothing to restore.
            measurement: The window, if there was one.
            watching: Nothing is restored, nor said to be.
        """
        self.loop.observe(on.Ordered(self._oversight.orders.read()))
        restore = self.reconciler.compare(found)
        judged, before = judge(), self.running  # what is restored is judged by what is known of this load
        decision = judged if watching else restore or judged
        if restore is not None:
            self.running = found.configuration
        record = WindowRecord(
            number=self._number, measurement=measurement, decision=decision, level=self.loop.level
        )
        if measurement is None:
            self._notify_once(decision.reason)
        else:
            record = replace(record, cost=self.loop.objective.cost(measurement))
        try:
            record = self._actuator.carry_out(record)
        except StorageError:
            if restore is not None:
                self.running = before  # nothing was restored: the next turn has to try again
            raise
        self.reconciler.may_have_restarted = False
        # An order to roll back is tried once; after a restoration its turn comes next.
        if restore is None and self.loop.orders.rollback is not None:
            self._oversight.orders.done(self.loop.orders.rollback)
        self._move_pin(record)
        return record

    def _move_pin(self, record: WindowRecord) -> None:
        """Pin a server to what it has made of a pinned configuration, if it rounds values.

        Otherwise what it runs would never be what was ordered, and be changed in every turn.
        """
        pinned, space = self.loop.orders.pinned, self.loop.space
        if pinned is None or record.outcome != "applied" or record.wanted != pinned:
            return
        if space.same(pinned, self.running) and not space.equal(pinned, self.running):
            self._oversight.orders.moved(pinned, self.running)

    def _state(self) -> RunState:
        good = self.loop.last_good
        return RunState(
            target=self._target,
            original=dict(self.reconciler.original),
            current=dict(self.running),
            last_good=dict(good) if good is not None else None,
            window=self._number,
            bans=tuple(map(StoredBan.of, self.loop.bans())),
        )
