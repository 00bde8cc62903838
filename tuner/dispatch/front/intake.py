"""Lets requests in: what every front does before and after it hands a request to the dispatcher."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from tuner.dispatch.front.config import LARGEST_MESSAGE
from tuner.dispatch.grant import Ask, Grant, Grants
from tuner.dispatch.request import Metadata, Refused, Reply, Request, Service, Status, TraceContext
from tuner.printable import one_line

__all__ = ["Count", "Header", "Held", "Intake", "Oversize", "Room", "deadline_after", "milliseconds"]

LONGEST_REASON = 1_000
"""Characters of a refusal's reason: gRPC sends it in a header, of which clients take 8 KB."""
MOST_BYTES = 1_000_000_000
"""Bytes of the inputs of all requests in progress."""
Answer = TypeVar("Answer")
Header = Callable[[str], str | None]
"""Returns the value of a request's header, by its name in small letters; None without it."""
Count = Callable[[str, Status], None]
"""Hears of a request that the dispatcher did not get: of which session, and why."""
FAILED = "the dispatcher failed; its log says why"
"""What a caller hears of an error that nobody expected."""
_log = logging.getLogger(__name__)


class Oversize(Refused):
    """One request, or its answer, is larger than any may be.

    Args:
        reason: What is too large.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(Status.TOO_LARGE, reason)


class Room:
    """Counts the bytes that all requests together hold in memory."""

    def __init__(self) -> None:
        self.held = 0

    def hold(self, size: int) -> Held:
        """Hold this many bytes, and those that are added, while the returned context lasts."""
        return Held(self, size)


class Held:
    """Bytes of one request; not a generator, which takes three times as long.

    Args:
        room: Counts them while the context lasts.
        size: How many there are at first.

    Raises:
        Refused: On entering: there are too many.
    """

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size

    def __enter__(self) -> Self:
        self._take(self._size)
        return self

    def __exit__(self, *_: object) -> None:
        self._room.held -= self._size

    def add(self, size: int) -> None:
        """Hold more bytes, which have come.

        Raises:
            Refused: There are too many.
        """
        self._take(size)
        self._size += size

    def _take(self, size: int) -> None:
        if self._room.held + size > MOST_BYTES:
            raise Refused(Status.EXHAUSTED, "the requests in progress hold too many bytes; ask again later")
        self._room.held += size


class Entrance:
    """Lets requests in while there are few enough, until it closes; each request is a ``with`` block of it.

    Args:
        most: Requests at the same time.
    """

    def __init__(self, most: int) -> None:
        self.closed = False
        self._most = most
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        if self.closed:
            raise Refused(Status.UNAVAILABLE, "the dispatcher is ending and takes no more requests")
        if self._open >= self._most:
            raise Refused(Status.EXHAUSTED, f"{self._most} requests are in progress; ask again later")
        self._open += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()

    async def drain(self) -> None:
        """Close, and wait for the requests that were let in."""
        self.closed = True
        await self._idle.wait()


class Intake:
    """Lets requests of all fronts in while there are few enough, until it closes.

    Args:
        service: Answers them.
        most_requests: Inferences in progress.
        grants: Grants the requests of frontends that keep their inputs; nobody does if None.
        traces: Whether requests are traced, so that it counts which trace their callers name.
        count: Hears of requests for sessions that are refused here.
        largest: Bytes of an answer.
    """

    def __init__(
        self,
        service: Service,
        most_requests: int,
        grants: Grants | None = None,
        traces: bool = False,
        count: Count = lambda *_: None,
        *,
        largest: int = LARGEST_MESSAGE,
    ) -> None:
        self._service = service
        self._grants = grants
        self._traces = traces
        self._count = count
        self._largest = largest
        self._entrance = Entrance(most_requests)
        self.room = Room()

    def ready(self, session: str | None = None) -> bool:
        """Return whether requests are taken, by one session or by any."""
        if session is not None and session not in self._service.sessions:
            return False
        return not self._entrance.closed and self._service.ready(session)

    async def serves(self, session: str, version: str) -> bool:
        """Return whether a session takes requests for a version of its model, or for any if that is empty."""
        if not self.ready(session):
            return False
        try:
            if version:
                await self.metadata(session, version)
        except Refused:
            return False
        return True

    async def metadata(self, session: str, version: str = "") -> Metadata:
        """Return what a session's model expects and gives.

        Raises:
            Refused: There is no such session or version, or no backend can say.
        """
        self.check_session(session)
        found = await _guarded(self._service.metadata(session))
        if version and version not in found.versions:
            raise Refused(Status.NOT_FOUND, f"session '{session}' has no version '{one_line(version, 100)}'")
        return found

    def check_session(self, session: str) -> None:
        """Check that there is a session.

        Raises:
            Refused: There is none of this name.
        """
        if session not in self._service.sessions:
            raise Refused(Status.NOT_FOUND, f"there is no session '{one_line(session, 100)}'")

    async def infer(self, request: Request, header: Header, write: Callable[[Reply], bytes]) -> bytes:
        """Answer a request with these headers.

        Args:
            request: What is asked.
            header: Of the request.
            write: Returns the message that answers, or refuses to.

        Raises:
            Refused: It has no answer, or too large a one.
        """

        def written(reply: Reply) -> bytes:
            message = write(reply)
            if len(message) > self._largest:
                raise Oversize(f"the answer has {len(message)} bytes; one has at most {self._largest}")
            return message

        self.check_session(request.session)
        if self._traces and (parent := header("traceparent")) is not None:
            request = request._replace(trace=TraceContext(parent, header("tracestate") or ""))
        heard = False
        try:
            if request.deadline is not None and request.deadline <= time.monotonic():
                raise Refused(Status.DEADLINE, "the deadline had passed when the request arrived")
            with self._entrance, self.room.hold(sum([len(tensor.content) for tensor in request.inputs])):
                heard = True
                return await _guarded(self._service.infer(request, written))
        except Refused as refused:
            if not heard:
                self._count(request.session, refused.status)
            raise

    async def grant(self, ask: Ask) -> Grant:
        """Wait until a request may be sent.

        Raises:
            Refused: It may not be sent.
        """
        if self._grants is None:
            problem = "this dispatcher takes requests and grants none; its file has mode: proxy"
            raise Refused(Status.UNSUPPORTED, problem)
        self.check_session(ask.session)
        heard = False
        try:
            with self._entrance:
                heard = True
                return await _guarded(self._grants.grant(ask))
        except Refused as refused:
            if not heard:
                self._count(ask.session, refused.status)
            raise

    async def drain(self) -> None:
        """Take no more requests, and wait for those in progress."""
        await self._entrance.drain()


async def _guarded(answer: Awaitable[Answer]) -> Answer:
    """Wait for the dispatcher; what it did not expect is a refusal, too, and is logged."""
    try:
        return await answer
    except Refused as refused:
        raise Refused(refused.status, one_line(refused.reason, LONGEST_REASON)) from None
    except Exception:
        _log.exception("a request failed in the dispatcher")
        raise Refused(Status.INTERNAL, FAILED) from None


def deadline_after(*durations: float | None) -> float | None:
    """Return when the shortest of some durations ends, on the clock of ``time.monotonic``; None without any.

    Args:
        durations: In seconds; None where nobody gave it.
    """
    given = [duration for duration in durations if duration is not None]
    return time.monotonic() + min(given) if given else None


def milliseconds(text: str | None) -> float | None:
    """Return the duration, in seconds, that the header ``x-slo-ms`` has; None without it.

    Raises:
        Refused: It is no number.
    """
    if text is None:
        return None
    try:
        duration = float(text) / 1000
    except ValueError:
        duration = math.nan
    if not math.isfinite(duration):
        raise Refused(Status.INVALID, f"x-slo-ms is a number of milliseconds, but got '{one_line(text, 40)}'")
    return duration
