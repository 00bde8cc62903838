"""One connection to the web server: whoever is slow on purpose keeps nobody else out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MOST_CONNECTIONS", "Connection"]

MOST_CONNECTIONS = 64
LONGEST_EXCHANGE = 30.0
"""Seconds from the beginning of a connection, or the last answer, until the next answer is on its way."""


class Connection(H11Protocol):
    """Ends when it takes too long, or when it is the stalest one and there are too many.

    A server that counts connections and waits for each would be closed to all by a few that send half a
    request, or do not read their answer.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and make room for it."""
        if len(self.connections) >= MOST_CONNECTIONS:
            stalest = min(self.connections, key=lambda one: one._deadline.when())  # type: ignore[union-attr]
            self.connections.discard(stalest)
            stalest.transport.abort()
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """One answer is on its way; the next request may come."""
        self._deadline.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(LONGEST_EXCHANGE, self.transport.abort)
