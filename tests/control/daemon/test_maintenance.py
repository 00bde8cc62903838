"""Maintenance windows: what they leave behind when they end."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.builders import SPACE, configuration
from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import FileServer
from tuner.control.daemon.report import WorkerReport
from tuner.control.daemon.worker import Worker
from tuner.control.store.store import Store

BEST = configuration()


def at(clock: str) -> float:
    """A time of day, s since 1970."""
    return datetime.combine(
        datetime(2026, 11, 21), datetime.strptime(clock, "%H:%M:%S").time(), UTC
    ).timestamp()


class Night:
    """A target in maintenance from two to three; each turn ends at the next time, or at the last one."""

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            FileServer, "latency", lambda _, running: 0.015 if SPACE.same(running, BEST) else 0.022
        )
        bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
        self.bed, self.reports = bed, list[WorkerReport]()

    def live(self, *times: str) -> None:
        clock = iter(times)
        now = at(next(clock))

        def watch(_: str, report: WorkerReport) -> None:
            nonlocal now
            self.reports.append(report)
            now = at(next(clock, times[-1]))

        with closing(Store(self.bed.folder / "s.db")) as store:
            target = self.bed.daemon().config.targets[0]
            most, say = len(times) + 3, self.bed.say
            Worker(target, store, now=lambda: now, fast=True, windows=most, say=say, watch=watch).run()

    @property
    def outcomes(self) -> list[str]:
        return [report.record.outcome for report in self.reports]


@pytest.fixture
def night(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Night:
    return Night(bed, monkeypatch)


@pytest.mark.parametrize("late", ["02:59:55", "03:00:20"])
def test_what_was_tried_last_does_not_stay_until_the_next_one(night: Night, late: str) -> None:
    """It keeps the SLO, and costs more than what is known: the end leads back once, also if it was missed."""
    night.live("02:10:00", "02:10:03", late, late, "03:00:30")

    assert night.outcomes[0] == "applied"
    assert "applied" not in night.outcomes[2:]
    assert night.bed.running() == BEST
    said = [words for words in night.bed.said if "the maintenance window ends; leaving it with" in words]
    assert said == [f"a: the maintenance window ends; leaving it with {SPACE.format(BEST)}"]


def test_nothing_is_tried_that_no_window_inside_would_judge(night: Night) -> None:
    """Outside it is postponed as ever."""
    night.live("02:59:50", "02:59:53", "02:59:56", "03:00:02", "03:00:05")

    assert night.outcomes[:3] == ["held"] * 3
    assert "applied" not in night.outcomes
    assert night.bed.running() == BEST


def test_where_changes_are_always_allowed_nothing_ends(night: Night) -> None:
    """Nor where one maintenance window follows the other."""
    night.bed.path.write_text(night.bed.path.read_text().replace("}]", "}, {from: '03:00', to: '05:00'}]"))
    night.live("02:59:50", "02:59:53", "02:59:56", "03:00:02")

    assert night.outcomes[0] == "applied"
    assert not any("maintenance" in words for words in night.bed.said)
