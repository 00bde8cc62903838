"""A scheduling policy for a live driver: call it with the time and an event, get commands.

The driver owns the clock and carries out the commands. After each call it reads :attr:`Scheduler.wake_at` and
calls :meth:`Scheduler.wake` then, unless something happens before. Times are seconds since a start of the
driver's choice; a recent one, because at 1e9 s a float has no nanoseconds left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tuner.scheduling.cluster import grow
from tuner.scheduling.live import Calls, calls_of
from tuner.scheduling.vocabulary import DISPATCH

__all__ = ["Command", "Dispatch", "Drop", "Event", "Recording", "Scheduler", "replay"]

# Kinds of recorded event.
ARRIVE = 0  # a is the session, b the source
FINISH = 1  # a is the accelerator
WAKE = 2

EVENT = np.dtype([("kind", "i8"), ("a", "i8"), ("b", "i8"), ("number", "i8"), ("now", "f8"), ("items", "i8")])


class Dispatch(NamedTuple):
    """Send these requests to this accelerator as one batch."""

    session: int
    accelerator: int
    numbers: tuple[int, ...]
    start: float
    """s, when the execution starts, if the accelerator and the data are not late."""
    finish: float
    """s, when the policy expects it to end."""


class Drop(NamedTuple):
    """Refuse these requests: they cannot be served in time."""

    session: int
    numbers: tuple[int, ...]


Command = Dispatch | Drop


class Event(NamedTuple):
    """Something that a policy was told."""

    kind: int
    a: int
    b: int
    number: int
    now: float
    items: int = 1


class Recording:
    """The events that a policy was told, in order; :func:`replay` gives the same commands again."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = list(events)

    def to_array(self) -> np.ndarray:
        """Return the events as an array that can be stored without objects.   # (n,) EVENT."""
        return np.array([tuple(event) for event in self.events], EVENT)

    @classmethod
    def from_array(cls, array: np.ndarray) -> Recording:
        """Return the recording that :meth:`to_array` gave."""
        return cls(Event(*row) for row in array.tolist())


class Scheduler:
    """A policy and its commands in plain Python.

    It begins with a policy at any state, is told events in the order of time, and answers each with the
    commands to carry out now. Rings that are full are replaced by longer ones.

    Args:
        policy: The state, as a policy's `build` makes it; modified in place from now on.
        recording: Gets every event if given.
    """

    def __init__(self, policy: Any, recording: Recording | None = None) -> None:
        self._recording = recording
        self._next = 0
        self._adopt(policy)

    def _adopt(self, policy: Any) -> None:
        self._policy = policy
        self._calls: Calls = calls_of(policy)
        self._wake_at = policy[0].board["wake_at"].view(np.ndarray)  # (1,) s
        self._items = policy[0].board["items"].view(np.ndarray)  # (1,)
        self._told = self._items.item()

    @property
    def policy(self) -> Any:
        """The state, with the arrays that are in use now."""
        return self._policy

    @property
    def wake_at(self) -> float:
        """When to call :meth:`wake` if nothing happens before, s; infinite if not."""
        return self._wake_at.item()  # type: ignore[no-any-return]

    def arrive(
        self, session: int, now: float, number: int | None = None, source: int = 0, items: int = 1
    ) -> list[Command]:
        """Tell of a request.

        Args:
            session: Its session.
            now: s.
            number: Its name in the commands; counted from 0 if None.
            source: The frontend that received it.
            items: How large it is; of interest to the policies of :mod:`tuner.scheduling.distribution`.
        """
        if number is None:
            number = self._next
            self._next = number + 1
        if self._recording is not None:
            self._recording.events.append(Event(ARRIVE, session, source, number, now, items))
        if items != self._told:
            self._items[0] = self._told = items
        count = self._calls.arrive(session, source, number, now)
        while count < 0:
            self._adopt(grow(self._policy))
            count = self._calls.arrive(session, source, number, now)
        return self._commands(count) if count else []

    def finish(self, accelerator: int, now: float) -> list[Command]:
        """Tell that the oldest batch outstanding on an accelerator has ended."""
        if self._recording is not None:
            self._recording.events.append(Event(FINISH, accelerator, 0, 0, now))
        count = self._calls.finish(accelerator, now)
        return self._commands(count) if count else []

    def wake(self, now: float) -> list[Command]:
        """Tell that :attr:`wake_at` has come."""
        if self._recording is not None:
            self._recording.events.append(Event(WAKE, 0, 0, 0, now))
        count = self._calls.wake(now)
        return self._commands(count) if count else []

    def _commands(self, count: int) -> list[Command]:
        """Return the last event's commands."""
        cluster = self._policy[0]
        rows = np.asarray(cluster.commands[:count]).tolist()
        return [_command(cluster.waiting, row) for row in rows]


def _command(waiting: np.ndarray, row: tuple[Any, ...]) -> Command:
    """Return one row of COMMAND as a command."""
    kind, session, queue, first, count, _, accelerator, start, finish = row
    ring = waiting["number"][queue]
    begin = first & (len(ring) - 1)
    numbers = ring[begin : begin + count].tolist()
    numbers += ring[: count - len(numbers)].tolist()
    if kind == DISPATCH:
        return Dispatch(session, accelerator, tuple(numbers), start, finish)
    return Drop(session, tuple(numbers))


def replay(recording: Recording, policy: Any) -> list[Command]:
    """Tell a policy the events of a recording; return all its commands.

    Args:
        recording: From a live run or any other.
        policy: Its state before the first event; modified in place.
    """
    scheduler = Scheduler(policy)
    tell: dict[int, Callable[[Event], list[Command]]] = {
        ARRIVE: lambda event: scheduler.arrive(event.a, event.now, event.number, event.b, event.items),
        FINISH: lambda event: scheduler.finish(event.a, event.now),
        WAKE: lambda event: scheduler.wake(event.now),
    }
    return [command for event in recording.events for command in tell[event.kind](event)]
