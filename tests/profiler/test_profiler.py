"""The profiler against a scripted backend on a virtual clock, and against the simulated server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.errors import TimedOut, Unreachable
from tuner.knobs import Configuration, Knob, KnobSpace, Role
from tuner.measurement import UNANSWERED
from tuner.profile import BatchingProfile
from tuner.profiler import Profiler
from tuner.profiler.attachment import attach
from tuner.profiler.source import HostReading
from tuner.profiler.window import Limits


class ScriptedServer:
    """Backend, clock and host: 100 requests/s in batches of one, 5 ms each, on virtual time."""

    space = KnobSpace(
        [
            Knob(name="max_batch_size", grid=(1, 8), default=1, role=Role.BATCH),
            Knob(name="instances", grid=(1, 2), default=1, role=Role.PARALLELISM),
        ]
    )

    def __init__(self, memory: float = 0.0, quantiles: dict[float, float] | None = None) -> None:
        self.time = 50.0
        self.memory = memory
        self.quantiles = quantiles or {}
        self.configuration = Configuration(max_batch_size=1, instances=1)
        self.restarts = 0
        self.processes: tuple[int, ...] = (7,)
        self.seen = frozenset({7})
        self.counts_by_process = False
        self.calls: list[str] = []
        self.followed: list[tuple[int, ...]] = []
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.pending: Callable[[float], float | None] = lambda _: None
        self.foreign, self.more = 0.0, 0

    def describe(self) -> Description:
        return Description(
            target="",
            server="",
            version="",
            model="",
            writable=True,
            quantiles=True,
            quantile_memory=self.memory,
            processes=self.processes,
            counts_by_process=self.counts_by_process,
        )

    def current(self) -> Configuration:
        self.calls.append("current")
        return self.configuration

    def apply(self, configuration: Configuration) -> ApplyReport:
        raise NotImplementedError

    def counters(self) -> Counters:
        self.calls.append("counters")
        count = int(self.time * 100) + self.more
        return Counters(
            time=self.time,
            requests=count,
            failures=0,
            latency=count * 0.006,
            queue=count * 0.001,
            compute=count * 0.005,
            inferences=count,
            batch_counts=np.array([0, count]),
            batch_seconds=np.array([0, count * 0.005]),
            quantiles=self.quantiles,
            restarts=self.restarts,
            pending=self.pending(self.time),
        )

    def profile(self) -> BatchingProfile | None:
        return None

    def close(self) -> None:
        pass

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        due = [event for event in self.events if event[0] <= self.time]
        self.events = [event for event in self.events if event[0] > self.time]
        for _, event in due:
            event()

    cores = 2.0

    def read(self) -> HostReading:
        return HostReading(
            time=self.time, server=self.time, own=0.0, total=self.time + self.foreign, processes=self.seen
        )

    def follow(self, processes: Iterable[int]) -> None:
        self.followed.append(tuple(processes))

    def at(self, time: float, event: Callable[[], None]) -> None:
        self.events.append((time, event))

    def restart(self) -> None:
        self.restarts += 1

    def reconfigure(self) -> None:
        self.configuration = self.configuration.replace(max_batch_size=8)


def make(server: ScriptedServer) -> Profiler:
    return Profiler(server, clock=server, host=server)


def test_measure_waits_settle_and_lasts_as_long_as_asked() -> None:
    """A window of 5 s after 1.5 s of settling."""
    server = ScriptedServer()
    profiler = make(server)
    window = profiler.measure(5.0, settle=1.5)

    assert (window.start, window.end) == pytest.approx((51.5, 56.5))
    assert window.arrival_rate == pytest.approx(100)
    assert window.cpu == pytest.approx(1.0)
    assert np.isnan(window.burstiness)
    assert window.disturbed == ()
    profiler.measure(5.0)
    assert profiler.measure(5.0).burstiness == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(("enough", "seconds"), [(150, 2.0), (400, 4.0), (10_000, 8.0)])
def test_a_window_ends_once_enough_requests_came(enough: float, seconds: float) -> None:
    """100 come in a second, and there are four readings in the eight seconds."""
    server = ScriptedServer()
    window = make(server).measure(8.0, enough=enough)

    assert window.seconds == pytest.approx(seconds)
    assert window.requests == pytest.approx(100 * seconds)
    assert window.arrival_rate == pytest.approx(100)


@pytest.mark.parametrize(
    ("pending", "waited"),
    [
        (lambda _: None, 0.0),  # the server does not say
        (lambda _: 4.0, 0.0),  # less than comes in 50 ms
        (lambda time: max(300.0 - 100.0 * (time - 55.5), 0.0), 3.0),  # it is answered within 3 s
        (lambda time: 300.0 + time, 1.0),  # it grows: the new configuration is overloaded, too
        (lambda time: 3000.0 - time, 5.0),  # no longer than a window
    ],
)
def test_a_backlog_from_before_a_change_is_waited_for(
    pending: Callable[[float], float | None], waited: float
) -> None:
    """At 100 requests/s, after 0.5 s of settling; without a change nothing is waited for."""
    server = ScriptedServer()
    profiler = make(server)
    profiler.measure(5.0)
    server.pending = pending

    window = profiler.measure(5.0, settle=0.5)

    assert window.start == pytest.approx(55.5 + waited)
    assert profiler.measure(5.0).start == pytest.approx(60.5 + waited)


def test_what_overload_left_behind_is_not_blamed_on_the_next_configuration() -> None:
    """A thousand requests wait when one at a time becomes sixteen on two instances."""
    with attach("sim://mlp?rate=300&seed=1") as attachment:
        overloaded = attachment.profiler.measure(10.0)
        good = Configuration({**attachment.backend.current(), "max_batch_size": 16.0, "instances": 2.0})
        report = attachment.backend.apply(good)

        window = attachment.profiler.measure(5.0, settle=report.settle)

    assert overloaded.latency_p95 > 1.0
    assert window.latency_p95 < 0.030


def test_change_by_somebody_else_disturbs_the_window() -> None:
    """The configuration is read at both ends."""
    server = ScriptedServer()
    server.at(52.0, server.reconfigure)
    window = make(server).measure(5.0)

    assert window.disturbed == ("somebody else changed the configuration during the window",)


def test_restart_disturbs_the_window_and_the_new_processes_are_followed() -> None:
    """Counters that began again mark the window; the next one is clean."""
    server = ScriptedServer()
    profiler = make(server)
    server.at(52.0, server.restart)
    first, second = profiler.measure(5.0), profiler.measure(5.0)

    assert len(first.disturbed) == 1
    assert second.disturbed == ()
    assert server.followed == [(7,)]


@pytest.mark.parametrize(
    ("processes", "seen", "counts_by_process", "surely"),
    [
        ((8,), {7}, False, True),
        ((7,), {7}, False, False),  # a model was loaded again
        ((7, 8), {7}, False, False),  # one of several servers was restarted
        ((8,), {}, False, False),  # another process began before the window
        ((), {}, False, False),  # on another machine
        ((), {}, True, True),
    ],
)
def test_a_window_knows_whether_the_server_surely_restarted(
    processes: tuple[int, ...], seen: Iterable[int], counts_by_process: bool, surely: bool
) -> None:
    """By its processes, or by its totals where nothing else resets them; the next window knows of none."""
    server = ScriptedServer()
    server.seen, server.counts_by_process = frozenset(seen), counts_by_process
    profiler = make(server)

    def restart() -> None:
        server.restart()
        server.processes = processes

    server.at(52.0, restart)

    assert [profiler.measure(5.0).restarted for _ in range(2)] == [surely, False]


def test_server_quantiles_are_distrusted_until_they_forget_the_old_configuration() -> None:
    """With a memory of 12 s two windows of 5 s after a change are mixed, the third is not."""
    server = ScriptedServer(memory=12.0, quantiles={0.95: 0.02})
    profiler = make(server)
    profiler.measure(5.0)
    server.reconfigure()
    mixed = [profiler.measure(5.0).quantiles_mixed for _ in range(3)]

    assert mixed == [True, True, False]


def test_server_quantiles_are_distrusted_until_they_forget_a_disturbance() -> None:
    """The window itself is set aside; two more look back to its requests."""
    server = ScriptedServer(memory=12.0, quantiles={0.95: 0.02})
    profiler = Profiler(server, clock=server, host=server, limits=Limits(foreign=0.5))

    def intrude() -> None:
        server.foreign += 5.0

    server.at(52.0, intrude)
    windows = [profiler.measure(5.0) for _ in range(4)]

    assert [bool(window.disturbed) for window in windows] == [True, False, False, False]
    assert [window.quantiles_mixed for window in windows] == [False, True, True, False]


def test_requests_that_were_counted_late_are_no_burst() -> None:
    """A replica that answers again has served for a while: that belongs to no window."""
    server = ScriptedServer()
    profiler = make(server)

    def answer_again() -> None:
        server.more += 3000
        server.restart()

    server.at(52.0, answer_again)
    windows = [profiler.measure(5.0) for _ in range(5)]

    assert windows[0].disturbed
    assert windows[-1].burstiness == pytest.approx(0, abs=0.1)


def test_a_window_without_requests_is_nothing_to_look_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with little traffic would otherwise never show anything."""
    server = ScriptedServer(memory=12.0, quantiles={0.95: 0.02})
    profiler, counters = make(server), server.counters

    with monkeypatch.context() as idle:
        stopped = counters()
        idle.setattr(server, "counters", lambda: replace(stopped, time=server.time))
        assert profiler.measure(5.0).disturbed == (UNANSWERED,)

    assert not profiler.measure(5.0).quantiles_mixed


