"""A connection to the web server, which ends so early that slow clients cannot keep others out."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from tuner.web import open_files

__all__ = ["ACCEPTED_AT_ONCE", "MOST_CONNECTIONS", "MOST_IN_A_FLOOD", "Connection"]

MOST_CONNECTIONS = 64
"""Connections at the same time, but for those that have just begun or whose request waits for its answer."""
MOST_IN_A_FLOOD = 512
"""Connections at the same time, however new they are."""
SHARE = 1 / 8
"""Share of the files that the process may open that connections take at most."""
GRACE = 1.0
"""Time that a new connection has before another may replace it, s."""
ACCEPTED_AT_ONCE = 128
"""Connections that are accepted before the others are read."""
LONGEST_EXCHANGE = 30.0
"""Longest time from the start of a connection, or its last answer, to the end of the next answer, s."""


class Connection(H11Protocol):
    """Ends when an exchange takes too long, or when it is the stalest of too many connections.

    A server that waited for every connection could be blocked by a few clients that send half a request, or
    do not read the answer. A new connection has a moment to be answered first: the probe of an orchestrator
    may arrive in the middle of hundreds of clients that connect and go away. One whose request waits for us
    does not give way. In a flood, and where the share of the files is used up, neither holds: then the
    stalest ends, and one that waits for us only if all do.
    """

    most: ClassVar[int] = MOST_CONNECTIONS
    most_in_a_flood: ClassVar[int] = MOST_IN_A_FLOOD
    share: ClassVar[float] = SHARE
    longest_exchange: ClassVar[float] = LONGEST_EXCHANGE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start; if there are too many connections, abort the one whose deadline is nearest."""
        files = int(self.share * open_files.limit())
        if (count := len(self.connections)) >= min(self.most, files):
            ours: Any = self.connections
            stalest = min(ours, key=lambda one: (one.answering, one._deadline.when()))
            age = self.longest_exchange - (stalest._deadline.when() - self.loop.time())
            stale = age > GRACE and not stalest.answering
            if stale or count >= min(self.most_in_a_flood, files):
                self.connections.discard(stalest)
                stalest.transport.abort()
        # asyncio does so for the sockets that it makes itself. Without it the body of an answer waits until
        # the client has acknowledged its head, which takes a client 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._wait()

    @property
    def asking(self) -> bool:
        """Whether a request waits for its answer."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def answering(self) -> bool:
        """Whether a request has come whole, and its answer has not begun."""
        return self.asking and not self.cycle.more_body and not self.cycle.response_started

    def on_response_complete(self) -> None:
        """Start the time of the next exchange."""
        self._deadline.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.longest_exchange, self.expire)

    def expire(self) -> None:
        """End: the exchange takes too long."""
        self.transport.abort()
