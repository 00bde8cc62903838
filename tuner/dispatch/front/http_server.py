"""The HTTP server of the fronts."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Self

import h11
import uvicorn
from uvicorn.server import ServerState

from tuner.dispatch.front.config import Address, FrontConfig
from tuner.dispatch.front.http_app import Application
from tuner.dispatch.front.intake import Intake
from tuner.errors import InvalidInput, StorageError
from tuner.web.connection import ACCEPTED_AT_ONCE, Connection
from tuner.web.seldom import log_seldom

__all__ = ["HttpServer"]

MOST_CONNECTIONS = 1_024
"""Connections at the same time, but for those that have just begun."""
MOST_IN_A_FLOOD = 2_048
"""Connections at the same time, however new they are."""
LONGEST_EXCHANGE = 120.0
"""Longest time from the start of a connection, or its last answer, to the end of the next answer, s.

The time in which a whole request waits for the dispatcher does not count: its deadline ends that."""
LONGEST_HANDSHAKE = 10.0
"""Time for the start of TLS, s."""


class FrontConnection(Connection):
    """A client's connection: what it asked for is withdrawn when it is lost.

    A client that has sent all it wanted to send may say so and still wait for its answer. Whoever is gone
    without a word says the same, so their requests are answered, too, until the answer cannot be sent.
    """

    most = MOST_CONNECTIONS
    most_in_a_flood = MOST_IN_A_FLOOD
    longest_exchange = LONGEST_EXCHANGE

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio looks at what it returns
        """Answer what was asked; what was asked by halves is an error."""
        self.conn.receive_data(b"")
        by_halves = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if by_halves and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.handle_events()
            return False
        return self._asking

    def connection_lost(self, exc: Exception | None) -> None:
        """Withdraw the request."""
        if self._asking:
            task: asyncio.Task[None] | None = self.scope["state"].get("task")
            if task is not None:
                task.cancel()
        super().connection_lost(exc)

    def expire(self) -> None:
        """End, unless the dispatcher has the request."""
        if self._asking and not self.cycle.more_body and not self.cycle.response_started:
            self._wait()
        else:
            super().expire()

    @property
    def _asking(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


class HttpServer:
    """Listens on the running event loop.

    uvicorn's own server would catch the signals of the process, which are not its business here.
    """

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server = server
        self._state = state

    @classmethod
    async def start(cls, intake: Intake, config: FrontConfig, address: Address) -> Self:
        """Listen at an address.

        Raises:
            InvalidInput: The address cannot be used.
            StorageError: A certificate cannot be used.
        """
        host, port = address
        tls = _tls(config)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise InvalidInput("listen.http", f"{host}:{port} cannot be used: {error.strerror}") from error
        log_seldom()
        settings = uvicorn.Config(
            Application(intake, config.token, config.largest_message),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            ws="none",
            interface="asgi3",
            timeout_keep_alive=int(LONGEST_EXCHANGE),
            proxy_headers=False,
        )
        settings.load()
        loop, state = asyncio.get_running_loop(), ServerState()

        def connection() -> FrontConnection:
            return FrontConnection(settings, state, {}, loop)

        waits: dict[str, Any] = {} if tls is None else {"ssl_handshake_timeout": LONGEST_HANDSHAKE}
        server = await loop.create_server(
            connection, sock=listening, ssl=tls, backlog=ACCEPTED_AT_ONCE, **waits
        )
        return cls(server, state)

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """End every connection."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tls(config: FrontConfig) -> ssl.SSLContext | None:
    if config.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate, config.key)
        if config.client_ca is not None:
            context.load_verify_locations(config.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise StorageError(f"the certificates cannot be used: {error}") from error
    return context
