"""Measures windows of a backend: counters and processor times at both ends, latencies from clients."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tuner.adapters.backend import Backend, Counters
from tuner.errors import TimedOut
from tuner.measurement import UNANSWERED, Measurement
from tuner.profile import BatchingProfile
from tuner.profiler.contention import ContentionMonitor
from tuner.profiler.profile_tracker import ProfileTracker
from tuner.profiler.source import Clients, Clock, Host, Indicator
from tuner.profiler.window import (
    LIMITS,
    Arrivals,
    Limits,
    Reading,
    arrivals,
    assemble,
    beyond_the_mean,
    waiting_between,
)

__all__ = ["Profiler"]

SLICE, MOST_SLICES = 0.5, 4
"""Without clients the counters are also read inside a window: every 0.5 s, but in at most four intervals.
These readings show the burstiness and whether enough requests came, and each costs the server work."""
REMEMBERED_WINDOWS = 10
"""Windows over which :meth:`Profiler.measure` judges the burstiness."""
REMEMBERED = 30
"""Intervals over which :meth:`Profiler.watch` judges it."""
LATEST = 15.0
"""A window is given up that has not ended this long after it should, s: each answer may be slow, not all."""
LOOK = 1.0
"""How often to look whether the backlog from before a change becomes less, s."""
NO_BACKLOG = 0.05
"""The requests of this time, s, are no backlog if they all wait."""
CHECK = 5.0
"""How often `watch` reads the configuration when nothing hints at a change, s."""


@runtime_checkable
class Follower(Protocol):
    """A host that can count further processes as the server's."""

    def follow(self, processes: Iterable[int]) -> None:
        """Count these processes as the server's, too."""
        ...


@runtime_checkable
class Moving(Protocol):
    """Clients that can look where the model is now."""

    def follow_servers(self) -> None:
        """Send there from now on."""
        ...


