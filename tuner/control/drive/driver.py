"""Runs the control loop against a backend: measures, applies, and survives the server's death."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_exponential

from tuner.adapters.backend import ApplyReport, Backend
from tuner.control.decide import event as on
from tuner.control.decide.decision import Apply, Decision, Hold, Rollback
from tuner.control.decide.loop import ControlLoop
from tuner.control.decide.orders import NoOrders, OrderBook
from tuner.control.decide.rules import decide
from tuner.control.drive.canary import try_first
from tuner.control.drive.state import RunState
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, StorageError, Unreachable
from tuner.knobs import ApplyCost, Configuration
from tuner.measurement import NOT_KNOWN, Measurement
from tuner.profiler.source import Clock

__all__ = ["Driver", "Journal", "Measurer", "WindowRecord"]

log = logging.getLogger(__name__)

LONGEST_WAIT = 5.0
"""Between two questions to a server that is away, s; at most half a window."""
AT_ONCE = 0.4
"""A server that answers within so many seconds, without a second question, was not away."""


class Measurer(Protocol):
    """What measures windows: :class:`tuner.profiler.Profiler`."""

    def measure(self, seconds: float, *, settle: float = 0.0) -> Measurement:
        """Wait ``settle`` seconds, then measure a window."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRecord:
    """One turn of the loop: what was seen, what was decided, and what came of it."""

    number: int
    """From 1."""
    measurement: Measurement | None
    """None if the server was away."""
    decision: Decision
    cost: float = NOT_KNOWN
    level: int | None = None
    outcome: str = "held"
    """What came of the decision: ``held``, ``recommended`` (nothing may be changed at all), ``postponed``
    (not now), ``applied`` or ``failed``."""
    report: ApplyReport | None = None
    """What applying did; None if nothing was applied."""
    error: str = ""
    """Why applying or measuring failed; empty if it did not."""
    lag: float = NOT_KNOWN
    """From the end of the window until its decision was made and written down, s."""


class Doubt(NamedTuple):
    """A change whose end was not seen; see :meth:`Driver.doubt`."""

    previous: Configuration
    """What the server ran before."""
    wanted: Configuration
    back: bool
    """Whether it was a rollback."""


class Journal(Protocol):
    """Writes down what happens, so that a later life of the process can go on from there."""

    def decided(self, record: WindowRecord, state: RunState) -> None:
        """A window was measured and judged; nothing was done yet. If this fails, nothing is done."""
        ...

    def changing(self) -> None:
        """What was decided last is about to be applied. If this fails, it is not."""
        ...

    def changed(self, record: WindowRecord, state: RunState) -> None:
        """The server has answered, or has not."""
        ...


