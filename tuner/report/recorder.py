"""Collects the windows of a run into a report."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from tuner.adapters.backend import Description
from tuner.agents.load_levels import LoadLevels, neighbours
from tuner.control.drive.journal import WindowRecord
from tuner.knobs import Configuration, KnobSpace
from tuner.measurement import QUANTITIES, Measurement, known
from tuner.objective import Objective
from tuner.report.document import (
    LearnedCost,
    LevelReport,
    Report,
    Served,
    Server,
    WindowReport,
    figures,
    milliseconds,
    served,
)

__all__ = ["Recorder"]


MOST_WINDOWS = 10_000
"""Windows in a report: the newest of a run that goes on for longer (14 hours of windows of 5 s)."""
MOST_BEFORE = 100
"""Windows of what ran first that are kept for each load level: the newest."""


class Knows(Protocol):
    """The part of an agent that a report needs."""

    def costs(self, level: int) -> np.ndarray:
        """Learned cost of each configuration; NaN where none is known."""
        ...


class Recorder:
    """Collects windows as they come. `report` may be called at any time.

    Args:
        title: The report's heading.
        command: The command line of the run.
        description: The backend.
        space: Its knobs.
        objective: The objective of the run.
    """

    def __init__(
        self, *, title: str, command: str, description: Description, space: KnobSpace, objective: Objective
    ) -> None:
        self.space = space
        self.objective = objective
        self.windows: deque[WindowReport] = deque(maxlen=MOST_WINDOWS)
        self.left_out = 0
        self.levels: list[LevelReport] = []
        self._measurements: deque[Measurement] = deque(maxlen=MOST_WINDOWS)
        self._first: dict[str, float] = {}
        self._before: dict[int | None, deque[Measurement]] = {}
        self._origin: float | None = None
        self._report = Report(
            title=title,
            command=command,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            server=Server(name=description.server, version=description.version),
            model=description.model,
            objective=str(objective),
            slo_ms=objective.slo.latency * 1e3,
            statistic=objective.slo.statistic,
            knobs=space.to_json(),
        )

    def add(self, record: WindowRecord, phase: str = "tune") -> WindowReport | None:
        """Add one turn of the control loop; a window without a measurement leaves a note."""
        measurement = record.measurement
        if measurement is None:
            self.note(f"window {record.number}: {record.error}; {record.decision.reason}")
            return None
        if self._origin is None:
            self._origin = measurement.start
            self._first = dict(measurement.configuration)
        window = self._window(record, measurement, phase)
        self.left_out += len(self.windows) == MOST_WINDOWS
        self.windows.append(window)
        self._measurements.append(measurement)
        if window.configuration == self._first:  # the report may have none of these at the end
            self._before.setdefault(window.level, deque(maxlen=MOST_BEFORE)).append(measurement)
        return window

    def _window(self, record: WindowRecord, m: Measurement, phase: str) -> WindowReport:
        assert self._origin is not None
        reason = record.decision.reason + (f"; not done: {record.error}" if record.error else "")
        return WindowReport(
            number=record.number,
            phase=phase,
            start=round(m.start - self._origin, 3),
            seconds=round(m.seconds, 3),
            configuration=dict(m.configuration),
            slo_kept=self.objective.kept(m),
            cost=known(record.cost, 4),
            level=record.level,
            decision=type(record.decision).__name__.lower(),
            reason=reason,
            next_configuration=dict(record.report.configuration) if record.report is not None else None,
            decided_configuration=dict(record.wanted) if record.wanted is not None else None,
            disturbed=list(m.disturbed),
            **figures({quantity: m.value(quantity) for quantity in QUANTITIES}),
        )

    def note(self, sentence: str) -> None:
        """Add a sentence to the notes at the end of the report."""
        self._report.notes.append(sentence)

    def level(self, rate: float, before: list[Measurement], after: list[Measurement]) -> None:
        """Add two rows to the table of before and after; the last level added is the report's headline."""
        pair = LevelReport(rate=rate, before=self._served(before), after=self._served(after))
        self.levels.append(pair)
        self._report.before, self._report.after = pair.before, pair.after

    def _served(self, measurements: list[Measurement]) -> Served:
        undisturbed = [m for m in measurements if not m.disturbed] or measurements
        latency = float(np.median([self.objective.latency(m) for m in undisturbed]))
        kept = latency <= self.objective.slo.latency and not any(m.failures for m in undisturbed)
        return served(undisturbed, undisturbed[-1].configuration, kept=kept)

    def learned(self, agent: Knows, levels: LoadLevels, seen: Mapping[int, Mapping[int, int]]) -> None:
        """Add the learned costs of the load levels of this run.

        Args:
            agent: The agent.
            levels: Its grid of load levels.
            seen: Number of windows by load level and configuration number.
        """
        self._report.learned = []
        for level in sorted(seen):
            costs = agent.costs(level)
            least, most = levels.bounds(level)
            visits = [seen[level].get(index, 0) for index in range(self.space.size)]
            self._report.learned.append(
                LearnedCost(
                    rate=levels.rate(level),
                    least=least,
                    most=most,
                    foreign_share=1 - 0.5 ** neighbours(level),
                    costs=[known(float(c), 4) for c in costs],
                    visits=visits,
                    measured=self._measured(level),
                    chosen=dict(self.space.nearest(self._last(level))),
                )
            )

    def _measured(self, level: int) -> list[float | None]:
        """Return the mean cost of the usable windows of each configuration under a load level."""
        found: dict[int, list[float]] = {}
        for window in self.windows:
            if window.level == level and not window.disturbed and window.cost is not None:
                index = self.space.encode(self.space.nearest(Configuration(window.configuration)))
                found.setdefault(index, []).append(window.cost)
        return [known(float(np.mean(found[i])), 4) if i in found else None for i in range(self.space.size)]

    def _last(self, level: int) -> Configuration:
        """Return what ran last under a load level."""
        ran = [window.configuration for window in self.windows if window.level == level]
        return Configuration(ran[-1]) if ran else self.space.default

    def compare_ends(self, left: Configuration) -> None:
        """Compare what ran first with what the server is left with, if both were measured at the last load.

        Where both are the same nothing better was found, and a note says so.

        Args:
            left: What the server was left with; the last window may have tried something else.
        """
        if self.levels or not self.windows:
            return
        level = self.windows[-1].level
        before = self._before.get(level)
        after = [
            m
            for w, m in zip(self.windows, self._measurements, strict=True)
            if w.level == level and w.configuration == dict(left)
        ]
        if self._first == dict(left):
            self.note("What ran before is the best that was found: it was left.")
        elif before and after:
            self.level(float(np.median([m.arrival_rate for m in after])), list(before), after)

    def report(self, *, failed: int, sent: int, reconfigurations: int, ended: bool = True) -> Report:
        """Return the report as of now.

        Args:
            failed: Requests that failed over the whole run.
            sent: Requests sent.
            reconfigurations: Changes of the server.
            ended: Whether the run has; else a note says that it has not.
        """
        notes = list(self._report.notes)
        if not ended:
            notes.append("The run had not ended when this was written; what it learned is left out.")
        if self.left_out:
            notes.append(
                f"These are the last {MOST_WINDOWS} windows; {self.left_out} before them were left out."
            )
        return self._report.model_copy(
            update={
                "notes": notes,
                "windows": list(self.windows),
                "levels": list(self.levels),
                "failed_requests": failed,
                "sent_requests": sent,
                "reconfigurations": reconfigurations,
                "profile": self._profile(),
            }
        )

    def _profile(self) -> dict[str, float | None]:
        """Return l(b) of the undisturbed window with the largest batches."""
        quiet = [m for m in self._measurements if not m.disturbed and m.profile is not None]
        if not quiet:
            return {}
        best = max(quiet, key=lambda m: (m.profile.largest, m.profile.executions) if m.profile else (0, 0))
        assert best.profile is not None
        p = best.profile
        return {
            "alpha_ms": milliseconds(p.alpha),
            "beta_ms": milliseconds(p.beta),
            "residual_ms": milliseconds(p.residual),
            "largest": float(p.largest),
        }
