"""A scheduling policy for a live driver: call it with the time and an event, get commands.

The driver owns the clock and carries out the commands. After each call it reads :attr:`Scheduler.wake_at` and
calls :meth:`Scheduler.wake` then, unless something happens before. Times are seconds since a start of the
driver's choice; a recent one, because at 1e9 s a float has no nanoseconds left.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tuner.scheduling.catalogue import build_policy
from tuner.scheduling.cluster import ClusterSpec, SessionSpec, grow
from tuner.scheduling.live import Calls, calls_of
from tuner.scheduling.log import ARRIVE, FINISH, WAKE, EventLog
from tuner.scheduling.vocabulary import DISPATCH

__all__ = ["Command", "Dispatch", "Drop", "Scheduler", "compile_policy"]


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


class Scheduler:
    """A policy and its commands in plain Python.

    It begins with a policy in any state. It takes events in the order of time, and answers each with the
    commands to carry out now. Rings that are full are replaced by longer ones.

    What a compiled policy would not survive is refused with `ValueError`, and no event happens: a time that
    is not finite, at which it would never come to its end, and a session, an accelerator or a size that
    there is none of, for which it would write into memory that is not its own.

    Args:
        policy: The state, as a policy's `build` makes it; modified in place from now on.
        log: Gets every event with its commands, if given.
    """

    def __init__(self, policy: Any, log: EventLog | None = None) -> None:
        self._log = log
        self._next = 0
        self._adopt(policy)

    def _adopt(self, policy: Any) -> None:
        self._policy = policy
        self._calls: Calls = calls_of(policy)
        self._wake_at = policy[0].board["wake_at"].view(np.ndarray)  # (1,) s
        self._items = policy[0].board["items"].view(np.ndarray)  # (1,)
        self._early = policy[0].board["early"].view(np.ndarray)  # (1,) s
        self._last_items, self._last_early = self._items.item(), self._early.item()
        self._void = policy[0].board["void"].view(np.ndarray)  # (1,)
        self._sessions, self._largest = policy[0].sessions.size, policy[0].latency.shape[2] - 1
        self._outstanding = policy[0].accelerators["outstanding"].view(np.ndarray)  # (N,)
        # Looking into a record array costs far more than into a plain view of the same memory.
        self._given = policy[0].commands.view(np.ndarray)  # (C,) COMMAND
        self._rings = policy[0].waiting["number"].view(np.ndarray)  # the numbers that wait, by queue

    @property
    def policy(self) -> Any:
        """The state, with the arrays that are in use now."""
        return self._policy

    @property
    def wake_at(self) -> float:
        """When to call :meth:`wake` if nothing happens before, s; infinite if not."""
        return self._wake_at.item()  # type: ignore[no-any-return]

    def arrive(  # noqa: PLR0917 - as many as a request has
        self,
        session: int,
        now: float,
        number: int | None = None,
        source: int = 0,
        items: int = 1,
        early: float = 0.0,
    ) -> list[Command]:
        """A request arrived.

        Args:
            session: Its session.
            now: s.
            number: Its name in the commands; counted from 0 if None.
            source: The frontend that received it.
            items: Its size; only the policies of :mod:`tuner.scheduling.distribution` look at it.
            early: s by which its deadline is nearer than its session's SLO, at least 0.

        Raises:
            ValueError: The time is not finite, there is no such session, the profiles hold no such size, or
                ``early`` is below 0 or not finite.
        """
        _check_time(now)
        if not 0 <= session < self._sessions:
            raise ValueError(f"a session is one of 0..{self._sessions - 1}, but got {session=}")
        if items != self._last_items:
            if not 1 <= items <= self._largest:
                raise ValueError(f"a request has 1..{self._largest} items, but got {items=}")
            self._items[0] = self._last_items = items
        if early != self._last_early:
            if not 0 <= early < math.inf:
                raise ValueError(f"`0 <= early < inf` must hold, but got {early=}")
            self._early[0] = self._last_early = early
        if number is None:
            number = self._next
            self._next = number + 1
        count = self._calls.arrive(session, source, number, now)
        while count < 0:
            self._adopt(grow(self._policy))
            count = self._calls.arrive(session, source, number, now)
        if self._log is not None:
            self._log.note(self._policy[0], ARRIVE, session, source, number, items, early)
        return self._commands(count) if count else []

    def finish(self, accelerator: int, now: float, *, void: bool = False) -> list[Command]:
        """The oldest batch outstanding on an accelerator has ended.

        Args:
            accelerator: Its number.
            now: s.
            void: Whether the batch was not executed: how long it took teaches nothing.

        Raises:
            ValueError: The time is not finite, there is no such accelerator, or it has no batch outstanding.
        """
        _check_time(now)
        if not 0 <= accelerator < self._outstanding.size:
            raise ValueError(
                f"an accelerator is one of 0..{self._outstanding.size - 1}, but got {accelerator=}"
            )
        if self._outstanding[accelerator] < 1:
            raise ValueError(f"no batch is outstanding on {accelerator=}, so that none can have ended")
        self._void[0] = void
        count = self._calls.finish(accelerator, now)
        if self._log is not None:
            self._log.note(self._policy[0], FINISH, accelerator, items=int(void))
        return self._commands(count) if count else []

    def wake(self, now: float) -> list[Command]:
        """The time :attr:`wake_at` has come.

        Raises:
            ValueError: The time is not finite.
        """
        _check_time(now)
        count = self._calls.wake(now)
        if self._log is not None:
            self._log.note(self._policy[0], WAKE)
        return self._commands(count) if count else []

    def _commands(self, count: int) -> list[Command]:
        """Return the last event's commands."""
        return [_command(self._rings, row) for row in self._given[:count].tolist()]


def compile_policy(name: str, options: Any = None) -> None:
    """Compile what a :class:`Scheduler` of a policy calls, so that the next one begins at once.

    Nothing happens if that was done before. It takes seconds on a machine that never did it: a driver with
    requests in progress calls it in another thread.

    Args:
        name: As in :func:`~tuner.scheduling.catalogue.build_policy`.
        options: The policy's options; its defaults if None.

    Raises:
        InvalidInput: There is no such policy.
    """
    latency = np.array([[0.0, 1e-3]])
    spec = ClusterSpec(sessions=[SessionSpec(name="any", slo=1.0, latency=latency)], kinds=[0])
    Scheduler(build_policy(name, spec, options))


def _check_time(now: float) -> None:
    if not math.isfinite(now):
        raise ValueError(f"the time of an event must be finite, but got {now=}")


def _command(rings: np.ndarray, row: tuple[Any, ...]) -> Command:
    """Return one row of COMMAND as a command."""
    kind, session, queue, first, count, _, accelerator, start, finish = row
    ring = rings[queue]
    begin = first & (len(ring) - 1)
    numbers = ring[begin : begin + count].tolist()
    numbers += ring[: count - len(numbers)].tolist()
    if kind == DISPATCH:
        return Dispatch(session, accelerator, tuple(numbers), start, finish)
    return Drop(session, tuple(numbers))
