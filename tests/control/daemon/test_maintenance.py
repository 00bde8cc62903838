"""Maintenance windows: what they leave behind when they end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import NoReturn

import pytest

from tests.builders import SPACE, configuration
from tests.control.daemon.daemon_bed import Bed
from tests.control.daemon.file_server import FileServer
from tuner.control.daemon.report import WorkerReport
from tuner.control.daemon.worker import Worker
from tuner.control.store.order_book import pause, resume
from tuner.control.store.store import Store
from tuner.errors import Refused, TimedOut, Unavailable
from tuner.knobs import Configuration

BEST = configuration()


def at(clock: str) -> float:
    """A time of day, s since 1970."""
    return datetime.combine(
        datetime(2026, 11, 21), datetime.strptime(clock, "%H:%M:%S").time(), UTC
    ).timestamp()


class Night:
    """A target in maintenance from two to three; each turn ends at the next time, or at the last one.

    Attributes:
        then: What happens at some of the times.
    """

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            FileServer, "latency", lambda _, running: 0.015 if SPACE.same(running, BEST) else 0.022
        )
        bed.write(("a", "apply", "maintenance: [{from: '02:00', to: '03:00'}]"))
        self.bed, self.reports = bed, list[WorkerReport]()
        self.then: dict[str, Callable[[], object]] = {}

    def live(self, *times: str, more: int = 3) -> None:
        clock = iter(times)
        now = at(next(clock))

        def watch(_: str, report: WorkerReport) -> None:
            nonlocal now
            self.reports.append(report)
            now = at(time := next(clock, times[-1]))
            self.then.pop(time, lambda: None)()

        with closing(Store(self.bed.folder / "s.db")) as store:
            target = self.bed.daemon().config.targets[0]
            most, say = len(times) + more, self.bed.say
            Worker(target, store, now=lambda: now, fast=True, windows=most, say=say, watch=watch).run()

    @property
    def server(self) -> FileServer:
        return self.bed.servers["a"]

    def order(self, give: Callable[[Store], object]) -> Callable[[], None]:
        """What gives an order, as a command does."""

        def call() -> None:
            with closing(Store(self.bed.folder / "s.db", existing=True)) as store:
                give(store)

        return call

    @property
    def ends(self) -> list[str]:
        """What was said at the end of maintenance."""
        return [words for words in self.bed.said if "the maintenance window ends; leaving it with" in words]

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
    assert night.ends == [f"a: the maintenance window ends; leaving it with {SPACE.format(BEST)}"]


TRIED = ["02:10:00", "02:10:03"]
"""In the first of these turns something is tried, which costs more."""


@pytest.fixture
def known(night: Night) -> Night:
    """What it runs by day is known well."""
    night.live("01:00:00", more=9)
    return night


def test_a_life_that_begins_after_the_end(known: Night) -> None:
    """It does not keep what an earlier one had tried. That ends once: by day another one may be the best."""
    known.live(*TRIED, more=0)
    assert known.bed.running() != BEST

    known.live("03:05:00", "03:05:03")
    assert known.bed.running() == BEST
    known.server.set(configuration(8, 0.002))
    known.live("12:00:00", "12:00:03")

    assert known.bed.running() == configuration(8, 0.002)
    assert len(known.ends) == 1


def test_a_life_that_begins_after_the_end_of_one_that_began_on_a_full_disk(
    known: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That changes may be tried is noted as soon as there is room: there is when something is tried."""
    note, full = Store.note_tries, [True]

    def once(store: Store, target: int, tries: bool) -> None:
        if full:
            full.pop()
            raise Unavailable("state s.db: database or disk is full")
        note(store, target, tries)

    monkeypatch.setattr(Store, "note_tries", once)
    known.live(*TRIED, more=0)
    assert known.bed.running() != BEST

    known.live("03:05:00", "03:05:03")

    assert known.bed.running() == BEST


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_a_life_that_changes_nothing_leaves_no_end_to_a_later_one(known: Night, mode: str) -> None:
    """What somebody sets meanwhile stays."""
    known.live(*TRIED, more=0)
    text = known.bed.path.read_text()
    known.bed.path.write_text(text.replace("mode: apply", f"mode: {mode}"))
    known.server.set(configuration(16))
    known.live("03:05:00")
    known.bed.path.write_text(text)
    known.live("12:00:00", "12:00:03")

    assert known.bed.running() == configuration(16)