@pytest.mark.parametrize(
    ("memory", "quantile", "mixed"), [(12.0, 0.4, True), (12.0, 0.2, False), (0.0, 0.4, False)]
)
def test_server_quantiles_that_the_mean_rules_out(memory: float, quantile: float, mixed: bool) -> None:
    """Of 500 requests with a mean of 6 ms not even ten take 0.4 s: an overload has just ended."""
    server = ScriptedServer(memory=memory, quantiles={0.95: quantile})

    assert make(server).measure(5.0).quantiles_mixed == mixed


def test_change_that_cannot_be_seen_can_be_told() -> None:
    """changed() starts the memory of the server's quantiles again."""
    server = ScriptedServer(memory=12.0, quantiles={0.95: 0.02})
    profiler = make(server)
    profiler.measure(5.0)
    profiler.changed()

    assert profiler.measure(5.0).quantiles_mixed


def test_a_new_profiler_can_be_told_when_the_server_was_changed() -> None:
    """Ten of twelve seconds ago, its first window of five still looks back in part, the next one not."""
    server = ScriptedServer(memory=12.0, quantiles={0.95: 0.02})
    profiler = make(server)
    profiler.changed(5.0)
    profiler.changed(100.0)

    assert [profiler.measure(5.0).quantiles_mixed for _ in range(2)] == [True, False]


