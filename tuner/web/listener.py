"""A web server that listens on the running event loop.

uvicorn's own server would catch the signals of the process, which are not its business here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Self

import uvicorn
from uvicorn.server import ServerState

from tuner.errors import InvalidInput
from tuner.web.connection import ACCEPTED_AT_ONCE, Connection
from tuner.web.seldom import log_seldom

__all__ = ["Listener", "bound"]

LONGEST_HANDSHAKE = 10.0
"""Time for the start of TLS, s."""
AGAIN = 0.01
"""s after which connections are looked at again at the end."""


def bound(address: tuple[str, int], setting: str) -> socket.socket:
    """Return a socket that listens at a host and a port; port 0 takes any free one.

    The host ``::`` stands for all addresses of this machine, those of IPv4 included, as for gRPC.

    Raises:
        InvalidInput: The address cannot be used.
    """
    host, port = address
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = _is_any(host) and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        problem = (error.strerror or str(error)).partition(" (while ")[0]  # Python adds the address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise InvalidInput(setting, f"{place} cannot be used: {problem}") from error


def _is_any(host: str) -> bool:
    """Return whether a host is IPv6's address for all addresses, however it is spelled."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name
        return False
    return address.version == 6 and address.is_unspecified


class Listener:
    """Listens from :meth:`start` to :meth:`stop`."""

    def __init__(
        self, make: Callable[[], Connection], state: ServerState, tls: ssl.SSLContext | None
    ) -> None:
        self.tls = tls
        """How connections that come from now on are encrypted. Another context may take its place."""
        self._make = make
        self._state = state
        self._server: asyncio.Server

    @classmethod
    async def start(
        cls,
        application: Any,
        address: tuple[str, int],
        setting: str,
        *,
        connection: type[Connection] = Connection,
        keep_alive: float = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Listen at an address.

        Args:
            application: Answers requests (ASGI).
            address: A host and a port.
            setting: That names the address, for messages.
            connection: What a connection is.
            keep_alive: s that a connection without a request stays open.
            tls: In the clear if None.

        Raises:
            InvalidInput: The address cannot be used.
        """
        listening = bound(address, setting)
        log_seldom()
        settings = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            ws="none",
            interface="asgi3",
            timeout_keep_alive=int(keep_alive),
            proxy_headers=False,
        )
        settings.load()
        loop, state = asyncio.get_running_loop(), ServerState()
        listener = cls(lambda: connection(settings, state, {}, loop), state, tls)
        listener._server = await loop.create_server(
            listener._accepted, sock=listening, backlog=ACCEPTED_AT_ONCE
        )
        return listener

    def _accepted(self) -> asyncio.BaseProtocol:
        """Return what hears of a new connection.

        It does what asyncio does for a server with TLS, but with the context of this moment: there a server
        has the same one for ever, and a context that is used keeps its authorities, and the sessions of those
        whom it has let in. Nor can another server take over the socket: one that is closed drops the
        connections that it has just accepted.
        """
        connection = self._make()
        if self.tls is None:
            return connection
        return SSLProtocol(
            asyncio.get_running_loop(),
            connection,
            self.tls,
            None,  # type: ignore[arg-type]  # nobody waits for the end of the handshake
            server_side=True,
            ssl_handshake_timeout=LONGEST_HANDSHAKE,  # type: ignore[arg-type]  # a float in `create_server`
        )

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self, wait: float = 0.0) -> None:
        """End every connection.

        Args:
            wait: Longest time, s, until the answers that were given are written. A large one waits for its
                client: the socket takes a part of it at a time.
        """
        self._server.close()
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait
        while self._state.connections and loop.time() < ends:
            for connection in list(self._state.connections):
                if isinstance(connection, Connection) and not connection.asking:
                    connection.transport.close()  # once everything is written
            await asyncio.sleep(AGAIN)
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the loop's next turn
