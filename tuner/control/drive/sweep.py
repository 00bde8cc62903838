"""The sweep: measures a list of configurations one after the other, to judge what agents find."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Sequence
from functools import partial
from statistics import median
from typing import Any, ClassVar

from pydantic import Field

from tuner.adapters.backend import ApplyReport, Backend
from tuner.control.drive.reconcile.late_change import await_late_change, uninterrupted_change
from tuner.control.drive.watched import Measurer
from tuner.errors import InvalidInput, Refused
from tuner.files.stored import Part, Stored
from tuner.interruption import uninterrupted
from tuner.knobs import Configuration
from tuner.measurement import Measurement

__all__ = ["Outcome", "SweepResult", "SweepRow", "measure_configurations"]

log = logging.getLogger(__name__)

Restore = Callable[[], object]
Outcome = Measurement | Refused | InvalidInput
"""What came of a configuration: its window, or why the server cannot run it. That is known without asking the
server where it has refused the like before."""
RETRIES = 2
"""How often a disturbed window is measured again."""


def measure_configurations(
    backend: Backend,
    profiler: Measurer,
    configurations: Sequence[Configuration],
    *,
    seconds: float,
    repeats: int = 1,
    restore: Restore,
) -> Generator[tuple[Configuration, Outcome]]:
    """Apply and measure each configuration; at the end, or after an error, restore what ran before.

    Args:
        backend: The server.
        profiler: Measures windows.
        configurations: The configurations, in the order in which each repeat measures them.
        seconds: Length of a window.
        repeats: How often the whole list is measured.
        restore: Restores what the server ran before.

    Yields:
        Each configuration with its measurement, or with the error that it cannot be set.
    """
    late: list[Configuration] = []  # what the server may still come to run
    try:
        for configuration in [*configurations] * repeats:
            try:
                report = uninterrupted_change(
                    partial(backend.apply, configuration), partial(late.append, configuration)
                )
            except (Refused, InvalidInput) as refusal:
                yield configuration, refusal
            else:
                yield configuration, _measured(profiler, seconds, report)
    finally:
        try:
            for configuration in late:  # else it comes after `restore`
                await_late_change(backend, configuration, log.warning)
        finally:
            with uninterrupted():
                restore()


def _measured(profiler: Measurer, seconds: float, report: ApplyReport) -> Measurement:
    """Measure a window after a change; a disturbed one is measured again, at most :data:`RETRIES` times."""
    measurement = profiler.measure(seconds, settle=report.settle if report.changed else 0.0)
    for _ in range(RETRIES):
        if not measurement.disturbed:
            break
        measurement = profiler.measure(seconds)
    return measurement


class SweepRow(Part):
    """One configuration and its windows."""

    configuration: dict[str, float]
    windows: list[dict[str, Any]] = Field(default_factory=list)
    refused: str = ""

    @property
    def undisturbed(self) -> list[dict[str, Any]]:
        """Its windows that were not disturbed."""
        return [w for w in self.windows if not w["disturbed"]]

    @property
    def counted(self) -> list[dict[str, Any]]:
        """Its undisturbed windows, or all where each was disturbed."""
        return self.undisturbed or self.windows

    @property
    def disturbance(self) -> str:
        """Why the last of its windows was disturbed, where each was; else empty."""
        return "" if self.undisturbed or not self.windows else "; ".join(self.windows[-1]["disturbed"])

    def median(self, name: str) -> float:
        """Return the median of a figure over the windows that count; NaN without one."""
        found = (w.get(name) for w in self.counted)  # a quantity may be newer than the file
        values = [float(value) for value in found if value is not None]
        return median(values) if values else math.nan


class SweepResult(Stored):
    """An exhaustive measurement of a grid under one load."""

    what: ClassVar[str] = "sweep"

    version: int = 1
    command: str
    started: str
    target: str
    server: str
    model: str
    rate: float | None
    """Requests/s; None if the arrival process has no single rate, and stands in the command."""
    seconds: float
    repeats: int
    knobs: list[dict[str, Any]]
    rows: list[SweepRow] = Field(default_factory=list)

    def add(self, configuration: Configuration, outcome: Outcome) -> None:
        """Add a window, or why there is none."""
        values = dict(configuration)
        row = next((r for r in self.rows if r.configuration == values), None)
        if row is None:
            row = SweepRow(configuration=values)
            self.rows.append(row)
        if isinstance(outcome, Measurement):
            row.windows.append(outcome.to_json())
        else:
            row.refused = str(outcome)

    def ranked(self, name: str = "latency_p95") -> list[SweepRow]:
        """Return the rows that were measured, the least first; last those without an undisturbed window."""
        measured = [row for row in self.rows if math.isfinite(row.median(name))]
        return sorted(measured, key=lambda row: (not row.undisturbed, row.median(name)))
