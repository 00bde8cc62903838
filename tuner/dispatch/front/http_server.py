"""The HTTP server of the fronts."""

from __future__ import annotations

import asyncio

import h11

from tuner.dispatch.front.access import Access
from tuner.dispatch.front.config import Address, FrontConfig
from tuner.dispatch.front.http_app import Application
from tuner.dispatch.front.intake import Intake
from tuner.web.connection import Connection
from tuner.web.listener import Listener

__all__ = ["start_http"]

MOST_CONNECTIONS = 1_024
"""Connections at the same time, but for those that have just begun or whose request waits for its answer."""
MOST_IN_A_FLOOD = 2_048
"""Connections at the same time, however new they are."""
SHARE = 1 / 2
"""Share of the files that the process may open that these connections take at most."""
LONGEST_EXCHANGE = 120.0
"""Longest time from the start of a connection, or its last answer, to the end of the next answer, s.

The time in which a whole request waits for the dispatcher does not count: its deadline ends that."""


class FrontConnection(Connection):
    """A client's connection: what it asked for is withdrawn when it is lost.

    A client that has sent all it wanted to send may say so and still wait for its answer. Whoever is gone
    without a word says the same, so their requests are answered, too, until the answer cannot be sent. Over
    TLS both are lost at once: asyncio leaves no connection half open there.
    """

    most = MOST_CONNECTIONS
    most_in_a_flood = MOST_IN_A_FLOOD
    share = SHARE
    longest_exchange = LONGEST_EXCHANGE

    def data_received(self, data: bytes) -> None:
        """Go on reading behind a whole request: else its client could go away without notice.

        uvicorn waits with what comes behind a large part of a body, also behind the last one.
        """
        super().data_received(data)
        if self.asking and not self.cycle.more_body and not self.conn.trailing_data[0]:
            self.flow.resume_reading()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio looks at what it returns
        """Answer what was asked; what was asked by halves is an error.

        While a request waits, h11 must not hear of the end: uvicorn would read that for ever once the request
        is answered.
        """
        if self.asking and (not self.cycle.more_body or self.cycle.response_started):
            if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
                self.flow.pause_reading()  # the end comes again, when what was sent behind is read
            else:
                self.cycle.keep_alive = False
            return self.scheme == "http"  # over TLS the connection ends all the same, and asyncio warns
        self.conn.receive_data(b"")
        by_halves = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if by_halves and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.handle_events()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Withdraw the request."""
        if self.asking:
            task: asyncio.Task[None] | None = self.scope["state"].get("task")
            if task is not None:
                task.cancel()
        super().connection_lost(exc)

    def expire(self) -> None:
        """End, unless the dispatcher has the request."""
        if self.answering:
            self._wait()
        else:
            super().expire()


async def start_http(intake: Intake, config: FrontConfig, address: Address, access: Access) -> Listener:
    """Listen at an address on the running event loop.

    Raises:
        InvalidInput: The address cannot be used.
    """
    return await Listener.start(
        Application(intake, access, config.largest_message),
        address,
        "listen.http",
        connection=FrontConnection,
        keep_alive=LONGEST_EXCHANGE,
        tls=access.identity.server_context() if access.identity is not None else None,
    )
