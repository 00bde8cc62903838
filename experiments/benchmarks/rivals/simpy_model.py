"""The cluster as a SimPy model: the rival that most people would simulate with, in two forms.

* :func:`simulate_simpy` as SimPy's own examples are written: each request is a process that waits for its
  answer, each accelerator a process that takes batches from a store.
* :func:`simulate_simpy_callbacks` with as little of SimPy as possible: one process sends all requests, the
  ends of batches are timeouts with a callback, and the requests themselves are only numbers.

The policy is a :class:`~tuner.experiments.benchmarks.rivals.plain.PlainPolicy`; SimPy keeps the time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from tuner.errors import InvalidInput
from tuner.experiments.benchmarks.rivals.plain import DROPPED, SLACK, PlainPolicy, Tally
from tuner.plugin import install_text

__all__ = ["simulate_simpy", "simulate_simpy_callbacks"]

Process = Generator[Any, Any, None]


def simulate_simpy(policy: PlainPolicy, times: Sequence[float], sessions: Iterable[int]) -> Tally:
    """Simulate with a process for each request; return what the requests found, up to the last arrival.

    Args:
        policy: At its beginning; modified in place.
        times: Arrivals in order, s.
        sessions: Of each arrival.

    Raises:
        InvalidInput: SimPy is not installed.
    """
    model = _Processes(policy)
    model.run(times, sessions)
    return model.tally


def simulate_simpy_callbacks(policy: PlainPolicy, times: Sequence[float], sessions: Iterable[int]) -> Tally:
    """Simulate with callbacks only; arguments and result as above, but counted when batches are sent."""
    _Callbacks(policy).run(times, sessions)
    return policy.tally


class _Model:
    """Ties a policy to SimPy's clock."""

    def __init__(self, policy: PlainPolicy) -> None:
        self._simpy = _import_simpy()
        self.environment: Any = self._simpy.Environment()
        self.policy = policy
        self._timer = math.inf  # s, when the earliest timeout that calls `wake` comes

    def run(self, times: Sequence[float], sessions: Iterable[int]) -> None:
        """Simulate up to the last arrival."""
        self.environment.run(until=self.environment.process(self._clients(times, sessions)))

    def _clients(self, times: Sequence[float], sessions: Iterable[int]) -> Process:
        """Send the requests."""
        environment, arrive = self.environment, self._arrive
        for time, session in zip(times, sessions, strict=True):
            yield environment.timeout(time - environment.now)
            arrive(session, time)

    def _arrive(self, session: int, now: float) -> None:
        self.policy.arrive(session, now)
        self._carry_out()

    def _end(self, accelerator: int, now: float) -> None:
        self.policy.finish(accelerator, now)
        self._carry_out()

    def _carry_out(self) -> None:
        """Do what the policy commands, and set its timer."""
        policy = self.policy
        if policy.commands:
            for command in policy.commands:
                self._execute(*command)
            policy.commands.clear()
        if policy.wake_at < self._timer:
            self._timer = policy.wake_at
            timeout = self.environment.timeout(max(self._timer - self.environment.now, 0.0), self._timer)
            timeout.callbacks.append(self._rang)

    def _rang(self, event: Any) -> None:
        """A timer rang; it may have been set for what was done since."""
        now: float = event.value
        if now == self._timer:
            self._timer = math.inf
        if self.policy.wake_at <= now:
            self.policy.wake(now)
        self._carry_out()

    def _execute(self, accelerator: int, end: float, session: int, count: int) -> None:
        raise NotImplementedError


class _Callbacks(_Model):
    """The end of a batch is a timeout with a callback."""

    def _execute(self, accelerator: int, end: float, session: int, count: int) -> None:  # noqa: ARG002
        if accelerator != DROPPED:
            timeout = self.environment.timeout(end - self.environment.now, (accelerator, end))
            timeout.callbacks.append(self._ended)

    def _ended(self, event: Any) -> None:
        self._end(*event.value)


class _Processes(_Model):
    """Requests and accelerators are processes."""

    def __init__(self, policy: PlainPolicy) -> None:
        super().__init__(policy)
        self.tally = Tally()
        self._waiting: dict[int, deque[Any]] = {}  # session -> answers of its waiting requests, oldest first
        self._stores: dict[int, Any] = {}  # accelerator -> batches sent to it

    def _clients(self, times: Sequence[float], sessions: Iterable[int]) -> Process:
        environment = self.environment
        for time, session in zip(times, sessions, strict=True):
            yield environment.timeout(time - environment.now)
            environment.process(self._request(session, time))

    def _request(self, session: int, now: float) -> Process:
        answer = self.environment.event()
        self._waiting.setdefault(session, deque()).append(answer)
        self._arrive(session, now)
        end = yield answer
        if end is None:
            self.tally.dropped += 1
        elif end - now > self.policy.budgets[session] + SLACK:
            self.tally.late += 1
        else:
            self.tally.good += 1

    def _execute(self, accelerator: int, end: float, session: int, count: int) -> None:
        waiting = self._waiting[session]
        answers = [waiting.popleft() for _ in range(count)]
        if accelerator == DROPPED:
            for answer in answers:
                answer.succeed(None)
            return
        if accelerator not in self._stores:
            self._stores[accelerator] = self._simpy.Store(self.environment)
            self.environment.process(self._accelerator(accelerator))
        self._stores[accelerator].put((end, answers))
        self.tally.batches += 1

    def _accelerator(self, accelerator: int) -> Process:
        store = self._stores[accelerator]
        while True:
            end, answers = yield store.get()
            yield self.environment.timeout(max(end - self.environment.now, 0.0))
            for answer in answers:
                answer.succeed(end)
            self._end(accelerator, end)


def _import_simpy() -> Any:
    try:
        import simpy
    except ImportError as error:
        raise InvalidInput("bench", "SimPy is not installed", install_text("dev")) from error
    return simpy
