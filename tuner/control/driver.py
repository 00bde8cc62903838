"""Runs the control loop against a backend: measures, applies, and survives the server's death."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_exponential

from tuner.adapters.backend import ApplyReport, Backend
from tuner.control.decision import Apply, Decision, Hold
from tuner.control.loop import ControlLoop
from tuner.control.state import RunState
from tuner.errors import AdapterError, InvalidInput, ReadOnly, Refused, Unreachable
from tuner.knobs import Configuration
from tuner.measurement import NOT_KNOWN, Measurement
from tuner.profiler.source import Clock

__all__ = ["Driver", "Measurer", "WindowRecord"]

log = logging.getLogger(__name__)


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
    report: ApplyReport | None = None
    """What applying did; None if nothing was applied."""
    error: str = ""
    """Why applying or measuring failed; empty if it did not."""


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
        state_file: Where the last good configuration is kept, if anywhere.
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
        state_file: Path | None = None,
        patience: float = 300.0,
        notify: Callable[[str], None] = log.warning,
    ) -> None:
        self.backend = backend
        self.profiler = profiler
        self.loop = loop
        self.window = window
        self._clock = clock
        self._apply = apply
        self._state_file = state_file
        self._patience = patience
        self._notify = notify
        self._settle = 0.0
        self._change: ApplyReport | None = None  # what came before the next window
        self._number = 0
        self._target = backend.describe().target
        self.original = backend.current()
        self.running = self.original
        self.reconfigurations = 0
        self._save()

    def windows(self) -> Iterator[WindowRecord]:
        """Measure and decide without end; the caller stops when it has enough."""
        while True:
            yield self.step()

    def step(self) -> WindowRecord:
        """Measure one window, decide, apply."""
        return self._turn(lambda measurement: self.loop.decide(self._clock.now(), measurement))

    def observe(self) -> WindowRecord:
        """Measure one window and leave the server as it is."""
        return self._turn(lambda _: Hold(reason="only observing"))

    def _turn(self, decide: Callable[[Measurement], Decision]) -> WindowRecord:
        self._number += 1
        try:
            measurement = self.profiler.measure(self.window, settle=self._settle)
        except AdapterError as error:
            return self._recover(error)
        if self._change is not None:
            measurement = self._change.noted(measurement)
        self._settle, self._change = 0.0, None
        decision = self._put_back(measurement) or decide(measurement)
        report, problem = self._carry_out(decision)
        self._save()
        return WindowRecord(
            number=self._number,
            measurement=measurement,
            decision=decision,
            cost=self.loop.objective.cost(measurement),
            level=self.loop.level,
            report=report,
            error=problem,
        )

    def _put_back(self, measurement: Measurement) -> Apply | None:
        """Notice that the server no longer runs what was applied, and say what to restore.

        What it ran before we came means that it was restarted: the last good configuration is put back.
        Anything else was set by somebody, and is respected.
        """
        nearest, found = self.loop.space.nearest, measurement.configuration
        if nearest(found) == nearest(self.running):
            return None
        self.running = found
        if nearest(found) != nearest(self.original):
            self._notify(f"somebody else set {self.loop.space.format(found)}; going on from there")
            return None
        return self.loop.returned(found)

    def finish(self) -> Configuration:
        """Leave the server with the best configuration that was tried under the present load.

        A change that was interrupted may have come about all the same, so the server is asked first.

        Returns:
            What the server runs.
        """
        best = self.loop.incumbent()
        if not self._apply or best is None:
            return self.running
        try:
            self.running = self.backend.current()
        except AdapterError as error:
            self._notify(f"the server could not be asked what it runs: {error}")
        if self.loop.space.nearest(self.running) != best:
            self._carry_out(Apply(configuration=best, reason="the run ends with its best configuration"))
        self._save()
        return self.running

    def _carry_out(self, decision: Decision) -> tuple[ApplyReport | None, str]:
        """Apply a decision; return the report, or the reason why not."""
        if isinstance(decision, Hold) or not self._apply:
            return None, ""
        previous = self.running
        try:
            report = self.backend.apply(decision.configuration)
        except (Refused, ReadOnly, InvalidInput) as error:
            self.loop.failed(decision)
            return None, str(error)
        except AdapterError as error:
            self._notify(f"applying failed: {error}")
            return None, str(error)
        self.running = report.configuration
        self._settle = report.settle if report.changed else 0.0
        self._change = report
        self.reconfigurations += report.changed
        if isinstance(decision, Apply):
            self.loop.applied(previous)  # a rollback goes to what was good: it needs no probation
        return report, ""

    def _recover(self, error: AdapterError) -> WindowRecord:
        """Wait for the server, then restore the last good configuration."""
        self._notify(f"{error}; keeping the last good configuration and waiting for the server")
        self._save()
        current = self._wait_for_server()
        restore = self.loop.returned(current)
        self.running = current
        report, problem = self._carry_out(restore) if restore is not None and self._apply else (None, "")
        decision: Decision = restore or Hold(reason="the server was away and is back as it was")
        self._notify(decision.reason)
        self._settle = max(self._settle, 1.0)
        return WindowRecord(
            number=self._number,
            measurement=None,
            decision=decision,
            level=self.loop.level,
            report=report,
            error=problem or str(error),
        )

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
            wait=wait_exponential(multiplier=0.5, max=5),
            stop=too_late,
            sleep=self._clock.sleep,
        )
        try:
            return attempts(self.backend.current)
        except RetryError as error:
            raise Unreachable(f"the server did not come back within {self._patience:.0f} s") from error

    def _save(self) -> None:
        if self._state_file is None:
            return
        good = self.loop.last_good
        RunState(
            target=self._target,
            original=dict(self.original),
            current=dict(self.running),
            last_good=dict(good) if good is not None else None,
            window=self._number,
        ).save(self._state_file)