class Profiler:
    """Measures one window after the other, and notices configuration changes between them.

    It notices a change because the configuration differs from the one read before, or because the server's
    counters started from 0 again.

    Args:
        backend: The server; its :class:`~tuner.errors.AdapterError` is not caught.
        clock: Real or virtual time, the same that the backend's counters carry.
        host: The machine the server runs on.
        clients: The load generator that times requests; None if there is none.
        limits: Limits beyond which a window is disturbed.
        indicator: A source of latencies that counts instead of server and clients; None if there is none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock,
        host: Host,
        clients: Clients | None = None,
        limits: Limits = LIMITS,
        indicator: Indicator | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._host = host
        self._clients = clients
        self._indicator = indicator
        self._limits = limits
        described = backend.describe()
        self._memory, self._counts_by_process = described.quantile_memory, described.counts_by_process
        self._processes = described.processes
        self._tracker = ProfileTracker(backend.space)
        self._contention = ContentionMonitor()
        self._last: Reading | None = None
        self._came: deque[Arrivals] = deque(maxlen=REMEMBERED_WINDOWS)
        self._window_before: tuple[Counters, Counters] | None = None
        self._changed_at = -math.inf

    def measure(self, seconds: float, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        """Measure a window.

        Args:
            seconds: Its length.
            settle: How long to wait first, s: after a change the old instances still serve for a while.
            enough: It ends earlier, at a reading inside it, once this many requests have come.

        Raises:
            AdapterError: The server cannot be asked, or answers so slowly that the window does not end.
        """
        latest = self._clock.now() + settle + seconds + LATEST
        window_before, self._window_before = self._window_before, None  # an outage is no change's fault
        self._clock.sleep(settle)
        if settle > 0 and window_before is not None:
            latest += self._wait_for_backlog(seconds, *window_before)
        before = self._read()
        if isinstance(self._clients, Moving):  # replicas may have moved since the window before
            self._clients.follow_servers()
        within = self._let_pass(before.counters, seconds, enough, latest)
        after = self._read(ending=True)
        self._check_time(latest)
        came = arrivals([before.counters, *within, after.counters])
        measurement = self._assemble(before, after, [*self._came, came][-REMEMBERED_WINDOWS:], within)
        if after.counters.restarts == before.counters.restarts:
            self._came.append(came)  # else it may hold what a replica had served while nobody could ask it
        self._window_before = window = before.counters, after.counters
        if window_before is None:
            return measurement
        waiting, waited = waiting_between(window_before, window)
        return replace(measurement, waiting=waiting, waited=waited)

    def _let_pass(self, start: Counters, seconds: float, enough: float, latest: float) -> list[Counters]:
        """Let a window pass; return the readings inside it.

        Args:
            start: At its beginning.
            seconds: Its length.
            enough: It ends earlier once this many requests have come.
            latest: When it is given up, s.
        """
        whole = self._clients is not None and math.isinf(enough)
        slices = 1 if whole else min(max(round(seconds / SLICE), 1), MOST_SLICES)
        within: list[Counters] = []
        for number in range(1, slices):
            self._sleep_until(start.time + seconds * number / slices)
            counters = self._backend.counters()
            self._check_time(latest)
            if arrivals([start, *within, counters])[0].sum() >= enough:
                return within  # the reading at the end, which follows at once, takes the place of this one
            within.append(counters)
        self._sleep_until(start.time + seconds)
        return within

    def watch(self, interval: float) -> Iterator[Measurement]:
        """Measure one interval after the other without end, with as few questions to the server as possible.

        If a reading comes too late for its interval, the interval is skipped.

        Raises:
            AdapterError: The server cannot be asked.
        """
        before = self._read()
        history = deque([before.counters], REMEMBERED)
        checked = due = self._clock.now()
        while True:
            due = max(due + interval, self._clock.now())
            self._sleep_until(due)
            if due - checked >= CHECK:
                checked, after = due, self._read(ending=True)
            else:
                after = self._read_cheaply(before)
            history.append(after.counters)
            yield self._assemble(before, after, [arrivals(history)])
            before = after

    def _wait_for_backlog(self, most: float, start: Counters, end: Counters) -> float:
        """Wait while requests that came before a change are answered; return how long, s.

        What an overloaded configuration leaves behind would be blamed on the next one. Only where more waits
        than comes in 50 ms, and only while it becomes less: what does not is the new configuration's own.

        Args:
            most: To wait, s.
            start: At the beginning of the window before the change.
            end: At its end.
        """
        begun = self._clock.now()
        few = NO_BACKLOG * arrivals([start, end])[0].item() / (end.time - start.time)
        waiting = self._backend.counters().pending
        while waiting is not None and waiting > few and self._clock.now() + LOOK <= begun + most:
            self._clock.sleep(LOOK)
            before, waiting = waiting, self._backend.counters().pending
            if waiting is not None and waiting >= before:
                break
        return self._clock.now() - begun

    def changed(self, ago: float = 0.0) -> None:
        """Note that the server was changed; for changes that neither configuration nor counters show.

        Args:
            ago: How long before now, s; such as before this profiler was made.
        """
        self._changed_at = max(self._changed_at, self._clock.now() - ago)

    def profile(self, configuration: Mapping[str, float] | None = None) -> BatchingProfile | None:
        """Return l(b) over undisturbed windows with the instances of a configuration (default: the last)."""
        if configuration is None:
            configuration = self._last.configuration if self._last is not None else {}
        return self._tracker.profile(configuration)

    def _read(self, *, ending: bool = False) -> Reading:
        """Read everything; the configuration comes first at the beginning of a window and last at its end."""
        configuration = None if ending else self._backend.current()
        host, counters = self._host.read(), self._backend.counters()
        reading = Reading(
            counters=counters,
            host=host,
            configuration=configuration if configuration is not None else self._backend.current(),
        )
        self._notice(reading)
        return reading

    def _read_cheaply(self, before: Reading) -> Reading:
        """Read without the configuration, unless the counters hint at a change."""
        host, counters = self._host.read(), self._backend.counters()
        known = counters.restarts == before.counters.restarts
        configuration = before.configuration if known else self._backend.current()
        reading = Reading(counters=counters, host=host, configuration=configuration)
        self._notice(reading)
        return reading

    def _notice(self, reading: Reading) -> None:
        """Note the time if the server changed since the reading before."""
        last, self._last = self._last, reading
        if last is None:
            return
        restarted = reading.counters.restarts != last.counters.restarts
        if restarted or reading.configuration != last.configuration:
            self._changed_at = reading.counters.time
        if restarted and isinstance(self._host, Follower):
            self._processes = self._backend.describe().processes
            self._host.follow(self._processes)

    def _restarted(self, before: Reading, after: Reading) -> bool:
        """Return whether the server's process surely began anew between two readings.

        That its totals did is not enough for servers that reset them when they load a model again. Then none
        of the processes that ran at the first reading may be the server now.
        """
        if after.counters.restarts == before.counters.restarts:
            return False
        old = before.host.processes
        return self._counts_by_process or bool(old and self._processes and old.isdisjoint(self._processes))

    def _assemble(
        self, before: Reading, after: Reading, came: Sequence[Arrivals], within: Sequence[Counters] = ()
    ) -> Measurement:
        start, end = before.counters.time, after.counters.time
        clients = self._clients.sample(start, end) if self._clients is not None else None
        measurement = assemble(
            before,
            after,
            clients=clients,
            sampled_at=self._clock.now(),
            came=came,
            mixed=end - self._changed_at < self._memory,
            limits=self._limits,
            within=within,
        )
        measurement = replace(measurement, restarted=self._restarted(before, after))
        if self._memory > 0 and measurement.quantiles_from == "server" and beyond_the_mean(measurement):
            measurement = replace(measurement, quantiles_mixed=True)
        if self._indicator is not None:
            measurement = self._indicator.applied(measurement)
        if not measurement.disturbed:
            measurement = self._judged(measurement, before, after)
        if set(measurement.disturbed) - {UNANSWERED}:
            self._changed_at = end  # as long as quantiles look back, they are of these requests, too
        return measurement

    def _judged(self, measurement: Measurement, before: Reading, after: Reading) -> Measurement:
        """Return the measurement, disturbed if contention moved; otherwise add its executions to l(b)."""
        work = after.counters.since(before.counters)
        moved = self._contention.moved(measurement, work)
        self._contention.add(measurement, work)
        if moved:
            return replace(measurement, disturbed=(moved,))
        self._tracker.add(after.configuration, work.batch_counts, work.batch_seconds)
        return measurement

    def _check_time(self, latest: float) -> None:
        if self._clock.now() > latest:
            raise TimedOut(f"the window did not end within {LATEST:g} s of its time")

    def _sleep_until(self, time: float) -> None:
        self._clock.sleep(max(time - self._clock.now(), 0.0))
