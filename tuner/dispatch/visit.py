"""A request from its arrival at the dispatcher to its end: what the observer hears, and its trace."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

from tuner.dispatch.pool.observer import Observer
from tuner.dispatch.request import Refused, Status
from tuner.dispatch.tracing import RequestTrace

__all__ = ["Visit"]

GRACE = 2e-3
"""s before its deadline from which on a request counts as not answered by it, and not as withdrawn: a client
gives up when its own clock says so, and gRPC ends the call then, often before our timer."""


class Visit:
    """Reports that a request arrives when it begins, and how it has ended: in a block, or by :meth:`over`.

    The block reports a refusal, a withdrawal and any other exception; an answer is reported by who gives it.

    Args:
        session: Of the request.
        observer: Hears of both.
        trace: Of the request, if it is traced.
        now: When it arrived, s on the loop's clock.
    """

    def __init__(self, session: str, observer: Observer, trace: RequestTrace | None, now: float) -> None:
        self.trace = trace
        self.arrived = now
        self._session = session
        self._observer = observer
        self._due = math.inf
        observer.arrived(session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Refused):
            self.over(error.status, error.reason)
        elif isinstance(error, asyncio.CancelledError):
            self.withdrawn()
        elif isinstance(error, Exception):
            self.over(Status.INTERNAL, "the dispatcher failed")

    def ends(self, due: float) -> None:
        """The answer is worthless from a time on, s."""
        self._due = due

    def taken(self, items: int) -> None:
        """The request, of so many items, waits for a batch."""
        self._observer.taken(self._session, items)

    def over(self, status: Status | None = None, reason: str = "") -> None:
        """The request was answered (no status) or refused."""
        now = asyncio.get_running_loop().time()
        self._observer.ended(self._session, status, now - self.arrived, now > self._due)
        if self.trace is not None:
            self.trace.executed(now, reason)
            self.trace.ended(now, status, reason)

    def withdrawn(self) -> None:
        """Nobody waits for the answer any more; at the deadline the request was not answered in time."""
        now = asyncio.get_running_loop().time()
        if now >= self._due - GRACE:
            self.over(Status.DEADLINE, "the deadline passed: its caller has gone")
        elif self.trace is not None:
            self.trace.executed(now)
            self.trace.withdrawn(now)