def test_an_end_that_fell_into_a_pause(known: Night) -> None:
    """The target gets its best configuration when it is resumed, and keeps it."""
    known.then["02:59:55"] = known.order(lambda store: pause(store, "a", "a test"))
    known.then["04:00:00"] = lambda: kept.append(known.bed.running())
    known.then["04:00:03"] = known.order(lambda store: resume(store, "a"))
    kept: list[Configuration] = []

    known.live(*TRIED, "02:59:55", "03:00:10", "04:00:00", "04:00:03", "04:00:06")

    assert kept[0] != BEST
    assert known.bed.running() == BEST
    assert len(known.ends) == 1


@pytest.mark.parametrize("again", [False, True])
def test_an_end_at_which_the_server_refuses(known: Night, again: bool) -> None:
    """It is asked again, until the circuit breaker opens: that would hold rollbacks, too."""
    refused = list[float]()

    def refuse() -> None:
        if len(refused) < (20 if again else 1):
            refused.append(known.server.now())
            raise Refused("out of memory")

    def begin() -> None:
        known.server.before_change = refuse

    known.then["02:59:55"] = begin
    known.live(*TRIED, "02:59:55", *["03:00:10"] * 20)

    assert len(refused) == (3 if again else 1)
    assert (known.bed.running() == BEST) != again
    assert sum("failed too often" in words for words in known.bed.said) == again
    assert known.reports[-1].record.decision.rule != "circuit breaker"
    known.live("03:05:00")
    assert (known.bed.running() == BEST) != again


def test_what_somebody_sets_after_an_end_that_failed_stays(known: Night) -> None:
    """Outside maintenance nobody asked for anything else."""
    theirs = configuration(16)
    known.then["02:59:55"] = known.order(lambda store: pause(store, "a", "a test"))

    def deploy() -> None:
        known.server.set(theirs)
        known.order(lambda store: resume(store, "a"))()

    known.then["03:00:20"] = deploy

    known.live(*TRIED, "02:59:55", "03:00:10", "03:00:20", "03:00:30", "03:00:40")
    known.live("03:05:00")

    assert known.bed.running() == theirs


def test_no_overdue_window_brings_back_what_was_tried(known: Night) -> None:
    """After the end the best is not on probation against it."""

    def silent() -> NoReturn:
        raise TimedOut("metrics port: no answer")

    known.then["02:59:55"] = lambda: setattr(known.server, "counters", silent)
    known.live(*TRIED, "02:59:55", *["03:00:10"] * 9)

    assert len(known.ends) == 1
    assert "window is overdue" not in str([report.record.decision for report in known.reports])
    assert known.bed.running() == BEST


@pytest.mark.parametrize("comes", [True, False])
def test_an_end_whose_change_takes_longer(known: Night, comes: bool) -> None:
    """It is not asked for again while it may still come about, and needs no probation then."""
    asked = list[float]()

    def slow() -> None:
        asked.append(known.server.now())
        if len(asked) == 1:
            raise TimedOut("the model is still loading")

    def silent() -> NoReturn:
        raise TimedOut("metrics port: no answer")

    def come() -> None:
        if comes:
            known.server.set(BEST)
            known.server.counters = silent  # type: ignore[method-assign]

    known.then |= {"02:59:55": lambda: setattr(known.server, "before_change", slow), "03:00:20": come}
    known.live(*TRIED, "02:59:55", *["03:00:10"] * 5, *["03:00:20"] * (9 if comes else 300), more=0)

    assert known.bed.running() == BEST
    assert len(asked) == (1 if comes else 2)
    assert comes or asked[1] - asked[0] > 600
    assert "window is overdue" not in str([report.record.decision for report in known.reports])


def test_what_somebody_sets_just_before_the_end_is_told_once(known: Night) -> None:
    """It stays, and is not what the end leads to."""
    known.then["02:59:55"] = lambda: known.server.set(configuration(16))
    known.live(*TRIED, "02:59:55", "03:00:10")

    assert known.bed.running() == configuration(16)
    assert sum("somebody else set" in words for words in known.bed.said) == 1
    assert known.ends == []


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
