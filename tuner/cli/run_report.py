"""The report of a tuning run on the terminal, which is written now and then, and at the end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.control import Driver, WindowRecord
from tuner.errors import StorageError
from tuner.files.storage import make_folder
from tuner.measurement import WITHOUT_TRAFFIC
from tuner.profiler.attachment import Attachment
from tuner.report.folder import DATA, write_report
from tuner.report.recorder import Recorder

if TYPE_CHECKING:
    from tuner.knobs import Configuration
    from tuner.report.document import Report

__all__ = ["RunReport"]

REPORT_EVERY = 30.0
"""Least s of real time between two writings of ``report.json``, each at the end of a window: `kill -9` loses
little more."""
REPORT_PAUSE = 100.0
"""Least time between them, in times that the writing took: ten thousand windows take half a second."""


@dataclass
class WindowTotals:
    """What the windows of a run add up to: a run that nobody stops keeps no list of them."""

    windows: int = 0
    disturbed: int = 0
    idle: int = 0
    """Windows in which no request came."""
    answered: int = 0
    """Requests."""
    failed: int = 0
    recommended: Configuration | None = None
    """What was recommended last; None if nothing was."""

    def add(self, record: WindowRecord) -> None:
        """Count a window in."""
        if record.outcome == "recommended":
            self.recommended = record.wanted
        if (m := record.measurement) is not None:
            self.windows += 1
            self.disturbed += bool(m.disturbed)
            self.idle += m.arrival_rate == 0
            self.answered += m.requests
            self.failed += m.failures


class RunReport:
    """The report of one run.

    Life: `add` each window, and `save_if_due` after it; `write` at the end.

    Args:
        recorder: Collects the windows.
        folder: The folder of the run.
        attachment: The server.
        driver: Changes it.

    Attributes:
        totals: What the windows so far add up to.
    """

    def __init__(self, recorder: Recorder, folder: Path, attachment: Attachment, driver: Driver) -> None:
        self.recorder = recorder
        self.totals = WindowTotals()
        self._folder = folder
        self._attachment = attachment
        self._driver = driver
        self._due = time.monotonic() + REPORT_EVERY

    def add(self, record: WindowRecord, phase: str) -> None:
        """Take in a window."""
        self.totals.add(record)
        self.recorder.add(record, phase)

    def save_if_due(self) -> None:
        """Write ``report.json`` with the windows until now, if the last time is long enough ago."""
        if (begin := time.monotonic()) >= self._due:
            with suppress(StorageError):  # the end of the run says so, if it is still so then
                self._report(ended=False).save(self._folder / DATA)
            self._due = max(begin + REPORT_EVERY, begin + REPORT_PAUSE * (time.monotonic() - begin))

    def doubt(self) -> str:
        """Return what makes the run say little, in a sentence; empty if nothing does."""
        seen = self.totals
        if 2 * seen.disturbed <= seen.windows:
            return ""
        if 2 * seen.idle > seen.windows:
            return f"no request came in {seen.idle} of {seen.windows} windows: {WITHOUT_TRAFFIC}"
        return (
            f"{seen.disturbed} of {seen.windows} windows were disturbed and left out "
            "(the report says by what): longer windows see less of neighbours that come and go"
        )

    def write(self, *, compare: bool) -> tuple[Path, Path]:
        """Write the report of the windows until now, and return the paths of its data and of its page.

        Args:
            compare: Whether to compare what runs now with what ran first.

        Raises:
            StorageError: It cannot be written.
        """
        loop = self._driver.loop
        self.recorder.learned(loop.agent, loop.levels, loop.memory.visits())
        if compare:
            self.recorder.compare_ends(self._driver.running)
        folder = make_folder(self._folder, "--out")  # somebody may have deleted it meanwhile
        return write_report(self._report(ended=True), folder)

    def _report(self, *, ended: bool) -> Report:
        failed, sent = self._attachment.request_totals(self.totals.failed, self.totals.answered)
        changes = self._driver.reconfigurations
        return self.recorder.report(failed=failed, sent=sent, reconfigurations=changes, ended=ended)