class Driver:
    """Turns the control loop's decisions into changes of a live server.

    Life: iterate `windows`; each turn measures one window, decides, applies. `finish` leaves the server
    with a configuration that was seen to be good. Neither ever raises because the server died: the driver
    waits for it, and restores the last good configuration when it is back.

    Args:
        backend: The server.
        profiler: Measures windows of it.
        loop: Decides.
        clock: Real or virtual time.
        window: Length of a window, s.
        apply: False only recommends.
        permit: Whether a decision may be carried out now.
        orders: What an operator wants.
        canary: Try configurations on one replica first, where a target has several.
        state_file: Where the last good configuration is kept, if anywhere.
        journal: Told about everything, before and after.
        resume: Where an earlier life ended, if there was one.
        patience: How long to wait for a server that has gone, s.
        notify: Told in a sentence about everything unusual.
    """

    def __init__(
        self,
        backend: Backend,
        profiler: Measurer,
        loop: ControlLoop,
        *,
        clock: Clock,
        window: float,
        apply: bool = True,
        permit: Callable[[Apply | Rollback], bool] = lambda _: True,
        orders: OrderBook | None = None,
        canary: bool = False,
        state_file: Path | None = None,
        journal: Journal | None = None,
        resume: RunState | None = None,
        patience: float = 300.0,
        notify: Callable[[str], None] = log.warning,
    ) -> None:
        self.backend = backend
        self.profiler = profiler
        self.loop = loop
        self.window = window
        self._clock = clock
        self._apply = apply
        self._permit = permit
        self._orders = orders or NoOrders()
        self._canary = canary
        self._state_file = state_file
        self._journal = journal
        self._patience = patience
        self._notify = notify
        self._settle = 0.0
        self._change_before: ApplyReport | None = None  # what the next window begins with
        self._number = 0
        self._target = backend.describe().target
        self.original = self.running = backend.current()
        if resume is not None:
            # What the server runs now, _put_back compares with what it was left with.
            self.original, self.running = Configuration(resume.original), Configuration(resume.current)
            self.loop.last_good = Configuration(resume.last_good) if resume.last_good is not None else None
            self._number = resume.window
        self._doubt: Doubt | None = None
        self._unwatched = resume is not None  # nobody watched the server since the last window
        self.reconfigurations = 0
        self._save()

    @property
    def applies(self) -> bool:
        """Whether the server may be changed at all."""
        return self._apply and not self._orders.read().paused

    def doubt(self, previous: Configuration, wanted: Configuration, *, back: bool = False) -> None:
        """A change was begun and its end not seen: the next window shows whether it came about."""
        self._doubt = Doubt(previous, wanted, back)

    def windows(self) -> Iterator[WindowRecord]:
        """Measure and decide without end; the caller stops when it has enough."""
        while True:
            yield self.step()

    def step(self) -> WindowRecord:
        """Measure one window, decide, apply."""
        return self._turn(self._decide)

    def observe(self) -> WindowRecord:
        """Measure one window and leave the server as it is."""
        return self._turn(lambda _: Hold(reason="only observing"))

    def _decide(self, measurement: Measurement) -> Decision:
        self.loop.observe(on.WindowEnded(self._clock.now(), measurement))
        return decide(self.loop.facts)

    def _turn(self, judge: Callable[[Measurement], Decision]) -> WindowRecord:
        self._number += 1
        try:
            measurement = self.profiler.measure(self.window, settle=self._settle)
        except AdapterError as error:
            return self._recover(error)
        if self._change_before is not None:
            measurement = self._change_before.noted(measurement)
        self._settle, self._change_before = 0.0, None
        self.loop.observe(on.Ordered(self._orders.read()))
        restore = self._put_back(measurement.configuration, away=self._unwatched)
        self._unwatched = False
        decision = restore or judge(measurement)
        record = self._carry_out(
            WindowRecord(
                number=self._number,
                measurement=measurement,
                decision=decision,
                cost=self.loop.objective.cost(measurement),
                level=self.loop.level,
            )
        )
        self._done(restore)
        return record

    def _done(self, restore: Apply | None) -> None:
        """Strike out an order to roll back that was carried out, or could not be."""
        if self.loop.orders.rollback is not None and restore is None:
            self._orders.done()

    def _put_back(self, found: Configuration, *, away: bool) -> Apply | None:
        """Notice that the server no longer runs what was applied, and say what to restore.

        If it was away, and runs what it ran before we came, it was restarted: the last good configuration
        is put back. Anything else was set by somebody, and is respected; a pin moves there.

        Args:
            found: What it runs.
            away: Whether it may have been restarted since the last window.
        """
        nearest = self.loop.space.nearest
        doubt, self._doubt = self._doubt, None
        if nearest(found) == nearest(self.running):
            return None
        self.running = found
        if doubt is not None and nearest(found) == nearest(doubt.wanted):
            self._notify(f"the change to {self.loop.space.format(found)} came about after all")
            self.loop.observe(on.InForce(doubt.previous, back=doubt.back))
            return None
        if not away or nearest(found) != nearest(self.original):
            self._respect(found)
            return None
        self.loop.observe(on.Away())
        restore = self.loop.restoration(found)
        if restore is None and self.loop.orders.paused:
            text = self.loop.space.format(found)
            self._notify(f"the server lost its configuration and runs {text}; nothing is put back: paused")
        return restore

    def _respect(self, found: Configuration) -> None:
        """Somebody else changed the configuration."""
        self.loop.observe(on.Overtaken())
        text = self.loop.space.format(found)
        if self.loop.orders.pinned is None:
            self._notify(f"somebody else set {text}; going on from there")
            return
        self._notify(f"somebody else set {text}; it is pinned to that now")
        self._orders.moved(found)
        self.loop.observe(on.Ordered(replace(self.loop.orders, pinned=found)))

    def finish(self) -> Configuration:
        """Leave the server with the best configuration that was tried under the present load.

        A change that was interrupted may have come about all the same, so the server is asked first.

        Returns:
            What the server runs.
        """
        best = self.loop.incumbent()
        if not self._apply or best is None or self._orders.read().standing:
            return self.running
        try:
            self.running = self.backend.current()
        except AdapterError as error:
            self._notify(f"the server could not be asked what it runs: {error}")
        if self.loop.space.nearest(self.running) != best:
            reason = "the run ends with its best configuration"
            last = Apply(configuration=best, reason=reason, restores=True)
            self._carry_out(WindowRecord(number=self._number, measurement=None, decision=last))
        self._save()
        return self.running

    def _carry_out(self, record: WindowRecord) -> WindowRecord:
        """Write a decision down, then do it; return the record with what came of it.

        Raises:
            StorageError: It could not be written down, and nothing was done.
        """
        decision = record.decision
        if isinstance(decision, Hold) or not self._apply or not self._permit(decision):
            held = "held" if isinstance(decision, Hold) else "postponed" if self._apply else "recommended"
            return self._noted(replace(record, outcome=held))
        record = self._noted(replace(record, outcome="decided"))
        report, problem = self._change(decision)
        record = replace(record, outcome="failed" if problem else "applied", report=report, error=problem)
        if self._journal is not None:
            self._journal.changed(record, self._state())
        self._save()
        return record

    def _noted(self, record: WindowRecord) -> WindowRecord:
        """Write a decision down; return the record with how long that took since the end of the window."""
        if self._journal is not None:
            self._journal.decided(record, self._state())
        self._save()
        if record.measurement is None:
            return record
        return replace(record, lag=self._clock.now() - record.measurement.end)

    def _change(self, decision: Apply | Rollback) -> tuple[ApplyReport | None, str]:
        """Apply a decision; return the report, or the reason why not."""
        previous = self.running
        try:
            if self._journal is not None:
                self._journal.changing()
            if objection := self._try_first(decision):
                self.loop.observe(on.Disproved(decision))
                return None, objection
            report = self.backend.apply(decision.configuration)
        except (Refused, ReadOnly, InvalidInput) as error:
            self.loop.observe(on.Failed(decision))
            return None, str(error)
        except (AdapterError, StorageError) as error:
            self._notify(f"applying failed: {error}")
            if isinstance(error, AdapterError):
                self.loop.observe(on.Failed(decision, refused=False))
                self.doubt(previous, decision.configuration, back=isinstance(decision, Rollback))
            return None, str(error)
        self.running = report.configuration
        self._settle = report.settle if report.changed else 0.0
        self._change_before = report
        self.reconfigurations += report.changed
        self.loop.observe(on.Changed(self._clock.now(), report.cost if report.changed else ApplyCost.FREE))
        self.loop.observe(on.InForce(previous, back=isinstance(decision, Rollback)))
        return report, ""

    def _try_first(self, decision: Apply | Rollback) -> str:
        """Say what a trial on one replica speaks against a change; what repairs is not tried first."""
        if not self._canary or isinstance(decision, Rollback) or decision.restores:
            return ""
        slo, sleep = self.loop.objective.slo, self._clock.sleep
        return try_first(
            self.backend, decision.configuration, slo, lambda settle: sleep(settle + self.window)
        )

    def _recover(self, error: AdapterError) -> WindowRecord:
        """Wait for the server, then restore the last good configuration if it has lost it."""
        self._notify(f"{error}; keeping the last good configuration and waiting for the server")
        self._save()
        begun, before = self._clock.now(), self.running
        current = self._wait_for_server()
        self.loop.observe(on.Ordered(self._orders.read()))
        restore = self._put_back(current, away=True)
        nearest, text = self.loop.space.nearest, self.loop.space.format(current)
        same = nearest(current) == nearest(before)
        reason = f"the server was away and is back {'as it was' if same else f'with {text}'}"
        if same and self._clock.now() - begun < AT_ONCE:
            reason = str(error)  # it was there, and only what measures it was not
        decision = restore or self._decide_unseen(current, reason)
        self._notify(decision.reason)
        record = self._carry_out(
            WindowRecord(number=self._number, measurement=None, decision=decision, level=self.loop.level)
        )
        self._done(restore)
        self._settle = max(self._settle, 1.0)
        return replace(record, error=record.error or str(error))

    def _decide_unseen(self, running: Configuration, reason: str) -> Decision:
        self.loop.observe(on.Unseen(running, reason))
        return decide(self.loop.facts)

    def _wait_for_server(self) -> Configuration:
        """Return what the server runs, as soon as it answers.

        Raises:
            Unreachable: It did not come back within the patience.
        """
        deadline = self._clock.now() + self._patience

        def too_late(_: RetryCallState) -> bool:
            return self._clock.now() >= deadline  # the clock may be virtual

        attempts = Retrying(
            retry=retry_if_exception_type(AdapterError),
            wait=wait_exponential(multiplier=0.5, max=min(LONGEST_WAIT, self.window / 2)),
            stop=too_late,
            sleep=self._clock.sleep,
        )
        try:
            return attempts(self.backend.current)
        except RetryError as error:
            raise Unreachable(f"the server did not come back within {self._patience:.0f} s") from error

    def _state(self) -> RunState:
        good = self.loop.last_good
        return RunState(
            target=self._target,
            original=dict(self.original),
            current=dict(self.running),
            last_good=dict(good) if good is not None else None,
            window=self._number,
        )

    def _save(self) -> None:
        if self._state_file is not None:
            self._state().save(self._state_file)