def test_watch_yields_one_measurement_per_interval_and_rarely_reads_the_configuration() -> None:
    """Ten seconds of watching read counters eleven times and the configuration three times."""
    server = ScriptedServer()
    windows = list(islice(make(server).watch(1.0), 10))

    assert [w.end for w in windows] == pytest.approx(np.arange(51.0, 61.0))
    assert windows[-1].arrival_rate == pytest.approx(100)
    assert server.calls.count("counters") == 11
    assert server.calls.count("current") == 3


def test_profile_gathers_undisturbed_windows() -> None:
    """l(b) of all windows with the same number of instances."""
    server = ScriptedServer()
    profiler = make(server)
    before = profiler.profile()
    for _ in range(3):
        profiler.measure(1.0)
    profile = profiler.profile()

    assert before is None
    assert profile is not None
    assert profile.executions == 300
    assert profile.latency(1) == pytest.approx(0.005)
    assert profiler.profile(Configuration(instances=2)) is None


def test_errors_of_the_backend_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver waits for the server; the profiler does not."""
    server = ScriptedServer()
    profiler = make(server)

    def gone() -> Counters:
        raise Unreachable("gone")

    monkeypatch.setattr(server, "counters", gone)

    with pytest.raises(Unreachable, match="gone"):
        profiler.measure(1.0)


def test_a_window_of_slow_answers_is_given_up() -> None:
    """Each of them is in time, all of them are not."""
    server = ScriptedServer()
    counters = server.counters

    def slow() -> Counters:
        server.time += 4.9
        return counters()

    server.counters = slow  # type: ignore[method-assign]
    with pytest.raises(TimedOut, match="did not end within 15 s of its time"):
        make(server).measure(2.0)

    assert server.time - 50.0 < 2 + 15 + 5
